"""DLPerf's group report in its own words (``extract_*_logs.py``), and a table for people."""

from __future__ import annotations

import pprint
from collections.abc import Sequence

from helpers.importing.group import Group, Report
from helpers.report.text import hanging, printable

_HEADINGS = ("folder", "cards", "batch", "runs", "median", "average", "spread", "speed-up", "of linear")
_GAP = "  "
_INDENT = "  "


def result_of(report: Report) -> dict[str, dict[str, dict[str, float | int]]]:
    """What DLPerf's scripts print and write as JSON: by model and folder. A speed-up needs a run on one card."""
    result: dict[str, dict[str, dict[str, float | int]]] = {}
    for group in report.groups:
        entry: dict[str, float | int] = {
            "average_speed": group.average,
            "batch_size_per_device": group.batch_size_per_card,
            "median_speed": group.median,
        }
        if (speedup := report.speedup(group)) is not None:
            entry["speedup"] = speedup
        result.setdefault(group.model, {})[group.folder] = entry
    return result


def render_dlperf(report: Report) -> str:
    """A line a log, with the speeds of its group so far, then the result."""
    lines = []
    for group in report.groups:
        speeds: dict[int, float] = {}
        for run in group.runs:
            speeds[run.number] = run.images_per_s
            lines.append(printable(f"{run.path} {speeds}"))
    return "\n".join([*lines, pprint.PrettyPrinter(indent=1).pformat(result_of(report))])


def render_groups(report: Report, width: int) -> str:
    """A table of each model's groups; below it what is not as it should be."""
    parts = []
    for model in dict.fromkeys(each.model for each in report.groups):
        groups = [each for each in report.groups if each.model == model]
        rules = ", ".join(dict.fromkeys(each.rule for each in groups))
        precisions = ", ".join(dict.fromkeys(each.precision for each in groups))
        title = f"{model} {precisions}: images/s by {rules}; spread: the run farthest from the median"
        lines = [*hanging(title, width, "", _INDENT), *_table(report, groups)]
        for each in groups:
            for told in filter(None, (each.shortfall, report.unlike(each))):
                lines += hanging(f"{each.folder}: {told}", width, _INDENT, _INDENT * 2)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _table(report: Report, groups: Sequence[Group]) -> list[str]:
    rows = [_HEADINGS, *(_cells(report, each) for each in groups)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [_line(row, widths) for row in rows]
    return [lines[0], "-" * max(len(line) for line in lines), *lines[1:]]


def _cells(report: Report, group: Group) -> tuple[str, ...]:
    speedup = report.speedup(group)
    return (
        printable(group.folder),
        str(group.cards),
        str(group.batch_size_per_card),
        str(len(group.runs)),
        f"{group.median:.2f}",
        f"{group.average:.2f}",
        "-" if group.spread is None else f"{group.spread:.2%}",
        "-" if speedup is None else f"{speedup:.2f}",
        "-" if speedup is None else f"{speedup / group.cards:.0%}",
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return _GAP.join([cells[0].ljust(widths[0]), *padded]).rstrip()
