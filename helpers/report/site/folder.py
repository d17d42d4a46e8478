"""The folder of a site. Pages are written whole and only if they changed, and only files of the suite are removed.

``publish-state.json`` keeps what the pages were made of: the history's revision, the size and digest of each file, and
the entries of the lists of cases, sessions and builds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from helpers.history.listing import Revision
from helpers.machine.files import open_regular, read_limited, write_whole
from helpers.report.site.names import FOLDERS, STATE, UNFINISHED, is_ours
from helpers.trainers.contract.errors import ConfigError

# 1: first format. 2: the checksum is that of the content as it is written.
STATE_SCHEMA_VERSION = 2
_CONTENT = ', "content": '
# A text near the beginning of every file of the site, which distinguishes these files from others.
MARKER = "perfgate publish"
_MARKER_WITHIN = 1024
_MOST_STATE_BYTES = 256 * 2**20
_MOST_PAGE_BYTES = 64 * 2**20

Item = dict[str, Any]


@dataclass
class State:
    """The state of a published site."""

    revision: Revision = field(default_factory=Revision)
    # A digest of everything besides the history that determines the pages: templates, title and address of the site.
    form: str = ""
    # Size and digest of each file, by its path in the folder.
    files: dict[str, str] = field(default_factory=dict)
    # The entries of the lists, by the page to which an entry links.
    cases: dict[str, Item] = field(default_factory=dict)
    sessions: dict[str, Item] = field(default_factory=dict)
    builds: dict[str, Item] = field(default_factory=dict)
    machines: dict[str, Item] = field(default_factory=dict)
    # The entries of the feed, by the uuid of the night.
    regressions: dict[str, Item] = field(default_factory=dict)


_TABLES = ("files", "cases", "sessions", "builds", "machines", "regressions")


class StateError(Exception):
    """The state file cannot be used; the message says why."""


class ChangedFile(Exception):
    """A file of the site is not what the state says; the message names it."""


def read_state(folder: Path) -> State | None:
    """The state of an earlier publishing; None if there is none. Raises StateError if the file is not of this version
    or damaged."""
    path = folder / STATE
    if not path.exists() and not path.is_symlink():
        return None
    try:
        text = read_limited(path, _MOST_STATE_BYTES)
        record = json.loads(text)
        version = record.get("schema_version") if isinstance(record, dict) else None
        if version != STATE_SCHEMA_VERSION:
            raise ValueError(f"schema_version {version!r}, known is {STATE_SCHEMA_VERSION}")
        content = record["content"]
        if record["checksum"] != _checksum(text.partition(_CONTENT.encode())[2].removesuffix(b"}")):
            raise ValueError("its checksum does not fit its content")
        marks = content["revision"]
        pairs = {name: tuple(map(tuple, marks[name])) for name in ("acknowledgements", "starts", "calibrations")}
        return State(Revision(**{**marks, **pairs}), str(content["form"]), **{name: content[name] for name in _TABLES})
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise StateError(f"{path} is damaged or not of this version ({error})") from error


def _state_text(state: State) -> str:
    content = {
        "revision": asdict(state.revision),
        "form": state.form,
        **{name: getattr(state, name) for name in _TABLES},
    }
    text = json.dumps(content)
    head = json.dumps({"schema_version": STATE_SCHEMA_VERSION, "checksum": _checksum(text.encode())})
    return f"{head.removesuffix('}')}{_CONTENT}{text}}}"


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Folder:
    """The files of one publishing."""

    def __init__(self, folder: Path, files: Mapping[str, str], *, everything: bool) -> None:
        """``files`` are those of the earlier state. With ``everything``, each of them that is not written again is
        removed."""
        self._folder = folder
        self._earlier = files
        self.files: dict[str, str] = {} if everything else dict(files)
        # One name for all pages of a process, so that a killed process leaves at most one such file.
        self.temporary = ".publish.tmp"
        self.written = 0
        self.removed = 0
        self._made: set[Path] = set()
        self._begun = False

    def check(self, paths: Iterable[str]) -> None:
        """Check before anything is written that these names are free or belong to the site. Raises ConfigError if a
        file of another origin has one of them, or if a folder of the site is a link, which leads to other files."""
        for name in FOLDERS:
            if (self._folder / name).is_symlink():
                raise _not_ours(f"{self._folder / name}, a link")
        for path in paths:
            if path not in self._earlier:
                _check_ours(self._folder / path)

    def put(self, path: str, text: str) -> None:
        """Write a file, unless it is already there unchanged. Raises ConfigError if a file that is not the suite's has
        its name."""
        content = text.encode("utf-8", "backslashreplace")
        mark = _mark(content)
        self.files[path] = mark
        if self._earlier.get(path) == mark:
            return
        self._begin()
        place = self._folder / path
        if place.parent not in self._made:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(place.parent)
        if path not in self._earlier:
            _check_ours(place)
        # It does not wait for the disk: a file that a power cut leaves empty has another size, and is made again.
        temporary = self._folder / self.temporary
        # A link that somebody put there would lead to a file elsewhere.
        temporary.unlink(missing_ok=True)
        temporary.write_bytes(content)
        temporary.replace(place)
        self.written += 1

    def _begin(self) -> None:
        """Leave a mark that pages were written which the state does not know; ``write_state`` removes it."""
        if not self._begun:
            write_whole(self._folder / UNFINISHED, b"")
            self._begun = True

    def forget(self, path: str) -> bool:
        """Mark a file as no longer needed; it is removed at the end. Returns whether the site had it."""
        return self.files.pop(path, None) is not None

    def read(self, path: str) -> Any:
        """The published JSON of a page; None if there is none. Raises ChangedFile, and OSError if it is gone."""
        mark = self.files.get(path)
        if mark is None:
            return None
        content = read_limited(self._folder / path, _MOST_PAGE_BYTES)
        if _mark(content) != mark:
            raise ChangedFile(f"{path} was changed")
        return json.loads(content)

    def remove_rest(self, also: Iterable[str] = ()) -> None:
        """Remove the files of the earlier state and of ``also`` that are no longer needed."""
        for path in {*self._earlier, *also} - self.files.keys():
            place = self._folder / path
            if is_ours(path) and place.is_file() and is_of_suite(place):
                self._begin()
                place.unlink()
                self.removed += 1


def _mark(content: bytes) -> str:
    return f"{len(content)} {hashlib.sha256(content).hexdigest()[:16]}"


def gone_or_changed(folder: Path, files: Mapping[str, str]) -> list[str]:
    """The files that are missing, or whose size has changed."""
    found: dict[str, int] = {}
    # Texts, because a large site has tens of thousands of files, and a Path takes longer than the question.
    for place in {path.rpartition("/")[0] for path in files}:
        try:
            with os.scandir(folder / place) as entries:
                for each in entries:
                    if each.is_file(follow_symlinks=False):
                        path = f"{place}/{each.name}" if place else each.name
                        found[path] = each.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return [path for path, mark in files.items() if str(found.get(path)) != mark.partition(" ")[0]]


def files_of_suite(folder: Path) -> list[str]:
    """Files of an earlier publishing, found without its state."""
    paths = (path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file())
    return [name for path in paths if is_ours(name := path.relative_to(folder).as_posix()) and is_of_suite(path)]


def is_of_suite(path: Path) -> bool:
    """Whether the suite wrote the file; never true for a link or a device."""
    try:
        file = open_regular(path)
    except OSError:
        return False
    with file:
        return MARKER.encode() in file.read(_MARKER_WITHIN)


def write_state(folder: Path, state: State) -> None:
    """Write the state, when all pages are written. Raises OSError."""
    write_whole(folder / STATE, _state_text(state).encode())
    (folder / UNFINISHED).unlink(missing_ok=True)


def is_unfinished(folder: Path) -> bool:
    """Whether the call before this one was ended while it wrote pages."""
    return os.path.lexists(folder / UNFINISHED)


def _check_ours(place: Path) -> None:
    if place.exists() and not (place.is_file() and is_of_suite(place)):
        raise _not_ours(f"{place}, which the suite did not write")


def _not_ours(got: str) -> ConfigError:
    return ConfigError(
        "perfgate publish",
        field="FOLDER",
        got=got,
        expected="a folder for the site alone",
        remedy="Name an empty or a new folder",
    )
