"""Frees the shared memory that a killed job leaves behind: nobody else does, and it would fill /dev/shm night by night.

Paddle's and PyTorch's loaders hand batches over in files whose names hold the process id of their maker.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path

_SEGMENT = re.compile(r"(?:paddle|torch)_(?P<pid>\d+)_\d+(?:_\d+)?")


def free_segments(pids: Collection[int], lives: Callable[[int], bool], folder: Path = Path("/dev/shm")) -> int:
    """Remove the segments of a job's processes (``pids``) that no longer live; returns how many were removed.

    A segment of another user is left alone.
    """
    freed = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _SEGMENT.fullmatch(path.name)
        if match is None or int(match["pid"]) not in pids or lives(int(match["pid"])):
            continue
        with contextlib.suppress(FileNotFoundError, PermissionError):
            # Root could remove another user's segment, whose maker had the same process id before.
            if path.lstat().st_uid == os.geteuid():
                path.unlink()
                freed += 1
    return freed
