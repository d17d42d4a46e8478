"""Writes a file so that nobody ever sees a part of it."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path``: a reader or a crash sees the old or the new content, never a part.

    It writes a temporary file ``.<name>.<pid>-<token>.tmp`` in the same folder, syncs it, and renames it. Raises
    OSError when the disk refuses; the old file is then unchanged and the temporary one is gone. The token keeps the
    temporary file of a killed process, or of another machine with the same process id, out of the way.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_replaceable(path: Path) -> None:
    """Raise OSError where ``path`` may not be replaced by a file: root could put one in the place of /dev/null, and of
    /dev/stdout, a link into /proc."""
    try:
        found = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found) or (path.is_symlink() and path.readlink().is_relative_to("/proc")):
        raise OSError(errno.EINVAL, "not a regular file, which alone is replaced", str(path))


def sync_folder(folder: Path) -> None:
    """Write the names in ``folder`` to the disk, so that they outlive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; the rename itself is done.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
