"""The environments that were made, one folder each, by the digest of all that decides their content.

An environment is made beside its place under another name and renamed when it is complete, so that it is complete or
absent whatever ends its maker. Its lock file is held by everyone who uses it (shared) or makes or removes it (alone);
the system drops the lock of a dead holder. The program that fills an environment inherits the lock: it may outlive a
killed maker, and nobody else writes there meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from helpers.builds.naming import BuildUnavailable, Why
from helpers.machine.files import MOST_NOTE_BYTES, make_private_folder, open_lock, read_text_limited, write_whole
from helpers.trainers.contract.errors import ConfigError

FOLDER = Path(".cache") / "builds"
NOTE = ".perfgate-build.json"
# 1: {"schema": 1, "source", "framework", "distribution", "version", "commit", "cuda", "python", "locked", …}, texts.
NOTE_SCHEMA = 1
_MAKING, _REMOVING = ".making-", ".removing-"
_DIGEST = re.compile(r"[0-9a-f]{16}", re.ASCII)
_SHORTEST = 4
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class KeptBuild:
    """An environment that is kept."""

    digest: str
    folder: Path
    note: Mapping[str, str]
    # When a session last took it, in seconds since the epoch.
    last_used: float
    # Bytes of its files on the disk, and of those that no other folder shares with it.
    size: int
    own_size: int
    in_use: bool

    @property
    def interpreter(self) -> Path:
        return self.folder / "bin" / "python"


class BuildCache:
    """The environments in ``folder``. What is taken stays in use until ``release``, the end of a ``with`` block, or
    the end of this process."""

    def __init__(self, folder: Path, most_bytes: float = float("inf")) -> None:
        self.folder = folder.absolute()
        self._most_bytes = most_bytes
        # The lock of each environment that this process uses, by digest; by its path where it is of another folder.
        self._held: dict[str, int] = {}

    def __enter__(self) -> BuildCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for digest in tuple(self._held):
            self.release(digest)

    def take(
        self,
        digest: str,
        build: str,
        fill: Callable[[Path, int], Mapping[str, str]],
        on_wait: Callable[[str], None] = lambda text: None,
    ) -> KeptBuild:
        """The environment of ``digest``, in use from now on. Where it is missing, ``fill`` makes it in a folder that it
        is given, with a lock to hand to its programs, and returns the environment's note.

        Raises BuildUnavailable for ``build`` where the folder cannot be written, and what ``fill`` raises; nothing
        half-made is left.
        """
        if digest not in self._held:
            try:
                make_private_folder(self.folder)
                self._held[digest] = self._locked(digest, build, fill, on_wait)
            except OSError as error:
                kind = Why.NO_SPACE if error.errno in _FULL else Why.NOT_INSTALLED
                raise BuildUnavailable(build, kind, str(error), remedy="Free the disk, or mend the folder") from error
        found = self._kept(digest, sized=False)
        if found is None:
            raise BuildUnavailable(build, Why.NOT_INSTALLED, f"{self.folder / digest} is not there any more")
        return found

    def hold(self, build: str, python: Path, on_wait: Callable[[str], None] = lambda text: None) -> None:
        """Take the environment that ``python`` is of, where it is one that is kept, here or in another such folder.

        Raises BuildUnavailable for ``build`` where it is gone meanwhile, or cannot be held.
        """
        # Its Python is a link to the one that it was made with, so only its folder is resolved.
        folder = python.parent.parent.resolve()
        path = folder.with_name(f"{folder.name}.lock")
        # A copy of one has no lock beside it.
        if not (_DIGEST.fullmatch(folder.name) and (folder / NOTE).is_file() and path.is_file()):
            return
        home = self if folder.parent == self.folder.resolve() else BuildCache(folder.parent)
        key = folder.name if home is self else str(folder)
        if key in self._held:
            return
        try:
            lock = open_lock(path)
            try:
                _lock(lock, fcntl.LOCK_SH, lambda: on_wait(f"waiting for another session that has {build} alone"))
                os.utime(path)
            except BaseException:
                os.close(lock)
                raise
        except OSError as error:
            raise BuildUnavailable(build, Why.NOT_INSTALLED, f"it cannot be kept in use: {error}") from error
        if not home.stands(folder.name):
            os.close(lock)
            raise BuildUnavailable(build, Why.NOT_INSTALLED, f"{folder} is not there any more")
        self._held[key] = lock

    def release(self, digest: str) -> None:
        """End this process's use of an environment."""
        descriptor = self._held.pop(digest, None)
        if descriptor is not None:
            os.close(descriptor)

    def kept(self) -> list[KeptBuild]:
        """Every environment that is complete, that used last first."""
        names = [each.name for each in self._entries() if _DIGEST.fullmatch(each.name)]
        found = [each for name in names if (each := self._kept(name)) is not None]
        return sorted(found, key=lambda each: -each.last_used)

    def meant(self, text: str) -> list[str]:
        """The digests that begin with ``text``, of 4 characters at least."""
        if len(text) < _SHORTEST or not re.fullmatch(r"[0-9a-f]+", text):
            return []
        return [each.name for each in self._entries() if _DIGEST.fullmatch(each.name) and each.name.startswith(text)]

    def stands(self, digest: str) -> bool:
        """Whether the environment is complete just now; ``take`` alone keeps it so."""
        return self._is_complete(digest)

    def remove(self, digest: str) -> bool:
        """Remove an environment; False where it is in use."""
        with self._alone(digest) as mine:
            if mine:
                # Renamed first: a deletion that is cut short leaves no environment that looks complete.
                doomed = self.folder / f"{_REMOVING}{digest}-{secrets.token_hex(4)}"
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / digest).rename(doomed)
                _delete(doomed)
            return mine

    def read_answer(self, question: str) -> dict[str, str] | None:
        """What was kept under ``question``, 16 hexadecimal digits; None without it, or where it is damaged."""
        return _read_note(self.folder / "answers" / f"{question}.json")

    def keep_answer(self, question: str, answer: Mapping[str, str]) -> None:
        """Keep an answer that later sessions need not ask for. Raises OSError."""
        make_private_folder(self.folder)
        (self.folder / "answers").mkdir(exist_ok=True, mode=0o700)
        write_whole(self.folder / "answers" / f"{question}.json", json.dumps(dict(answer), sort_keys=True).encode())

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for a download, on the disk of the environments; gone at the end."""
        make_private_folder(self.folder)
        token = secrets.token_hex(8)
        lock = open_lock(self.folder / f"{token}.lock")
        place = self.folder / f"{_MAKING}{token}-wheel"
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            place.mkdir(mode=0o700)
            yield place
        finally:
            _delete(place)
            (self.folder / f"{token}.lock").unlink(missing_ok=True)
            os.close(lock)

    def sweep(self) -> None:
        """Delete what makers that were killed have left."""
        for entry in self._entries():
            if entry.name.startswith((_MAKING, _REMOVING)):
                digest = entry.name.removeprefix(_MAKING).removeprefix(_REMOVING)[:16]
                with self._alone(digest) as mine:
                    if mine:
                        _delete(entry)

    def _locked(
        self,
        digest: str,
        build: str,
        fill: Callable[[Path, int], Mapping[str, str]],
        on_wait: Callable[[str], None],
    ) -> int:
        """The shared lock of a complete environment, which is made where it is missing."""
        path = self.folder / f"{digest}.lock"
        lock = open_lock(path)

        def waits() -> None:
            on_wait(f"waiting for another session that makes {build}")

        try:
            while True:
                _lock(lock, fcntl.LOCK_SH, waits)
                if self._is_complete(digest):
                    os.utime(path)
                    return lock
                # Not one step: between the two locks another session may make it, or remove it.
                _lock(lock, fcntl.LOCK_EX, waits)
                if not self._is_complete(digest):
                    self._make(digest, lock, fill)
                    self._make_room()
        except BaseException:
            os.close(lock)
            raise

    def _make(self, digest: str, lock: int, fill: Callable[[Path, int], Mapping[str, str]]) -> None:
        self.sweep()
        _delete(self.folder / digest)
        # What a killed maker of the same environment has left: its lock is ours, so sweep() passed over it.
        for entry in self._entries():
            if entry.name.startswith(f"{_MAKING}{digest}-"):
                _delete(entry)
        place = self.folder / f"{_MAKING}{digest}-{secrets.token_hex(4)}"
        try:
            note = {**fill(place, lock), "schema": str(NOTE_SCHEMA)}
            write_whole(place / NOTE, json.dumps(note, indent=1, sort_keys=True).encode())
            place.rename(self.folder / digest)
        finally:
            _delete(place)

    def _is_complete(self, digest: str) -> bool:
        folder = self.folder / digest
        return (folder / NOTE).is_file() and os.access(folder / "bin" / "python", os.X_OK)

    def _kept(self, digest: str, sized: bool = True) -> KeptBuild | None:
        folder = self.folder / digest
        note = _read_note(folder / NOTE) if self._is_complete(digest) else None
        if note is None or note.get("schema") != str(NOTE_SCHEMA):
            return None
        lock = self.folder / f"{digest}.lock"
        last_used = lock.stat().st_mtime if lock.exists() else folder.stat().st_mtime
        own, size = _sizes(folder) if sized else ({}, {})
        return KeptBuild(digest, folder, note, last_used, sum(size.values()), sum(own.values()), self._in_use(digest))

    def _in_use(self, digest: str) -> bool:
        if digest in self._held:
            return True
        with self._alone(digest) as mine:
            return not mine

    @contextlib.contextmanager
    def _alone(self, digest: str) -> Iterator[bool]:
        """Whether nobody uses or makes it; nobody can while the block runs."""
        try:
            lock = open_lock(self.folder / f"{digest}.lock")
        except FileNotFoundError:
            yield True
            return
        try:
            state = os.fstat(lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Opening has not changed when it was last used.
            os.utime(lock, ns=(state.st_atime_ns, state.st_mtime_ns))
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(lock)

    def _make_room(self) -> None:
        """Remove environments that nobody uses, those used longest ago first, until the rest has its size."""
        if self._most_bytes == float("inf"):
            return
        found = [(each, _sizes(each.folder)[1]) for each in self.kept()]
        while found and _together([sizes for _, sizes in found]) > self._most_bytes:
            oldest = next((item for item in reversed(found) if not item[0].in_use), None)
            if oldest is None:
                return
            self.remove(oldest[0].digest)
            found.remove(oldest)

    def _entries(self) -> list[Path]:
        try:
            return sorted(self.folder.iterdir())
        except FileNotFoundError:
            return []


def cache_of(root: Path, most_gigabytes: float) -> BuildCache:
    """The environments beside the perf.yaml in ``root``."""
    return BuildCache(root / FOLDER, most_gigabytes * 1e9)


def refuse_unknown(text: str, cache: BuildCache) -> ConfigError:
    known = ", ".join(each.digest for each in cache.kept()) or "none"
    return ConfigError("perfgate builds", got=text, expected=f"a build that is kept, by its digest: {known}")


def _lock(lock: int, how: int, waits: Callable[[], None]) -> None:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        waits()
        fcntl.flock(lock, how)


def _read_note(path: Path) -> dict[str, str] | None:
    try:
        found = json.loads(read_text_limited(path, MOST_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return None
    return found


def _sizes(folder: Path) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes on the disk by inode: of the files that stand in no other folder, and of all."""
    own: dict[int, int] = {}
    every: dict[int, int] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = (Path(root) / name).lstat()
                every[found.st_ino] = found.st_blocks * 512
                if found.st_nlink == 1 or not stat.S_ISREG(found.st_mode):
                    own[found.st_ino] = found.st_blocks * 512
    return own, every


def _together(sizes: list[dict[int, int]]) -> int:
    """A file that several environments share counts once."""
    every: dict[int, int] = {}
    for each in sizes:
        every.update(each)
    return sum(every.values())


def _delete(folder: Path) -> None:
    """Delete a folder as far as this user may."""
    shutil.rmtree(folder, ignore_errors=True)
