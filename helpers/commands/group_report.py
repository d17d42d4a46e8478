"""``perfgate group-report DIR``: DLPerf's report over repeated runs."""

from __future__ import annotations

import argparse
import json
import pprint
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from helpers.commands.import_log import AUTO, EXIT_UNREAD, add_log_format, add_settings, asked_of, print_error
from helpers.commands.loading import JSON, Formats, add_file_formats, check_files, text_output, width_of, write_files
from helpers.judging.rates import rate_unit_of_model
from helpers.report.table import Align, Column, Table
from helpers.report.text import hanging
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import printable

if TYPE_CHECKING:
    # Not imported at run time: it would import numpy, even for commands that read no log.
    from helpers.logs.importer import Group, GroupReport

NAME = "group-report"
HELP = "Report repeated runs in folders by cards (1n1g, 4n8g) as DLPerf does: average, median and speed-up"
EXITS = {
    0: "every log gives a figure",
}
_INDENT = "  "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="Folder of folders by cards, with a log for each run in them"
    )
    add_log_format(parser)
    parser.add_argument(
        "--rule", default=AUTO, metavar="NAME", help="Compute the figures by rule NAME. Default: their publisher's"
    )
    add_file_formats(parser, FILES)
    add_settings(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print DLPerf's text and a table. Exit status 4 if a log gives no figure. Raises LogError if there is no group."""
    from helpers.logs.importer import read_groups

    check_files(arguments, FILES)
    output = text_output(arguments, FILES, out)
    report = read_groups(arguments.folder.expanduser(), asked_of(arguments), arguments.log_format, arguments.rule)
    for lines in report.unread:
        print_error(NAME, lines)
    if report.groups:
        print(render_dlperf(report), file=output)
        write_files(arguments, FILES, report, out)
        if arguments.json is not None:
            # A line that DLPerf prints too.
            print(printable(f"Saving result to {arguments.json}"), file=output)
        print("\n" + render_groups(report, width_of(out)), file=output)
        for note in report.notes:
            print(printable(note), file=output)
    return EXIT_UNREAD if report.unread else EXIT_OK


def result_of(report: GroupReport) -> dict[str, dict[str, dict[str, float | int]]]:
    """The result as in the JSON of DLPerf's scripts: by model and folder. A speed-up needs a run on one card."""
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


def render_json(report: GroupReport, _width: int) -> str:
    """DLPerf's result file, on one line like DLPerf's own."""
    return json.dumps(result_of(report), allow_nan=False)


FILES: Formats[GroupReport] = {JSON: render_json}


def render_dlperf(report: GroupReport) -> str:
    """One line for each log, with the speeds of its group so far; then the result."""
    lines = []
    for group in report.groups:
        speeds: dict[int, float] = {}
        for run in group.runs:
            speeds[run.number] = run.samples_per_s
            lines.append(printable(f"{run.path} {speeds}"))
    return "\n".join([*lines, pprint.PrettyPrinter(indent=1).pformat(result_of(report))])


def render_groups(report: GroupReport, width: int) -> str:
    """A table of each model's groups, with the warnings below."""
    parts = []
    for model in dict.fromkeys(each.model for each in report.groups):
        groups = [each for each in report.groups if each.model == model]
        rules = ", ".join(dict.fromkeys(each.rule for each in groups))
        precisions = ", ".join(dict.fromkeys(each.precision for each in groups))
        unit = rate_unit_of_model(model)
        title = f"{model} {precisions}: {unit} by {rules}; spread: the run farthest from the median"
        lines = [*hanging(title, width, "", _INDENT), *_table(report, groups)]
        for each in groups:
            for text in filter(None, (each.shortfall, report.unlike(each))):
                lines += hanging(f"{each.folder}: {text}", width, _INDENT, _INDENT * 2)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _table(report: GroupReport, groups: Sequence[Group]) -> list[str]:
    grid = Table.of(_columns(report), groups).grid()
    return [grid.heading, "-" * grid.text_width, *grid.lines]


def _columns(report: GroupReport) -> tuple[Column[Group], ...]:
    def speedup(group: Group) -> str:
        return "-" if (times := report.speedup(group)) is None else f"{times:.2f}"

    def of_linear(group: Group) -> str:
        return "-" if (times := report.speedup(group)) is None else f"{times / group.cards:.0%}"

    return (
        Column("folder", lambda group: printable(group.folder)),
        Column("cards", lambda group: str(group.cards), Align.RIGHT),
        Column("batch", lambda group: str(group.batch_size_per_card), Align.RIGHT),
        Column("runs", lambda group: str(len(group.runs)), Align.RIGHT),
        Column("median", lambda group: f"{group.median:.2f}", Align.RIGHT),
        Column("average", lambda group: f"{group.average:.2f}", Align.RIGHT),
        Column("spread", lambda group: "-" if group.spread is None else f"{group.spread:.2%}", Align.RIGHT),
        Column("speed-up", speedup, Align.RIGHT),
        Column("of linear", of_linear, Align.RIGHT),
    )
