"""What ``perfgate compare`` prints: a table, each case's reason below it, and the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from helpers.compare import Comparison, evidence_text
from helpers.compare_sides import Side
from helpers.report.text import hanging, printable
from helpers.stats import number
from helpers.verdict import Status

_HEADINGS = ("A images/s", "B images/s", "effect", "95% interval", "by", "evidence", "status")
# What the reason below repeats goes first where a line is too narrow.
_DISPENSABLE = ("by", "evidence", "95% interval")
_INDENT = "    "


def render_comparisons(found: Sequence[Comparison], about: Sequence[str], width: int) -> str:
    """``about``: lines on what A and B are, and what was left out."""
    rows = [_cells(each) for each in found]
    headings, rows = _fitting(rows, width)
    widths = _widths(headings, rows)
    lines = [line for told in about for line in hanging(told, width, "", _INDENT)]
    lines += ["", "case", _line(headings, widths), "-" * width]
    for each, row in zip(found, rows, strict=True):
        lines += [printable(f"{each.case_id} [{each.target}]"), _line(row, widths)]
        lines += hanging(each.reason.message, width, _INDENT, _INDENT)
    return "\n".join([*lines, "", comparison_summary(found)])


def _fitting(rows: Sequence[tuple[str, ...]], width: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The headings and rows without the columns that ``width`` has no room for."""
    lines = [_HEADINGS, *rows]
    for heading in _DISPENSABLE:
        widths = _widths(lines[0], lines[1:])
        if max(len(_line(line, widths)) for line in lines) <= width:
            break
        column = lines[0].index(heading)
        lines = [(*line[:column], *line[column + 1 :]) for line in lines]
    return lines[0], lines[1:]


def _widths(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]


def comparison_summary(found: Sequence[Comparison]) -> str:
    """``3 cases compared: 1 REGRESSION, 2 PASS``, worst first; what could not be compared is told beside it."""
    counts = Counter(each.status for each in found)
    told = [f"{counts[status]} {status.value}" for status in Status if counts[status]]
    compared = sum(bool(each.basis) for each in found)
    return f"{compared} of {len(found)} case{'s' if len(found) != 1 else ''} compared: {', '.join(told) or 'none'}"


def comparison_record(each: Comparison) -> dict[str, Any]:
    """One comparison as plain values for JSON."""
    record = asdict(each)
    record["status"] = each.status.value
    return record


def _cells(each: Comparison) -> tuple[str, ...]:
    interval = "-" if each.low is None or each.high is None else f"{each.low:+.2%} … {each.high:+.2%}"
    by = {"pairs": f"{each.pairs} pairs", "nights": "nights apart"}.get(each.basis, "-")
    strongest = max((each.e_drop, each.e_gain), key=lambda value: value or 0.0)
    return (
        _side(each.a),
        _side(each.b),
        "-" if each.effect is None else f"{each.effect:+.2%}",
        interval,
        by,
        evidence_text(strongest),
        each.status.value,
    )


def _side(side: Side) -> str:
    if side.images_per_s is None:
        return "-"
    return f"{number(side.images_per_s)} (n={side.runs}/{side.nights})"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.rjust(width) for cell, width in zip(cells[:-1], widths[:-1], strict=True)]
    return (_INDENT + "  ".join([*padded, cells[-1]])).rstrip()
