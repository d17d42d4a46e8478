"""What several commands do: load the suite that the options name, and find a case in it."""

from __future__ import annotations

import argparse
import difflib
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

from helpers.case import Case
from helpers.errors import ConfigError
from helpers.launch.launcher import ROOT
from helpers.plan import SuiteCase
from helpers.suite import Suite, SuiteOptions

_NEAREST = 3
_WIDEST, _NARROWEST = 100, 60


def add_format(parser: argparse.ArgumentParser) -> None:
    """``--json``, or ``--format`` for text and Markdown; both at once are refused."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="Print JSON")
    group.add_argument(
        "--format", choices=("text", "markdown"), default="text", help="Print text (default) or Markdown"
    )


def width_of(out: TextIO) -> int:
    """Columns to write in: the terminal's (or COLUMNS) where that is narrower than 100, but not below 60."""
    columns = shutil.get_terminal_size((_WIDEST, 0)).columns if out is sys.stdout else _WIDEST
    return max(_NARROWEST, min(_WIDEST, columns))


def load_suite(arguments: argparse.Namespace) -> Suite:
    """The suite of ``--config`` and ``--baselines``. Raises SuiteError where a file of them cannot be read."""
    return Suite.load(
        SuiteOptions(
            config_path=arguments.config,
            baselines_folder=arguments.baselines,
            runs_folder=ROOT / "runs",
            session="asked",
        )
    )


def find_cases(cases: Iterable[SuiteCase], case_id: str, target: str | None) -> tuple[SuiteCase, ...]:
    """The case of this id on each of its targets, or on ``target``.

    Raises ConfigError, with the nearest ids, where there is none.
    """
    cases = tuple(cases)
    found = tuple(each for each in cases if each.case.id == case_id and target in (None, each.target))
    if found:
        return found
    if targets := sorted({each.target for each in cases if each.case.id == case_id}):
        raise ConfigError(f"case {case_id}", field="target", got=target, expected="one of " + ", ".join(targets))
    known = list(dict.fromkeys(each.case.id for each in cases if target in (None, each.target)))
    nearest = "Nearest: " + ", ".join(difflib.get_close_matches(case_id, known, _NEAREST, cutoff=0.0))
    try:
        Case.parse(case_id)
    except ConfigError as error:
        raise ConfigError(f"no case {case_id!r}: {error}. {nearest}") from error
    raise ConfigError("case id", got=case_id, expected="a case of perf.yaml or baselines/published", remedy=nearest)
