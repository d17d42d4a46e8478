"""Keeps entries on disk that the history could not take yet: one file for each, under ``runs/.history-spool``."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.history import Memory, default_url
from helpers.history.address import without_password
from helpers.history.codec import digest, to_text
from helpers.history.nights import NightRecord, night_of, night_text, night_uuid
from helpers.history.results import RunResult, result_of_record
from helpers.history.waiting import Waiting, file_lock
from helpers.machine.files import MOST_SPOOLED_BYTES, read_text_limited, sync_folder, write_whole
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable, ResultError

FOLDER = ".history-spool"
# Another process may take so long to empty the folder. It takes in some hundred entries a second.
_LOCK_SECONDS = 60.0
# 1: first format: kind, created, the entry's JSON as a text with its SHA-256.
SPOOL_SCHEMA_VERSION = 1
# The endings of a file that is being taken in, and of one that cannot be read and is kept for people.
_TAKEN, _DAMAGED = ".taken", ".damaged"
# Entries are taken in in this order: a night learns from its runs. (What people decide is on file anyway.)
_KINDS = ("result", "night")

Entry = RunResult | NightRecord


@dataclass(frozen=True)
class Emptied:
    """What happened to the entries of a spool."""

    # How many were taken in.
    went_in: int = 0
    # The files that could not be taken in, each with the reason.
    refused: tuple[str, ...] = ()
    # The names of the files that the database itself refused.
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spool:
    """The entries of one history in ``folder``; ``history`` is its URL as it may be shown. Raises HistoryError."""

    folder: Path
    history: str

    @staticmethod
    def of(runs_folder: Path, url: str) -> Spool:
        """The spool of one history. Its entries must not get into another history."""
        shown = without_password(url)
        # The file in the runs folder stays the same history, wherever that folder is moved.
        own = url == default_url(runs_folder)
        name = "own" if own else digest(re.sub(r"^postgres(ql)?([+]\w+)?://", "postgresql://", shown))[:16]
        return Spool(runs_folder.absolute() / FOLDER / name, shown)

    def check(self) -> None:
        """Raises HistoryError if nothing could be kept here."""
        try:
            self._make_folder()
            probe = self.folder / ".probe"
            write_whole(probe, b"")
            probe.unlink(missing_ok=True)
        except OSError as error:
            raise self._full(error) from error

    def put(self, entry: Entry) -> Path:
        """Keep an entry; it is durable when this returns. It replaces an entry of the same key."""
        kind, key, text = _as_text(entry)
        record = {
            "schema_version": SPOOL_SCHEMA_VERSION,
            "history": self.history,
            "kind": kind,
            "created": entry.created,
            "digest": digest(text),
            "entry": text,
        }
        path = self.folder / f"{_KINDS.index(kind)}-{kind}-{digest(key)[:32]}.json"
        try:
            self._make_folder()
            write_whole(path, (to_text(record) + "\n").encode())
            sync_folder(self.folder)
        except OSError as error:
            raise self._full(error) from error
        return path

    def waiting(self) -> int:
        """How many entries wait."""
        return len(self._paths())

    def damaged(self) -> tuple[Path, ...]:
        """The files that could not be read when they were taken in."""
        return tuple(sorted(self.folder.glob(f"*{_DAMAGED}")))

    def empty_into(
        self, history: Memory, leave: Collection[str] = (), after_each: Callable[[], None] = lambda: None
    ) -> Emptied:
        """Give every entry to ``history``, oldest first within its kind, and remove it from the folder once the history
        has kept it. ``leave`` are names of files that stay; ``after_each`` is called after each entry.

        One process does this at a time. The file that a killed process had begun is begun again. A damaged file is
        renamed to ``….damaged``. Raises HistoryUnreachable, and keeps the entries that are left.
        """
        went_in = 0
        refused: list[str] = []
        left: list[str] = []
        if not self._paths():
            return Emptied()
        with self._alone():
            found = [read for path in self._newest() if path.name not in leave and (read := self._taken(path, refused))]
            for _, created, taken, entry in sorted(found, key=lambda each: (each[0], each[1], each[2].name)):
                try:
                    give(history, entry)
                except HistoryUnreachable:
                    raise
                except HistoryError as error:
                    refused.append(f"spooled file {taken}, of {created}, is kept: {error}")
                    left.append(taken.name)
                    continue
                taken.unlink(missing_ok=True)
                went_in += 1
                after_each()
        return Emptied(went_in, tuple(refused), tuple(left))

    def _newest(self) -> list[Path]:
        """The files to take in. One that a killed process had begun is dropped if the same entry was put again."""
        paths = self._paths()
        newer = {path.name + _TAKEN for path in paths}
        for path in paths:
            if path.name in newer:
                path.unlink(missing_ok=True)
        return [path for path in paths if path.name not in newer]

    def _taken(self, path: Path, refused: list[str]) -> tuple[int, str, Path, Entry] | None:
        """Kind, time, file and entry; None for a file that cannot be read, or that is damaged and renamed.

        The file is renamed first, so that an entry that is put meanwhile is another file.
        """
        taken = path if path.suffix == _TAKEN else path.with_name(path.name + _TAKEN)
        try:
            path.rename(taken)
            kind, created, entry = _read(taken)
        except OSError as error:
            refused.append(f"spooled file {taken} is kept: {error}")
            return None
        except HistoryError as error:
            aside = taken.with_name(taken.name.removesuffix(_TAKEN) + _DAMAGED)
            taken.replace(aside)
            refused.append(f"damaged spooled file, kept as {aside}: {error}")
            return None
        return _KINDS.index(kind), created, taken, entry

    def _paths(self) -> list[Path]:
        """The files of entries, with those that a killed process had begun."""
        return sorted(self.folder.glob(f"*.json{_TAKEN}")) + sorted(self.folder.glob("*.json"))

    def _make_folder(self) -> None:
        for folder in (self.folder.parent, self.folder):
            if folder.is_symlink():
                raise OSError(f"{folder} is a symbolic link")
        self.folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Until the block ends no other process empties this folder. A killed process frees it.

        Raises HistoryUnreachable if another process holds it for too long; the entries stay.
        """
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(file_lock(self.folder / ".lock", Waiting("", _LOCK_SECONDS, None)))
            except TimeoutError as error:
                raise HistoryUnreachable(
                    f"history spool {self.folder}",
                    got=str(error),
                    expected="no other process that takes it in",
                    remedy="End that process; the entries are kept",
                ) from error
            except OSError as error:
                raise self._full(error) from error
            yield

    def _full(self, error: OSError) -> HistoryError:
        return HistoryError(
            f"history spool {self.folder}",
            got=str(error),
            expected="a folder that can be written to, while the history cannot be reached",
            remedy="Free the disk or the rights on the run folder; results are in their run folders (perfgate reindex)",
        )


def spools_of(runs_folder: Path) -> dict[str, int]:
    """How many entries wait for which history, by its URL as it may be shown."""
    found: dict[str, int] = {}
    for folder in sorted((runs_folder.absolute() / FOLDER).glob("*/")):
        spool = Spool(folder, "")
        for path in spool._paths()[:1]:
            try:
                shown = str(json.loads(_text(path))["history"])
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                shown = f"an unknown history ({folder.name})"
            found[shown] = found.get(shown, 0) + spool.waiting()
    return found


def _as_text(entry: Entry) -> tuple[str, str, str]:
    """An entry's kind, its key among others of the kind, and its JSON. Raises HistoryError on NaN."""
    try:
        if isinstance(entry, RunResult):
            return "result", entry.uuid, to_text(entry.to_record())
        return "night", night_uuid(entry), night_text(entry)
    except (ValueError, TypeError) as error:
        raise HistoryError(f"entry of {entry.case_id}", got=str(error), expected="plain finite values") from error


def _text(path: Path) -> str:
    return read_text_limited(path, MOST_SPOOLED_BYTES, within=path.parent)


def _read(path: Path) -> tuple[str, str, Entry]:
    """Kind, time and entry of a file. Raises HistoryError if it is not whole, OSError if it cannot be read."""
    about = f"spooled file {path}"
    try:
        record = json.loads(_text(path))
        if record["schema_version"] != SPOOL_SCHEMA_VERSION:
            raise ValueError(f"schema_version {record['schema_version']!r}, known is {SPOOL_SCHEMA_VERSION}")
        kind, created, text = str(record["kind"]), str(record["created"]), str(record["entry"])
        if digest(text) != record["digest"]:
            raise ValueError("its content and its digest differ")
        return kind, created, _entry(kind, text, about)
    except (ValueError, TypeError, KeyError, RecursionError, ResultError) as error:
        raise HistoryError(
            about,
            got=f"{type(error).__name__}: {error}",
            expected="an entry as this suite spools it",
            remedy="Take the run from its run folder (perfgate reindex), then delete this file",
        ) from error


def _entry(kind: str, text: str, about: str) -> Entry:
    if kind == "result":
        return result_of_record(json.loads(text), about)
    if kind == "night":
        return night_of(text, about)
    raise ValueError(f"kind {kind!r}, known are {', '.join(_KINDS)}")


def give(history: Memory, entry: Entry) -> None:
    """Keep an entry of any kind. Raises HistoryError."""
    if isinstance(entry, RunResult):
        history.add_result(entry)
    else:
        history.add_night(entry)
