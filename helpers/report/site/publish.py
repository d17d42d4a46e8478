"""Writes the site of a history: every page anew, each whole, and only over files that the suite wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.common.files import of_everybody, open_regular, write_whole
from helpers.history.waiting import file_lock
from helpers.report.site.content import site_of
from helpers.report.site.pages import MARKER, Look, files_of
from helpers.trainers.contract.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from helpers.history.history import History

LOCK = "publish.lock"
FOLDERS = ("badges", "cases", "nights")
_ENDINGS = (".html", ".svg", ".xml", ".css", ".js")
_LOCK_SECONDS = 5
_MARKER_WITHIN = 1024


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
    try:
        with file_lock(folder / LOCK, _LOCK_SECONDS):
            site = site_of(history)
            files = files_of(site, history, look)
            removed = _write(folder, files)
    except TimeoutError as error:
        got = f"{folder}, into which another process publishes"
        raise ConfigError("perfgate publish", field="FOLDER", got=got, expected="one process at a time") from error
    return Published(site.nights, len(files), removed)


def _write(folder: Path, files: Mapping[str, str]) -> int:
    """Write all files, and remove those of an earlier site. Nothing is written if a name is not free. Returns how many
    were removed."""
    for name in FOLDERS:
        if (folder / name).is_symlink():
            raise _not_ours(f"{folder / name}, a link")
    for path in files:
        place = folder / path
        if (place.exists() or place.is_symlink()) and not _is_of_suite(place):
            raise _not_ours(f"{place}, which the suite did not write")
    for name in FOLDERS:
        (folder / name).mkdir(mode=0o775, exist_ok=True)
    for path, text in files.items():
        write_whole(folder / path, text.encode("utf-8", "backslashreplace"))
    earlier = [path for parent in (folder, *(folder / name for name in FOLDERS)) for path in parent.iterdir()]
    gone = [
        path
        for path in earlier
        if path.suffix in _ENDINGS and path.relative_to(folder).as_posix() not in files and _is_of_suite(path)
    ]
    for each in gone:
        each.unlink()
    return len(gone)


def _is_of_suite(path: Path) -> bool:
    """Whether the suite wrote the file; never true for a link or a device."""
    try:
        with open_regular(path) as file:
            return MARKER.encode() in file.read(_MARKER_WITHIN)
    except OSError:
        return False


def _not_ours(got: str) -> ConfigError:
    return ConfigError(
        "perfgate publish",
        field="FOLDER",
        got=got,
        expected="a folder for the site alone",
        remedy="Name an empty or a new folder",
    )
