"""A case's series as an SVG: one point a night, a colour for each segment, regressions and exclusions marked."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pygal
from pygal.style import Style

from helpers.commands.history import NightLine
from helpers.judging.statistics import number
from helpers.judging.verdict import Status
from helpers.trainers.contract.errors import printable

_REGRESSION = "#c62828"
_SLOWER = "#6a1b9a"
_EXCLUDED = "#9e9e9e"
# Colour-blind safe (Okabe and Ito), without the reds that mean a regression here.
_SEGMENTS = ("#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7")
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
# More labels than this would overlap.
_MOST_LABELS = 12
_LONGEST_TEXT = 200
# The axis spans at least this share of the median: noise of a few tenths of a percent must not fill the picture.
_LEAST_SPAN = 0.06


def plot_history(title: str, lines: Sequence[NightLine], unit: str) -> str:
    """SVG text; ``unit`` is that of the lines' samples/s. A browser that shows it fetches nothing."""
    groups = [group for group in _groups(lines) if any(group.points)]
    chart = pygal.Line(
        title=_shortened(title),
        x_title="night",
        y_title=unit,
        width=1000,
        height=480,
        js=[],
        legend_at_bottom=True,
        truncate_legend=-1,
        show_minor_x_labels=False,
        x_label_rotation=30,
        dots_size=4,
        allow_interruptions=True,
        value_formatter=number,
        no_prefix=True,
        range=_range(lines),
        disable_xml_declaration=True,
        style=Style(
            background="white",
            plot_background="white",
            colors=tuple(group.colour for group in groups),
            font_family="DejaVu Sans, Helvetica, Arial, sans-serif",
            title_font_size=16,
            label_font_size=12,
            major_label_font_size=12,
            legend_font_size=12,
        ),
    )
    chart.x_labels = [printable(line.created[:10]) for line in lines]
    chart.x_labels_major_every = max(1, -(-len(lines) // _MOST_LABELS))
    for group in groups:
        chart.add(group.name, group.points, **group.look)
    svg: str = chart.render(is_unicode=True)
    # The script repeats the settings, with the title in them, for a program that is not there.
    return _SCRIPT.sub("", svg)


def _shortened(text: str) -> str:
    """Short enough for pygal, which searches without end where a title leaves no room for the picture."""
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}…"


@dataclass(frozen=True)
class _Group:
    """Points of one colour, None for the nights that are not in it."""

    name: str
    colour: str
    points: list[dict[str, Any] | None]
    look: Mapping[str, Any]


def _groups(lines: Sequence[NightLine]) -> Iterator[_Group]:
    """A line for each segment, and over them points for the regressions and the excluded nights."""
    segments = sorted({line.segment for line in lines})
    for segment in segments:
        yield _Group(
            f"segment {segment}" if len(segments) > 1 else "nights",
            _SEGMENTS[(segment - 1) % len(_SEGMENTS)],
            [_point(line, line.segment == segment and not line.excluded) for line in lines],
            {},
        )
    for status, colour in ((Status.REGRESSION, _REGRESSION), (Status.SLOWER, _SLOWER)):
        fallen = [_point(line, line.status == status.value and not line.excluded) for line in lines]
        yield _Group(status.value, colour, fallen, {"stroke": False, "dots_size": 7})
    excluded = [_point(line, line.excluded) for line in lines]
    yield _Group("excluded", _EXCLUDED, excluded, {"stroke": False, "dots_size": 5})


def _range(lines: Sequence[NightLine]) -> tuple[float, float] | None:
    known = [line.samples_per_s for line in lines if line.samples_per_s is not None]
    if not known:
        return None
    half = statistics.median(known) * _LEAST_SPAN / 2
    middle = (min(known) + max(known)) / 2
    return min(min(known), middle - half), max(max(known), middle + half)


def _point(line: NightLine, shown: bool) -> dict[str, Any] | None:
    if not shown or line.samples_per_s is None:
        return None
    return {"value": line.samples_per_s, "label": _shortened(f"{line.session}, {line.build}: {line.status}")}
