"""``perfgate gate``: judges a build in one command. This process becomes pytest, so exit code, signals and last line
are pytest's."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from helpers.commands.loading import add_build, add_data, history_option, say
from helpers.common.files import of_everybody
from helpers.common.own_folder import is_installed, own_folder
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError

NAME = "gate"
HELP = "Judge a build by the cases that perf.yaml lists for this machine; the last line says whether the gate passed"
EXITS = {
    0: "the gate is passed",
    1: "a case is REGRESSION, SLOWER or BELOW_PUBLISHED; 1 outranks 6",
    2: "the session was interrupted",
    5: "nothing was collected",
    6: "something could not be judged, so the gate is not passed",
}

RESULTS, SUMMARY, PAGE, JUNIT = "results.json", "results.md", "night.html", "junit.xml"
# Options with a value that are passed to pytest under the same name.
_PASSED_ON = (
    "build",
    "reference_build",
    "data",
    "runs_dir",
    "history",
    "session",
    "resume",
    "wait_for_quiet",
)

Execute = Callable[[str, list[str]], object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_build(parser)
    parser.add_argument(
        "--reference-build",
        metavar="BUILD",
        help="Confirm suspects against the reference build BUILD, named as for --build. Default: the pinned one",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("gate"),
        metavar="FOLDER",
        help=f"Write {RESULTS}, {SUMMARY}, {PAGE} and {JUNIT} into FOLDER. Default: gate",
    )
    add_data(parser)
    parser.add_argument("--runs-dir", metavar="FOLDER", help="Keep each run's logs and result under FOLDER")
    parser.add_argument("--history", metavar="URL", type=history_option, help="Keep every result in this database")
    parser.add_argument("--session", metavar="NAME", help="Name this session's folder NAME")
    parser.add_argument(
        "--resume",
        metavar="SESSION",
        nargs="?",
        const="",
        help="Go on with the night SESSION, measuring only what it lacks. Without a name: the newest one",
    )
    parser.add_argument(
        "--wait-for-quiet",
        metavar="MINUTES",
        help="Wait up to MINUTES in all until others leave the machine alone, before cases and after disturbed runs",
    )
    parser.add_argument(
        "pytest_options", metavar="-- PYTEST_OPTION", nargs="*", help="Pass options on to pytest, as -n 2"
    )


def run(arguments: argparse.Namespace, out: TextIO, execute: Execute = os.execv) -> int:
    """Become the gate's pytest session. Raises ConfigError or OSError if its reports cannot be written."""
    folder: Path = arguments.output.expanduser().absolute()
    if folder.is_file():
        raise ConfigError("--output", got=str(folder), expected="a folder", remedy="Name another place")
    folder.mkdir(mode=0o775, parents=True, exist_ok=True)
    if note := of_everybody(folder):
        say(f"note: {note}")
    for name in (RESULTS, SUMMARY, PAGE, JUNIT):
        # If this night is killed, the verdict of an earlier night must not remain.
        (folder / name).unlink(missing_ok=True)
    out.flush()
    execute(sys.executable, [sys.executable, *words(arguments, folder)])
    raise AssertionError("exec returned")


def words(arguments: argparse.Namespace, folder: Path) -> list[str]:
    """The arguments of Python for the gate's pytest session, whose reports go into ``folder``."""
    # With "=", a value that begins with a hyphen is not taken for an option.
    given = [(name.replace("_", "-"), getattr(arguments, name)) for name in _PASSED_ON]
    return [
        *("-m", "pytest", str(ROOT / "perf_tests"), "--gate"),
        # Beside an installed suite pytest must write nothing.
        *([f"--override-ini=cache_dir={own_folder() / '.pytest_cache'}"] if is_installed() else []),
        *([f"--perf-config={config}"] if (config := arguments.config.expanduser().absolute()).exists() else []),
        f"--baselines-dir={arguments.baselines.expanduser().absolute()}",
        *(f"--{name}={value}" for name, value in given if value is not None),
        *(f"--results={folder / name}" for name in (RESULTS, SUMMARY, PAGE)),
        f"--junitxml={folder / JUNIT}",
        *arguments.pytest_options,
    ]
