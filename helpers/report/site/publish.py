"""Writes the site of a history: every page anew, each whole, and only into a folder that is the site's alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.common.files import of_everybody, write_whole
from helpers.report.site.content import site_of
from helpers.report.site.pages import Look, files_of
from helpers.trainers.contract.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from helpers.history.history import History

# A folder that has this file is a site's.
OWN_FILE = "perfgate-site.txt"
FOLDERS = ("badges", "cases", "nights")


@dataclass(frozen=True)
class Published:
    """How many nights the site shows, how many files it has, and how many of an earlier one were removed."""

    nights: int
    files: int
    removed: int


def publish(history: History, folder: Path, look: Look, say: Callable[[str], None]) -> Published:
    """Write the site of the history into ``folder``. Raises ConfigError, HistoryError and OSError."""
    folder.mkdir(mode=0o775, parents=True, exist_ok=True)
    if note := of_everybody(folder):
        say(f"note: {note}")
    site = site_of(history)
    files = files_of(site, history, look)
    return Published(site.nights, len(files), _write(folder, files))


def _write(folder: Path, files: Mapping[str, str]) -> int:
    """Write all files, and remove those of an earlier site. Returns how many were removed."""
    links = [name for name in FOLDERS if (folder / name).is_symlink()]
    if links or (any(folder.iterdir()) and not (folder / OWN_FILE).is_file()):
        raise ConfigError(
            "perfgate publish",
            field="FOLDER",
            got=f"{folder}, which has {f'the link {links[0]}' if links else 'files of others'}",
            expected="a folder for the site alone",
            remedy="Name an empty or a new folder",
        )
    write_whole(folder / OWN_FILE, b"perfgate publish writes this folder anew each time.\n")
    for name in FOLDERS:
        (folder / name).mkdir(mode=0o775, exist_ok=True)
    for path, text in files.items():
        write_whole(folder / path, text.encode("utf-8", "backslashreplace"))
    gone = [path for name in FOLDERS for path in (folder / name).iterdir() if f"{name}/{path.name}" not in files]
    for each in gone:
        each.unlink()
    return len(gone)
