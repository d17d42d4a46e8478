"""The folder of a site: pages are written whole, only where they differ, and only what the suite wrote is removed.

``publish-state.json`` says what the pages were made of: the history's revision, each file's size and digest, and what
the lists of cases, sessions and builds show.
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
from helpers.report.site.names import STATE, is_ours
from helpers.trainers.contract.errors import ConfigError

# 1: first format.
STATE_SCHEMA_VERSION = 1
# Stands near the beginning of every file of the site, by which files of others are told apart.
MARKER = "perfgate publish"
_MARKER_WITHIN = 1024
# One name for all, so that a killed process leaves one such file at most.
_TEMPORARY = ".publish.tmp"
_MOST_STATE_BYTES = 256 * 2**20
_MOST_PAGE_BYTES = 64 * 2**20

Item = dict[str, Any]


@dataclass
class State:
    """What was published."""

    revision: Revision = field(default_factory=Revision)
    # What decides the pages besides the history: their templates, the site's title and address.
    form: str = ""
    # Size and digest of each file, by its path in the folder.
    files: dict[str, str] = field(default_factory=dict)
    # What the lists show, by the page that an entry leads to.
    cases: dict[str, Item] = field(default_factory=dict)
    sessions: dict[str, Item] = field(default_factory=dict)
    builds: dict[str, Item] = field(default_factory=dict)
    machines: dict[str, Item] = field(default_factory=dict)
    # The feed's, by the night's uuid.
    regressions: dict[str, Item] = field(default_factory=dict)


_TABLES = ("files", "cases", "sessions", "builds", "machines", "regressions")


class StateError(Exception):
    """The state file cannot be used; the message says why."""


def read_state(folder: Path) -> State | None:
    """None where nothing was published. Raises StateError for a file that this version did not write."""
    path = folder / STATE
    if not path.exists() and not path.is_symlink():
        return None
    try:
        record = json.loads(read_limited(path, _MOST_STATE_BYTES))
        version = record.get("schema_version") if isinstance(record, dict) else None
        if version != STATE_SCHEMA_VERSION:
            raise ValueError(f"schema_version {version!r}, known is {STATE_SCHEMA_VERSION}")
        content = record["content"]
        if record["checksum"] != _checksum(content):
            raise ValueError("its checksum does not fit its content")
        marks = content["revision"]
        pairs = {name: tuple(map(tuple, marks[name])) for name in ("acknowledgements", "starts", "calibrations")}
        return State(Revision(**{**marks, **pairs}), str(content["form"]), **{name: content[name] for name in _TABLES})
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise StateError(f"{path} is damaged or not of this version ({error})") from error


def state_text(state: State) -> str:
    content = {
        "revision": asdict(state.revision),
        "form": state.form,
        **{name: getattr(state, name) for name in _TABLES},
    }
    return json.dumps({"schema_version": STATE_SCHEMA_VERSION, "checksum": _checksum(content), "content": content})


def _checksum(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Folder:
    """The files of one publishing."""

    def __init__(self, folder: Path, files: Mapping[str, str], *, everything: bool) -> None:
        """``files`` are those of the earlier state; with ``everything`` each that is not put again is removed."""
        self._folder = folder
        self._earlier = files
        self.files: dict[str, str] = {} if everything else dict(files)
        self.written = 0
        self.removed = 0
        self._made: set[Path] = set()

    def put(self, path: str, text: str) -> None:
        """Write a file, unless it is there already. Raises ConfigError where another file stands in its place."""
        content = text.encode("utf-8", "backslashreplace")
        mark = _mark(content)
        self.files[path] = mark
        if self._earlier.get(path) == mark:
            return
        place = self._folder / path
        if place.parent not in self._made:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(place.parent)
        if path not in self._earlier:
            _check_ours(place)
        # Without waiting for the disk: a file that a power cut leaves empty has another size, and is made again.
        temporary = self._folder / _TEMPORARY
        temporary.write_bytes(content)
        temporary.replace(place)
        self.written += 1

    def forget(self, path: str) -> bool:
        """Whether the site had a file that is no longer anything's; it is removed at the end."""
        return self.files.pop(path, None) is not None

    def read(self, path: str) -> Any:
        """The JSON of a page as it was published; None where there is none. Raises ConfigError where it is another."""
        mark = self.files.get(path)
        if mark is None:
            return None
        content = read_limited(self._folder / path, _MOST_PAGE_BYTES)
        if _mark(content) != mark:
            raise ConfigError(
                f"{self._folder / path}",
                got="another content",
                expected="what was published",
                remedy=f"Remove {self._folder / STATE}: everything is then made anew",
            )
        return json.loads(content)

    def remove_rest(self, also: Iterable[str] = ()) -> None:
        """Remove the files of the earlier state, and those of ``also``, that are no longer anything's."""
        for path in {*self._earlier, *also} - self.files.keys():
            place = self._folder / path
            if is_ours(path) and place.is_file() and is_of_suite(place):
                place.unlink()
                self.removed += 1


def _mark(content: bytes) -> str:
    return f"{len(content)} {hashlib.sha256(content).hexdigest()[:16]}"


def gone_or_changed(folder: Path, files: Mapping[str, str]) -> list[str]:
    """The files that are no longer there, or have another size than they were written with."""
    found: dict[str, int] = {}
    for place in {Path(path).parent for path in files}:
        try:
            with os.scandir(folder / place) as entries:
                for each in entries:
                    if each.is_file(follow_symlinks=False):
                        found[str(place / each.name)] = each.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return [path for path, mark in files.items() if str(found.get(path)) != mark.partition(" ")[0]]


def files_of_suite(folder: Path) -> list[str]:
    """Files that an earlier publishing left, where no state says which."""
    paths = (path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file())
    return [name for path in paths if is_ours(name := path.relative_to(folder).as_posix()) and is_of_suite(path)]


def is_of_suite(path: Path) -> bool:
    """Whether the suite wrote the file; a link or a device is nobody's."""
    try:
        file = open_regular(path)
    except OSError:
        return False
    with file:
        return MARKER.encode() in file.read(_MARKER_WITHIN)


def write_state(folder: Path, state: State) -> None:
    write_whole(folder / STATE, state_text(state).encode())


def _check_ours(place: Path) -> None:
    if place.exists() and not (place.is_file() and is_of_suite(place)):
        raise ConfigError(
            "perfgate publish",
            field="FOLDER",
            got=f"{place}, which the suite did not write",
            expected="a folder for the site alone",
            remedy="Name an empty or a new folder",
        )
