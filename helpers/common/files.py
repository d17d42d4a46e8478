"""Opens files that another user may have put there, and writes files so that no reader sees an incomplete one. All
other code of the suite uses this module for both.

A FIFO would block its reader for ever, a device or a sparse file would fill the memory, and a link could lead to
another user's file. So a file is opened without blocking and without following a link. The opened file (not what the
name means a moment later) must be a regular file, no larger than its reader expects. If a folder is given, the file
must be within that folder and belong to an owner whom the reader trusts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_MIB = 2**20
# A result of a hundred thousand steps has 6 MB. In memory, JSON takes up to 30 times its size on disk.
MOST_RESULT_BYTES = 16 * _MIB
# A night of hundreds of runs has a hundred kilobytes.
MOST_NIGHT_BYTES = _MIB
# A note has a few values: the holder of a lock, the peak of a card, how a data set was made.
MOST_NOTE_BYTES = _MIB
# A table of logs; 100,000 rows have 10 MB.
MOST_INDEX_BYTES = 16 * _MIB
# ImageNet's own list of 1.28 million images has 45 MB.
MOST_LIST_BYTES = 512 * _MIB

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
}
_LOCK_POLL_SECONDS = 0.1
_ROOT_USER = 0
# The user id that a user namespace (a rootless container) shows for all users outside it, including the host's root.
_UNMAPPED_USER = 65534


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``, as ``replacing`` does. Raises OSError."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that replaces ``path`` when the block ends. A reader sees the old or the new content, even after a
    crash, and never a part. The file has from its first byte the mode of this user's file that it replaces; a new one
    has what the umask leaves, without the right to write for everybody.

    It is a temporary file ``.<name>.<pid>-<token>.tmp`` in the same folder, synced
    and renamed. A link at ``path`` is replaced, not followed. Raises OSError if the disk refuses; then the old file is
    unchanged and the temporary file is removed. Nobody can guess the token, so nobody can put a link there before, and
    it avoids the temporary file of a killed process, or of another machine's process with the same id.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    mode = _mode_of(path)
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o664 if mode is None else mode
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_replaceable(path: Path) -> None:
    """Raise OSError if ``path`` must not be replaced by a file: root could replace /dev/null, or /dev/stdout, which is
    a link into /proc. Raises it also for what another user planted, which this one cannot always replace."""
    check_not_planted(path)
    try:
        found = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found) or (path.is_symlink() and path.readlink().is_relative_to("/proc")):
        raise OSError(errno.EINVAL, "not a regular file, which alone is replaced", str(path))


def sync_folder(folder: Path) -> None:
    """Write the names in ``folder`` to the disk, so that they survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; the rename itself is done.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def open_regular(path: Path, *, within: Path | None = None, most_bytes: int | None = None) -> BinaryIO:
    """Open a regular file for reading, without blocking; a link, folder, FIFO, socket or device is refused.

    With ``within`` the file must be in that folder after all links are followed, and belong to this process's user, to
    root or to the folder's owner. With ``most_bytes`` it must not be larger. Raises OSError, which names the kind of
    file that was found.
    """
    try:
        # With an opener, no interrupt can come after the descriptor is opened and before a file object owns it.
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    except OSError as error:
        # Linux reports a link as ELOOP ("too many levels") and a socket as ENXIO ("no such device").
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR) and (kind := _kind_at(path)):
            raise _refused(path, kind) from error
        raise
    try:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise _refused(path, _KINDS.get(stat.S_IFMT(state.st_mode), "no file"))
        if within is not None:
            _check_place(file, path, within, state.st_uid)
        if most_bytes is not None and state.st_size > most_bytes:
            raise _too_large(path, f"{state.st_size} bytes", most_bytes)
    except BaseException:
        file.close()
        raise
    return file


def read_limited(path: Path, most_bytes: int, *, within: Path | None = None) -> bytes:
    """The content of a file of at most ``most_bytes``. Raises OSError as ``open_regular`` does, also if the file grows
    beyond the limit while it is read."""
    with open_regular(path, within=within, most_bytes=most_bytes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise _too_large(path, "more", most_bytes)
    return content


def read_text_limited(path: Path, most_bytes: int, *, within: Path | None = None, encoding: str = "utf-8") -> str:
    """The content as text. Raises OSError, and UnicodeDecodeError (a ValueError) if it is not text of that encoding."""
    return read_limited(path, most_bytes, within=within).decode(encoding)


def named_by_user(path: Path) -> Path:
    """The file to which a path of the user leads. Links are followed, since a user may name any file."""
    return Path(os.path.realpath(path))


def open_lock(path: Path) -> int:
    """Open a lock file; it is made if it does not exist. Raises OSError if it is a link or not a regular file.

    A child process does not inherit the descriptor, so a trainer that outlives the suite does not keep the lock. Users
    who may not write to the file lose the right to read it (``lock_mode``).
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, own_mode(path.parent))
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        os.close(descriptor)
        raise _refused(path, _KINDS.get(stat.S_IFMT(found), "no file"))
    if lock_mode(found) != stat.S_IMODE(found) and os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, lock_mode(found))
    return descriptor


def lock_within(seconds: float, descriptor: int, how: int, waits: Callable[[], None] = lambda: None) -> None:
    """Lock as flock(2) does with ``how``, LOCK_SH or LOCK_EX; ``waits`` is called once if somebody holds it. Raises
    TimeoutError if the lock is still held after ``seconds``: flock itself would wait without a limit."""
    deadline = None
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            now = time.monotonic()
            if deadline is None:
                deadline = now + seconds
                waits()
            elif now >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"another process holds it for {seconds:g} s") from None
            else:
                time.sleep(_LOCK_POLL_SECONDS)


def make_folder(folder: Path) -> None:
    """Make ``folder``, and what is missing above it, for this user alone (0700). Raises OSError.

    In a folder that was opened to its group (``is_of_group``) it is the group's too, as far as the umask allows.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(mode=0o770 if is_of_group(folder.parent) else 0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise


def own_mode(folder: Path) -> int:
    """The mode, before the umask, of a file in ``folder`` that only those may read who may write to it."""
    return 0o660 if is_of_group(folder) else 0o600


def is_of_group(folder: Path) -> bool:
    """Whether the user opened ``folder`` to its group on purpose, as ``chmod 2770`` does. Without the setgid bit the
    group could not use what another member makes, and everybody's folder (/tmp) is nobody's purpose."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_ISGID and mode & stat.S_IWGRP) and not mode & stat.S_IWOTH


def check_not_planted(path: Path) -> None:
    """Raise OSError for a file or link that another user put into a folder that everybody may write to, unless it is
    their folder."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IWOTH and found.st_uid not in (os.geteuid(), _ROOT_USER, folder.st_uid):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a file")
        raise OSError(errno.EPERM, f"{kind} that user {found.st_uid} put into a folder of everybody", str(path))


def of_everybody(folder: Path) -> str:
    """A sentence about a folder in which every user of the machine may replace files; empty for another one."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return ""
    if not mode & stat.S_IWOTH:
        return ""
    return (
        f"every user of this machine may write to {folder}, and replace what is there. Unless you want that: "
        f"chmod o-w {folder}"
    )


def lock_mode(mode: int) -> int:
    """``mode`` without the right to read for those who may not write: whoever may read a file can hold its lock for
    ever."""
    return stat.S_IMODE(mode) & ~(mode & 0o044 & ~((mode & 0o022) << 1))


def make_private_folder(folder: Path) -> None:
    """Make ``folder`` if it does not exist. Raises OSError if another user could put a file into it or replace it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for place in (folder.absolute(), *folder.absolute().parents):
        state = place.stat() if place != folder.absolute() else place.lstat()
        shared = state.st_mode & (0o022 if place == folder.absolute() else 0o002)
        sticky = state.st_mode & stat.S_ISVTX and place != folder.absolute()
        trusted = (os.geteuid(),) if place == folder.absolute() else (os.geteuid(), _ROOT_USER, _UNMAPPED_USER)
        if not stat.S_ISDIR(state.st_mode):
            raise OSError(errno.ENOTDIR, "not a folder", str(place))
        if state.st_uid not in trusted:
            raise OSError(errno.EPERM, f"a folder of user {state.st_uid}", str(place))
        if shared and not sticky:
            raise OSError(errno.EPERM, "a folder that other users may write to", str(place))


def _mode_of(path: Path) -> int | None:
    """The permissions of a regular file of this user; None if there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_mode & 0o777 if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() else None


def _without_waiting(name: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a FIFO would wait for a writer for ever.
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _kind_at(path: Path) -> str | None:
    try:
        return _KINDS.get(stat.S_IFMT(path.lstat().st_mode))
    except OSError:
        return None


def _check_place(file: BinaryIO, path: Path, within: Path, owner: int) -> None:
    root = within.resolve()
    if not _place_of(file, path).is_relative_to(root):
        raise OSError(errno.EPERM, f"a link that leads out of {within}", str(path))
    trusted = {os.geteuid(), _ROOT_USER, root.stat().st_uid}
    if owner not in trusted:
        named = ", ".join(str(each) for each in sorted(trusted))
        raise OSError(errno.EPERM, f"a file of user {owner}, expected one of user {named}", str(path))


def _place_of(file: BinaryIO, path: Path) -> Path:
    """The path of the open file, from the kernel; from its name on a system without /proc."""
    try:
        found = Path(f"/proc/self/fd/{file.fileno()}").readlink()
    except OSError:
        return path.resolve()
    # " (deleted)" means that the file was replaced meanwhile; only its folder counts here.
    return found.with_name(found.name.removesuffix(" (deleted)"))


def _refused(path: Path, kind: str) -> OSError:
    return OSError(errno.EINVAL, f"not a regular file but {kind}", str(path))


def _too_large(path: Path, size: str, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"{size}, expected at most {most_bytes}", str(path))
