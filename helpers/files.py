"""Writing a file so that nobody ever sees a part of it."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path``: a reader or a crash sees the old or the new content, never a part.

    A temporary file ``.<name>.<pid>-<token>.tmp`` in the same folder, fsync, rename. Raises OSError when the
    disk refuses; the old file is then as it was and the temporary one is gone. One that a killed process left is
    in nobody's way: process numbers come again, and on a shared folder two machines have the same ones.
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


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` outlive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; the rename itself is done.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
