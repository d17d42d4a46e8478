"""Keeps the environments that were made, each in a folder named by the digest of everything that decides its content.

An environment is made under a temporary name and renamed when it is complete, so a folder with its final name is always
complete, even if a process that makes one is killed. A process that uses an environment holds a shared lock on its lock
file; a process that makes or removes it holds an exclusive lock. The operating system releases the locks of a dead
process. The program that fills an environment inherits the lock, since it may outlive a killed suite; so no other
process writes there meanwhile.
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
from functools import partial
from pathlib import Path
from types import TracebackType

from helpers.builds.naming import BuildUnavailable, Why
from helpers.common.files import (
    MOST_NOTE_BYTES,
    lock_within,
    make_private_folder,
    open_lock,
    read_text_limited,
    write_whole,
)
from helpers.trainers.contract.errors import ConfigError

FOLDER = Path(".cache") / "builds"
NOTE = ".perfgate-build.json"
# 1: {"schema": 1, "source", "framework", "distribution", "version", "commit", "cuda", "python", "locked", …}, texts.
NOTE_SCHEMA = 1
_MAKING, _REMOVING = ".making-", ".removing-"
_DIGEST = re.compile(r"[0-9a-f]{16}", re.ASCII)
_SHORTEST = 4
_FULL = (errno.ENOSPC, errno.EDQUOT)
# A download, and resolving and installing, are given up after an hour each.
_MOST_WAIT_SECONDS = 4 * 3600.0


@dataclass(frozen=True)
class KeptBuild:
    """An environment in the cache."""

    digest: str
    folder: Path
    note: Mapping[str, str]
    # When a session last took it, in seconds since 1970.
    last_used: float
    # Bytes of its files on the disk: of all files, and of those that are shared with no other folder.
    size: int
    own_size: int
    in_use: bool

    @property
    def interpreter(self) -> Path:
        return self.folder / "bin" / "python"


class BuildCache:
    """The environments in ``folder``. An environment that was taken is in use until ``release``, the end of the
    ``with`` block, or the end of this process."""

    def __init__(self, folder: Path, most_bytes: float = float("inf")) -> None:
        self.folder = folder.absolute()
        self._most_bytes = most_bytes
        # The lock of each environment that this process uses, by digest.
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
        """The environment of ``digest``, which is in use from now on. If it is missing, ``fill`` is called with a
        folder in which to make it and with the lock, which its programs must inherit; ``fill`` returns the
        environment's note.

        Raises BuildUnavailable (with the name ``build``) if the folder cannot be written, and whatever ``fill`` raises;
        nothing incomplete is left.
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
        """Mark the environment of ``python`` as in use if it is one of these; do nothing for other environments.

        Raises BuildUnavailable (with the name ``build``) if it was removed meanwhile or cannot be locked.
        """
        # Only the folder is resolved, since an environment's Python is a link to the Python with which it was made.
        folder = python.parent.parent.resolve()
        if folder.parent == self.folder.resolve() and self.is_complete(folder.name):
            self.take(folder.name, build, partial(removed, build), on_wait)

    def release(self, digest: str) -> None:
        """End this process's use of an environment."""
        descriptor = self._held.pop(digest, None)
        if descriptor is not None:
            os.close(descriptor)

    def kept(self) -> list[KeptBuild]:
        """All complete environments, the most recently used first."""
        names = [each.name for each in self._entries() if _DIGEST.fullmatch(each.name)]
        found = [each for name in names if (each := self._kept(name)) is not None]
        return sorted(found, key=lambda each: -each.last_used)

    def matching(self, text: str) -> list[str]:
        """The digests that begin with ``text``; none if it has fewer than 4 characters."""
        if len(text) < _SHORTEST or not re.fullmatch(r"[0-9a-f]+", text):
            return []
        return [each.name for each in self._entries() if _DIGEST.fullmatch(each.name) and each.name.startswith(text)]

    def remove(self, digest: str) -> bool:
        """Remove an environment; returns False if it is in use."""
        with self._alone(digest) as mine:
            if mine:
                # Renamed first, so that an interrupted deletion leaves nothing that looks like a complete environment.
                doomed = self.folder / f"{_REMOVING}{digest}-{secrets.token_hex(4)}"
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / digest).rename(doomed)
                _delete(doomed)
            return mine

    def read_answer(self, question: str) -> dict[str, str] | None:
        """The answer kept under ``question`` (16 hexadecimal digits); None if there is none or it is damaged."""
        return _read_note(self.folder / "answers" / f"{question}.json")

    def keep_answer(self, question: str, answer: Mapping[str, str]) -> None:
        """Keep an answer, so that later sessions need not ask again. Raises OSError."""
        make_private_folder(self.folder)
        (self.folder / "answers").mkdir(exist_ok=True, mode=0o700)
        write_whole(self.folder / "answers" / f"{question}.json", json.dumps(dict(answer), sort_keys=True).encode())

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for a download, on the same disk as the environments; it is removed at the end."""
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
        """Delete the incomplete folders of processes that were killed."""
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
        """Lock a complete environment as shared, and return the lock; a missing environment is made first."""
        path = self.folder / f"{digest}.lock"
        lock = open_lock(path)

        def wait(how: int) -> None:
            _lock(build, path, lock, how, lambda: on_wait(f"waiting for another session that makes {build}"))

        try:
            while True:
                wait(fcntl.LOCK_SH)
                if self.is_complete(digest):
                    os.utime(path)
                    return lock
                # The lock is not changed in one step: in between, another session may make or remove the environment.
                wait(fcntl.LOCK_EX)
                if not self.is_complete(digest):
                    self._make(digest, lock, fill)
                    self._make_room()
        except BaseException:
            os.close(lock)
            raise

    def _make(self, digest: str, lock: int, fill: Callable[[Path, int], Mapping[str, str]]) -> None:
        self.sweep()
        _delete(self.folder / digest)
        # Remove what a killed process left of this environment; sweep() passed over it because this process holds the
        # lock.
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

    def is_complete(self, digest: str) -> bool:
        """Whether the environment is complete at this moment. Only ``take`` makes sure that it is not removed."""
        folder = self.folder / digest
        return (folder / NOTE).is_file() and os.access(folder / "bin" / "python", os.X_OK)

    def _kept(self, digest: str, sized: bool = True) -> KeptBuild | None:
        folder = self.folder / digest
        note = _read_note(folder / NOTE) if self.is_complete(digest) else None
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
        """Yields whether no process uses or makes it; then none can while the block runs."""
        try:
            lock = open_lock(self.folder / f"{digest}.lock")
        except FileNotFoundError:
            yield True
            return
        try:
            state = os.fstat(lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Locking must not count as use: the time of last use is restored.
            os.utime(lock, ns=(state.st_atime_ns, state.st_mtime_ns))
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(lock)

    def _make_room(self) -> None:
        """Remove environments that are not in use, least recently used first, until the rest fits into the allowed
        size."""
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
    """The cache in the folder ``root`` of perf.yaml."""
    return BuildCache(root / FOLDER, most_gigabytes * 1e9)


def refuse_unknown(text: str, cache: BuildCache) -> ConfigError:
    known = ", ".join(each.digest for each in cache.kept()) or "none"
    return ConfigError("perfgate builds", got=text, expected=f"a build that is kept, by its digest: {known}")


def _lock(build: str, path: Path, lock: int, how: int, waits: Callable[[], None]) -> None:
    try:
        lock_within(_MOST_WAIT_SECONDS, lock, how, waits)
    except TimeoutError as error:
        raise BuildUnavailable(
            build, Why.NOT_INSTALLED, f"{path}: {error.strerror}", "another session to finish making it",
            f"Look which process that is (fuser {path}), and end it if it hangs",
        ) from error  # fmt: skip


def removed(build: str, _folder: Path, _lock: int) -> Mapping[str, str]:
    """Fills no environment: for one that must be there already."""
    raise BuildUnavailable(build, Why.NOT_FETCHED, "another session removed it meanwhile", remedy="Call it again")


def _read_note(path: Path) -> dict[str, str] | None:
    try:
        found = json.loads(read_text_limited(path, MOST_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return None
    return found


def _sizes(folder: Path) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes on the disk by inode: of the files that are linked from no other folder, and of all files."""
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
    """The bytes of several folders together; a file that they share counts once."""
    every: dict[int, int] = {}
    for each in sizes:
        every.update(each)
    return sum(every.values())


def _delete(folder: Path) -> None:
    """Delete a folder, as far as this user is allowed to."""
    shutil.rmtree(folder, ignore_errors=True)
