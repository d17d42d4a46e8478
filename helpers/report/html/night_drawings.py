"""Draws a case over its nights: the picture of its section, and the small picture of a list."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import svg

from helpers.drawing.axes import LABEL_HEIGHT, Scale, Steps, drawing, grid, label, level_line, line, span_of
from helpers.judging.case.verdict import Status
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.report.html.marks import GOOD, mark, small_marks
from helpers.report.nights import NightLine
from helpers.session.gate import SLOWER

_WIDTH, _HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 645, 22, 232
_DATES, _BUILDS = 250, 262
_SMALL_WIDTH, _SMALL_HEIGHT = 180, 44
# A narrower band is too small for a build's name.
_NARROWEST_NAME = 64
_MOST_DATES = 7
# Up to so many nights, the small picture has a mark for each.
_FEW = 12
# The axis spans at least this fraction of the middle value.
_LEAST_SPAN = 0.06
# A line that is further from the nights than this fraction is drawn at the picture's edge, and so is the end of an
# interval that is more than this many times as wide as the median interval.
_FAR, _WIDE_INTERVAL = 0.25, 3
# Nights have large marks if the distance between them is larger than this.
_WIDE = 14
# Statuses whose marks are large however many nights there are.
_LOUD = tuple(each.value for each in (*SLOWER, Status.IMPROVEMENT))


@dataclass(frozen=True)
class LevelLine:
    """A line across the nights."""

    # The class of the line: ``recorded``, ``good`` or ``published``.
    kind: str
    name: str
    # The full name, with source and rule.
    title: str
    samples_per_s: float


def draw_nights(case_id: str, nights: Sequence[NightLine], levels: Sequence[LevelLine]) -> svg.SVG | None:
    """The nights, oldest first, with their intervals and builds; None if no night has a figure."""
    known = [each for each in nights if each.samples_per_s is not None]
    if not known:
        return None
    rates = Scale(*_axis(known, levels), _BOTTOM, _TOP)
    across = Scale(-0.5, len(nights) - 0.5, _LEFT, _RIGHT)
    parts: list[svg.Element] = [
        *grid(rates, _LEFT, _RIGHT),
        label(rate_unit(case_id), 0, _TOP - 10),
        *_segments(nights, across),
        *_levels(levels, rates),
        *_trend(nights, across, rates),
        *_points(nights, across, rates),
        *_dates(nights, across),
        *_builds(nights, across),
    ]
    return drawing(
        _WIDTH, _HEIGHT, summary_of(case_id, nights, levels), parts, left=_LEFT, right=_RIGHT, count=len(nights)
    )


def draw_small(case_id: str, nights: Sequence[NightLine], levels: Sequence[LevelLine]) -> svg.SVG | None:
    """The same as a small picture without text; None if no night has a figure."""
    known = [each for each in nights if each.samples_per_s is not None]
    if not known:
        return None
    rates = Scale(*_axis(known, levels), _SMALL_HEIGHT - 7, 7)
    across = Scale(-0.5, len(nights) - 0.5, 4, _SMALL_WIDTH - 8)
    lines = [level_line(rates.within(each.samples_per_s), 0, _SMALL_WIDTH, "level", each.kind) for each in levels]
    parts: list[svg.Element] = [*lines, *_trend(nights, across, rates)]
    for at, night in enumerate(nights):
        place = (across(at), _SMALL_HEIGHT - 8 if night.samples_per_s is None else rates(night.samples_per_s))
        if at == len(nights) - 1:
            parts.append(mark(night.status, *place))
        elif _is_loud(night) or len(nights) <= _FEW:
            parts.append(small_marks(night.status, [place], *(["excluded"] if night.excluded else [])))
    return drawing(_SMALL_WIDTH, _SMALL_HEIGHT, summary_of(case_id, nights, levels), parts)


def summary_of(case_id: str, nights: Sequence[NightLine], levels: Sequence[LevelLine]) -> str:
    """The picture in a sentence, for screen readers."""
    newest, unit = nights[-1], rate_unit(case_id)
    rate = "no figure" if newest.samples_per_s is None else f"{number(newest.samples_per_s)} {unit}"
    lines = "".join(f", {each.name} {number(each.samples_per_s)}" for each in levels)
    several = f"{len(nights)} nights from {nights[0].date} to {newest.date}, the newest"
    return f"{several if len(nights) > 1 else f'one night, {newest.date}'}: {rate}, {newest.status}{lines}"


def _axis(known: Sequence[NightLine], levels: Sequence[LevelLine]) -> tuple[float, float]:
    rates = [each.samples_per_s for each in known if each.samples_per_s is not None]
    rates += [each.good_samples_per_s for each in known if each.good_samples_per_s is not None]
    low, high = min(rates) * (1 - _FAR), max(rates) * (1 + _FAR)
    lines = [level.samples_per_s for level in levels if low <= level.samples_per_s <= high]
    return span_of([*rates, *lines, *_ends(known)], _LEAST_SPAN)


def _ends(known: Sequence[NightLine]) -> Iterator[float]:
    """The ends of the intervals that are shown completely."""
    found = [(each.low, each.high) for each in known if each.low is not None and each.high is not None]
    usual = statistics.median(high - low for low, high in found) if found else 0.0
    for low, high in found:
        if high - low <= _WIDE_INTERVAL * usual:
            yield from (low, high)


def _is_loud(night: NightLine) -> bool:
    return not night.excluded and night.status in _LOUD


def _segments(nights: Sequence[NightLine], across: Scale) -> Iterator[svg.Element]:
    """A dashed line where each segment after the first one begins, with its number."""
    places = [at for at, (one, other) in enumerate(pairwise(nights), 1) if one.segment != other.segment]
    for place in places:
        x = across(place - 0.5)
        yield line([(x, _TOP - 6), (x, _BOTTOM)], "segment")
        yield label(f"segment {nights[place].segment}", x + 4, _TOP - 8)


def _levels(levels: Sequence[LevelLine], rates: Scale) -> Iterator[svg.Element]:
    """The lines, each with its name and figure at the right, spaced so that names do not overlap."""
    free = float(_TOP - 2 * LABEL_HEIGHT)
    for each in sorted(levels, key=lambda level: -level.samples_per_s):
        y = rates.within(each.samples_per_s)
        beyond = " ↑" if each.samples_per_s > rates.high else " ↓" if each.samples_per_s < rates.low else ""
        free = max(y + 4, free + LABEL_HEIGHT + 1)
        yield level_line(y, _LEFT, _RIGHT, "level", each.kind)
        yield label(f"{each.name} {number(each.samples_per_s)}{beyond}", _RIGHT + 5, free, each.kind, longest=24)


def _trend(nights: Sequence[NightLine], across: Scale, rates: Scale) -> Iterator[svg.Element]:
    """A thin line through the nights of a segment."""
    shown = [
        (night.segment, (across(at), rates(night.samples_per_s)))
        for at, night in enumerate(nights)
        if night.samples_per_s is not None and not night.excluded
    ]
    for _, group in groupby(shown, key=lambda each: each[0]):
        points = [place for _, place in group]
        if len(points) > 1:
            yield line(points, "trend")


def _points(nights: Sequence[NightLine], across: Scale, rates: Scale) -> Iterator[svg.Element]:
    steps = []
    for at, night in enumerate(nights):
        if night.low is not None and night.high is not None and not night.excluded:
            steps.append(f"M {across(at)} {rates.within(night.low)} V {rates.within(night.high)}")
    if steps:
        yield svg.Path(d=[Steps(" ".join(steps))], class_=["interval"])
    small: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    large = []
    for at, night in enumerate(nights):
        x = across(at)
        if night.good_samples_per_s is not None:
            small.setdefault((GOOD, False), []).append((x, rates.within(night.good_samples_per_s)))
        place = (x, _BOTTOM - 8 if night.samples_per_s is None else rates(night.samples_per_s))
        if _is_loud(night) or _WIDE * len(nights) <= _RIGHT - _LEFT:
            large.append((night, place))
        else:
            small.setdefault((night.status, night.excluded), []).append(place)
    for (status, excluded), places in small.items():
        yield small_marks(status, places, *(["excluded"] if excluded else []))
    for night, place in large:
        yield mark(night.status, *place) if not night.excluded else small_marks(night.status, [place], "excluded")


def _dates(nights: Sequence[NightLine], across: Scale) -> Iterator[svg.Element]:
    every = math.ceil(len(nights) / _MOST_DATES)
    for at in range(len(nights) - 1, -1, -every):
        yield label(nights[at].date, across(at), _DATES, "m", longest=10)


def _builds(nights: Sequence[NightLine], across: Scale) -> Iterator[svg.Element]:
    """A band for each build, alternately light and dark, with the build's name if there is room."""
    yield label("build", _LEFT - 6, _BUILDS + 12, "e")
    at, named = 0, False
    for place, (build, group) in enumerate(groupby(nights, key=lambda each: each.build)):
        count = len(list(group))
        x, width = across(at - 0.5), round(count * (_RIGHT - _LEFT) / len(nights), 1)
        yield svg.Rect(x=x, y=_BUILDS, width=width, height=16, class_=["band", "even" if place % 2 else "odd"])
        named = width >= _NARROWEST_NAME
        if named:
            yield label(build, round(x + width / 2, 1), _BUILDS + 12, "m", longest=int(width / 7))
        at += count
    if not named:
        yield label(nights[-1].build, _RIGHT + 5, _BUILDS + 12, longest=18)
