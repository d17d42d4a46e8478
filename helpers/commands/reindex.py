"""``perfgate reindex``: fills the history again from the run folders and the decisions beside them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TextIO

from helpers.commands.loading import add_history, history_url, say
from helpers.common.masking import without_password
from helpers.history import default_url, open_history
from helpers.history.session_memory import write_case
from helpers.history.unwritten import Unwritten
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.trainers.contract.errors import ConfigError, printable

NAME = "reindex"
HELP = "Read every run and decision into the history again; what the history has already stays"
EXITS = {
    0: "everything is in the history",
    6: "a file could not be taken, or there was none",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        type=Path,
        nargs="?",
        metavar="RUNS",
        help="Read this folder, such as a copy, into the history of --history. Default: --runs-dir",
    )
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Index the folders. Exit status 6 if a file could not be read, and if there was none.

    Raises ConfigError without a folder and for another folder than --runs-dir without --history, HistoryError.
    """
    folder = (arguments.runs or arguments.runs_dir).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(f"run folder {folder}", got="no folder", expected="one with sessions in it")
    url = history_url(arguments)
    _refuse_unasked(folder, url, arguments)
    say(f"{folder} goes into {without_password(url)}")
    unwritten = Unwritten.of(folder, url)
    with open_history(url, runs_folder=folder) as history:
        found = history.reindex(folder)
        lacking = [why for case in unwritten.cases() if (why := write_case(history, unwritten, case))]
    refused = [*found.refused, *(why for why in lacking if not any(each in why for each in found.refused))]
    for each in refused:
        print(f"not taken: {printable(each)}", file=out)
    text = f"{found.sessions} sessions, {found.results} results, {found.nights} nights, {found.decisions} decisions"
    print(printable(f"{text} of {folder} are in {history.url}; {len(refused)} files not taken"), file=out)
    return EXIT_NOT_JUDGED if refused or not (found.results or found.decisions) else EXIT_OK


def _refuse_unasked(folder: Path, url: str, arguments: argparse.Namespace) -> None:
    """Raises ConfigError for a folder of other runs whose history is not named: later nights would be compared with
    what it holds."""
    if arguments.history is None and folder.resolve() != arguments.runs_dir.expanduser().resolve():
        raise ConfigError(
            "perfgate reindex",
            field="--history",
            got=f"none, for {folder}, which is not this checkout's {arguments.runs_dir}",
            expected="the history that these runs go into",
            remedy=f"For a history of their own: --history {default_url(folder)}; "
            f"to compare later nights with them: --history {without_password(url)}",
        )
