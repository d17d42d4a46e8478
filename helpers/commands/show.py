"""``perfgate show CASE``: one case in words, its settings with their sources, and what this machine says of it."""

from __future__ import annotations

import argparse
import json
from typing import TextIO

from helpers.commands.loading import find_cases, load_suite, width_of
from helpers.commands.sheet import sheet_of
from helpers.commands.show_text import render
from helpers.plan.matrix import TARGETS
from helpers.plan.overrides import parse_overrides

NAME = "show"
HELP = "Show a case: published figures, protocol, every setting with its source, its command, and whether it runs here"

# 1: first format.
SHOW_SCHEMA_VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="Case id, as pytest --collect-only and perfgate cases list them")
    parser.add_argument("--target", choices=TARGETS, help="Show the case of this target alone")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="Show settings and command as on this device")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="Change one training setting and say what that does to a result. Can be given several times",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print one sheet for each target that has the case. Raises SuiteError on an unknown case or override."""
    overrides = parse_overrides(arguments.overrides)
    suite = load_suite(arguments)
    found = find_cases(suite.cases, arguments.case, arguments.target)
    sheets = [sheet_of(suite, each, overrides, arguments.device) for each in found]
    if arguments.json:
        record = {"schema_version": SHOW_SCHEMA_VERSION, "cases": [sheet.to_record() for sheet in sheets]}
        print(json.dumps(record, indent=1, sort_keys=True, allow_nan=False, default=dict), file=out)
    else:
        print("\n\n\n".join(render(sheet, width_of(out)) for sheet in sheets), file=out)
    return 0
