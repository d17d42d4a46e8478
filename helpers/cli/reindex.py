"""``perfgate reindex``: make the history again from the run folders, which are its source."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TextIO

from helpers.cli.loading import add_history, history_url
from helpers.errors import ConfigError
from helpers.history import open_history
from helpers.policy import EXIT_NOT_JUDGED, EXIT_OK

NAME = "reindex"
HELP = "Read every run folder into the history again; what is there already stays"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="?", metavar="RUNS", help="Read this folder. Default: --runs-dir")
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Index the folders; 6 where a file could not be taken, and where there was none.

    Raises ConfigError without a folder, HistoryError.
    """
    folder = (arguments.runs or arguments.runs_dir).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(f"run folder {folder}", got="no folder", expected="one with sessions in it")
    with open_history(history_url(arguments)) as history:
        found = history.reindex(folder)
        url = history.url
    for each in found.refused:
        print(f"not taken: {each}", file=out)
    told = f"{found.sessions} sessions, {found.results} results, {found.nights} nights"
    print(f"{told} of {folder} are in {url}; {len(found.refused)} files not taken", file=out)
    return EXIT_NOT_JUDGED if found.refused or not found.results else EXIT_OK
