"""Writing a file so that nobody ever sees a part of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path``: a reader or a crash sees the old or the new content, never a part.

    A temporary file ``.<name>.<pid>.tmp`` in the same folder, fsync, rename. Raises OSError when the
    disk refuses; the old file is then as it was and the temporary one is gone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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
