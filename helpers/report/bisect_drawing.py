"""The picture of a search for the first bad build."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import svg

from helpers.drawing.axes import Scale, drawing, label, level_line, line, on_its_own, words
from helpers.judging.bisect.search import BuildFinding
from helpers.report.bisect import build_words, headline
from helpers.session.bisect import CaseSearch
from helpers.trainers.contract.errors import printable

_WIDTH, _LEFT, _RIGHT = 1000, 60, 990
# Levels above, probabilities below them, names at the bottom.
_TOP, _LEVELS, _SHARES, _BOTTOM = 26, 256, 282, 392
_HEIGHT = 540
# With more or longer names the labels would overlap.
_MOST_NAMES, _LONGEST_NAME = 40, 24
# A build with at least this probability is drawn as the answer.
_LIKELY = 0.5
# A single pair may be far off, but the picture must show differences of a few percent.
_FURTHEST = 0.6


def draw(search: CaseSearch, good: str) -> str:
    """An SVG of the builds in their order: their levels against the good build with 95% intervals, and below these the
    probability of each to be the first bad build. Builds that cannot be tested have a cross."""
    builds = search.builds
    axes = _Axes(_levels(builds), Scale(0, 1, _BOTTOM, _SHARES), Scale(0, len(builds), _LEFT, _RIGHT))
    parts: list[svg.Element] = [label(headline(search), 0, 4), *_frame(axes.levels)]
    named = math.ceil(len(builds) / _MOST_NAMES)
    for place, build in enumerate(builds):
        parts += _build(axes, place, build)
        if place % named == 0 or place == len(builds) - 1 or _is_likely(build):
            parts.append(_name(axes.x(place), build))
    title = f"{search.case_id}: {search.unit} against {good}"
    return on_its_own(drawing(_WIDTH, _HEIGHT, f"{title}; {headline(search)}", parts), title)


@dataclass(frozen=True)
class _Axes:
    levels: Scale
    shares: Scale
    places: Scale

    def x(self, place: int) -> float:
        return self.places(place + 0.5)

    @property
    def bar_width(self) -> float:
        return round(max(2.0, 0.6 * (self.places(1) - self.places(0))), 1)


def _levels(builds: Sequence[BuildFinding]) -> Scale:
    ends = [0.0, *(end for each in builds if each.level for end in (each.level.low, each.level.high))]
    room = 0.08 * (max(ends) - min(ends)) or 0.01
    return Scale(max(min(ends) - room, -_FURTHEST), min(max(ends) + room, _FURTHEST), _LEVELS, _TOP)


def _frame(levels: Scale) -> Iterator[svg.Element]:
    for top, bottom in ((_TOP, _LEVELS), (_SHARES, _BOTTOM)):
        yield svg.Rect(x=_LEFT, y=top, width=_RIGHT - _LEFT, height=bottom - top, class_=["grid"])
    yield level_line(levels(0), _LEFT, _RIGHT, "segment")
    for level in (0.0, levels.low, levels.high):
        if level == 0 or abs(levels(level) - levels(0)) > 14:
            yield label(f"{level:+.1%}", _LEFT - 6, levels(level) + 4, "e")
    yield label("100%", _LEFT - 6, _SHARES + 10, "e")
    yield label("0%", _LEFT - 6, _BOTTOM, "e")
    yield label("level against the good build, 95% interval", _LEFT + 6, _TOP + 16)
    yield label("probability to be the first bad build; ×: cannot be tested", _LEFT + 6, _SHARES + 16)


def _build(axes: _Axes, place: int, build: BuildFinding) -> Iterator[svg.Element]:
    x = axes.x(place)
    shown: list[svg.Element] = []
    if build.level is not None:
        low, high = axes.levels.within(build.level.low), axes.levels.within(build.level.high)
        shown += [line([(x, low), (x, high)]), svg.Circle(cx=x, cy=axes.levels.within(build.level.point), r=4)]
    top = axes.shares(build.probability)
    if top < _BOTTOM:
        width = axes.bar_width
        shown.append(svg.Rect(x=round(x - width / 2, 1), y=top, width=width, height=round(_BOTTOM - top, 1)))
    if build.untestable:
        shown.append(label("×", x, _BOTTOM - 6, "m"))
    if shown:
        tip = svg.Title(text=words(build_words(build)))
        yield svg.G(class_=["build", *(["likely"] if _is_likely(build) else [])], elements=[tip, *shown])


def _name(x: float, build: BuildFinding) -> svg.Text:
    kind = "likely" if _is_likely(build) else "untestable" if build.untestable else "tested"
    turned = [svg.Translate(x + 4, _BOTTOM + 12), svg.Rotate(-45)]
    return svg.Text(text=words(_short(build.name)), transform=turned, class_=["e", kind])


def _is_likely(build: BuildFinding) -> bool:
    return build.probability >= _LIKELY


def _short(name: str) -> str:
    """The end of a long name, since builds of a series differ at the end."""
    shown = printable(name).rpartition("/")[2] or printable(name)
    shown = shown.removesuffix(".whl")
    return shown if len(shown) <= _LONGEST_NAME else f"…{shown[-_LONGEST_NAME:]}"
