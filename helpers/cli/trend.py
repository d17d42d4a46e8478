"""``perfgate trend``: steps and slow drift over the nights in the history. Reported, never a gate."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from helpers.cli.loading import add_history, history_of, width_of, write_answer
from helpers.errors import ConfigError
from helpers.report.text import printable
from helpers.report.trend_text import render_trends, trends_record
from helpers.trend.otava import Sensitivity, TrendError, change_points
from helpers.trend.series import Series, series_of
from helpers.trend.trends import find_trends

if TYPE_CHECKING:
    from helpers.history import History

NAME = "trend"
HELP = "Find steps and slow drift over the nights in the history, with the builds they lie between"
EXIT_NOT_JUDGED = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cases", metavar="CASE", nargs="*", help="Look at this case, or at those of a pattern. Default: all"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the answer to FILE for programs, too")
    parser.add_argument("--last", type=_nights, metavar="N", help="Look at the newest N nights alone")
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the trends; 6 when Otava gives no answer. Raises SuiteError on a case that history does not know."""
    sensitivity = Sensitivity()
    with history_of(arguments) as history:
        series = _series(history, arguments.cases, arguments.last)
        known = history.acknowledgements()
    try:
        trends = find_trends(series, known, lambda several: change_points(several, sensitivity), sensitivity)
    except TrendError as error:
        print(f"perfgate {NAME}: error: {printable(str(error))}", file=sys.stderr)
        return EXIT_NOT_JUDGED
    if arguments.json is not None:
        record = trends_record(trends, sensitivity)
        text = json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"
        write_answer("--json", arguments.json, text)
    print(render_trends(trends, sensitivity, width_of(out)), file=out)
    return 0


def _series(history: History, patterns: Sequence[str], last: int | None) -> tuple[Series, ...]:
    """The series of the cases that fit one of ``patterns``, or of all. Raises ConfigError where a pattern fits none."""
    case_ids: dict[str, None] = {}
    for pattern in patterns or ["*"]:
        found = history.cases(pattern)
        if patterns and not found:
            raise ConfigError("perfgate trend", field="case", got=pattern, expected="a case that the history holds")
        case_ids.update((line.case_id, None) for line in found)
    excluded = {each.uuid for each in history.exclusions() if each.subject == "result"}
    return tuple(
        series for case_id in sorted(case_ids) for series in series_of(history.series(case_id), excluded, last)
    )


def _nights(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of nights: expected 1 or more")
    return int(text)
