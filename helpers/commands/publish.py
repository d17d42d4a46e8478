"""``perfgate publish FOLDER``: writes all nights of the history as a site of static pages."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from helpers.commands.loading import add_history, history_of, say
from helpers.common.words import counted
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import ConfigError, printable

NAME = "publish"
HELP = "Write all nights of the history as static pages, with a feed of regressions and badges"
EXITS = {
    0: "the site shows all that the history has",
}
_TITLE = "perfgate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="Write the site into FOLDER, which is for the site alone"
    )
    parser.add_argument("--title", default=_TITLE, metavar="TEXT", help=f"Name the site TEXT. Default: {_TITLE}")
    parser.add_argument(
        "--url",
        type=_address,
        metavar="URL",
        help="Begin the feed's links with URL, the site's address. Default: relative links",
    )
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Write the site. Raises SuiteError if the history or the folder cannot be used."""
    # Not imported at the top: no other command needs the templates and drawings.
    from helpers.report.site.pages import Look, publish

    began = time.monotonic()
    folder = arguments.folder.expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise ConfigError("perfgate publish", field="FOLDER", got=f"{folder}, a file", expected="a folder")
    with history_of(arguments) as history:
        made = publish(history, folder, Look(arguments.title, arguments.url or ""), say)
    seconds = time.monotonic() - began
    text = f"{made.files} files of {counted(made.nights, 'night')} written, {made.removed} removed"
    print(f"{text}, {seconds:.1f} s", file=out)
    print(printable(f"look at it: {folder / 'index.html'}"), file=out)
    return EXIT_OK


def _address(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.netloc) and text.isprintable()
    except ValueError:
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r} is no address: expected http://… or https://…")
    return text
