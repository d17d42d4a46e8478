"""Drawings that compare cases: the efficiency of several cards, and the ratios of frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import svg

from helpers.common.words import counted
from helpers.drawing.axes import LABEL_HEIGHT, Scale, drawing, grid, label, level_line, line, round_numbers, span_of
from helpers.report.scaling import Scaling
from helpers.report.side_by_side import NAMES
from helpers.session.side_by_side.comparison import ConfigurationOutcome, Ratio

_WIDTH, _HEIGHT = 380, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 370, 22, 168

_RATIOS_WIDTH, _FROM, _TO = 760, 330, 630
_LINE = 24
# An interval that extends beyond the ratios by more than this factor is cut at the edge.
_FAR = 1.5


def draw_efficiency(scaling: Scaling) -> svg.SVG | None:
    """A bar for each number of cards, as high as the share of the ideal speed-up; None without a speed-up of several
    cards."""
    bars = [(row, row.speed_up, row.speed_up / row.cards) for row in scaling.rows if row.speed_up is not None]
    if not any(row.cards > 1 for row, _, _ in bars):
        return None
    most = max(100 * efficiency for _, _, efficiency in bars)
    # Each bar has a text above it.
    heights, places = Scale(0, most, _BOTTOM, _TOP + LABEL_HEIGHT), Scale(0, len(bars), _LEFT, _RIGHT)
    parts: list[svg.Element] = [label("efficiency", 0, _TOP - 10), *grid(heights, _LEFT, _RIGHT, "%")]
    for place, (row, speed_up, efficiency) in enumerate(bars):
        middle, top = places(place + 0.5), heights(100 * efficiency)
        width, height = min(50.0, round(0.6 * (places(1) - places(0)), 1)), round(_BOTTOM - top, 1)
        kind = ["bar", *(["doubtful"] if row.marks else [])]
        parts.append(svg.Rect(x=round(middle - width / 2, 1), y=top, width=width, height=height, class_=kind))
        parts.append(label(f"{speed_up:.2f}×{'*' if row.marks else ''}", middle, top - 4, "m"))
        parts.append(label(counted(row.cards, "card"), middle, _BOTTOM + 16, "m"))
    in_words = "; ".join(
        f"{row.cards} cards {speed_up:.2f} times as fast as one, {efficiency:.1%}"
        for row, speed_up, efficiency in bars[1:]
    )
    return drawing(_WIDTH, _HEIGHT, f"speed-up and efficiency: {in_words}", parts)


def draw_ratios(rows: Sequence[ConfigurationOutcome]) -> svg.SVG | None:
    """The speed of every other framework over Paddle's, with 95% intervals and published ratios; None if none was
    measured."""
    lines = [
        (f"{NAMES[cell.framework]}, {row.name}", cell.ratio, cell.published)
        for row in rows
        for cell in row.cells
        if cell.ratio is not None
    ]
    if not lines:
        return None
    centres = [1.0, *(ratio.centre for _, ratio, _ in lines)]
    ends = [end for _, ratio, published in lines for end in (ratio.low, ratio.high, published) if end is not None]
    near = [end for end in ends if min(centres) / _FAR <= end <= max(centres) * _FAR]
    ratios = Scale(*span_of([*centres, *near], 0.1), _FROM, _TO)
    bottom = _LINE * len(lines) + 20
    parts: list[svg.Element] = []
    for value in round_numbers(ratios.low, ratios.high, 6):
        x = ratios(value)
        parts += [line([(x, 12), (x, bottom)], "grid"), label(f"{value:g}", x, bottom + 14, "m")]
    parts.append(line([(ratios(1), 12), (ratios(1), bottom)], "segment"))
    parts.append(label("as fast as Paddle", ratios(1), 8, "m"))
    for place, each in enumerate(lines):
        parts += _ratio(*each, ratios, 30 + _LINE * place)
    in_words = "; ".join(f"{name} {ratio.centre:.3f}" for name, ratio, _ in lines)
    return drawing(_RATIOS_WIDTH, bottom + 20, f"speed over Paddle's: {in_words}", parts)


def _ratio(name: str, ratio: Ratio, published: float | None, ratios: Scale, y: float) -> Iterator[svg.Element]:
    yield label(name, 0, y + 4, longest=56)
    yield level_line(y, ratios.within(ratio.low), ratios.within(ratio.high), "interval")
    if published is not None:
        at = ratios.within(published)
        yield line([(at, y - 9), (at, y + 9)], "level", "published")
    yield svg.Circle(cx=ratios(ratio.centre), cy=y, r=4, class_=["ratio"])
    yield label(f"{ratio.centre:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]", _TO + 8, y + 4)
