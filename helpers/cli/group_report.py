"""``perfgate group-report DIR``: DLPerf's report over repeated runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TextIO

from helpers.cli.import_log import AUTO, EXIT_UNREAD, add_settings, asked_of, print_error
from helpers.cli.loading import check_place, width_of, write_answer
from helpers.errors import printable
from helpers.policy import EXIT_OK

NAME = "group-report"
HELP = "Report repeated runs in folders by cards (1n1g, 4n8g) as DLPerf does: average, median and speed-up"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="Folders by cards, with a log for each run in them")
    parser.add_argument("--format", default=AUTO, metavar="NAME", help="Read them as NAME. Default: found from content")
    parser.add_argument("--rule", default=AUTO, metavar="NAME", help="Take NAME. Default: their publisher's")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write DLPerf's result to FILE too")
    add_settings(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print DLPerf's text and a table; 4 where a log gives no figure. Raises LogError where there is no group."""
    from helpers.importing.group import read_groups
    from helpers.report.group_text import render_dlperf, render_groups, result_of

    check_place("--json", arguments.json)
    report = read_groups(arguments.folder.expanduser(), asked_of(arguments), arguments.format, arguments.rule)
    for lines in report.unread:
        print_error(NAME, lines)
    if report.groups:
        print(render_dlperf(report), file=out)
        if arguments.json is not None:
            write_answer("--json", arguments.json, json.dumps(result_of(report), allow_nan=False) + "\n")
            print(printable(f"Saving result to {arguments.json}"), file=out)
        print("\n" + render_groups(report, width_of(out)), file=out)
        for note in report.notes:
            print(printable(note), file=out)
    return EXIT_UNREAD if report.unread else EXIT_OK
