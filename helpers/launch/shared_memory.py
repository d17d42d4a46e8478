"""Shared memory that a killed job leaves behind: nobody else frees it, and it fills /dev/shm night by night.

Paddle's and PyTorch's loaders hand batches over in files that carry the process id of who made them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection
from pathlib import Path

_SEGMENT = re.compile(r"(?:paddle|torch)_(?P<pid>\d+)_\d+(?:_\d+)?")


def free_segments(pids: Collection[int], lives: Callable[[int], bool], folder: Path = Path("/dev/shm")) -> int:
    """Remove the segments of those of ``pids``, a job's processes, that no longer live; returns how many.

    A segment that another user owns, or that goes meanwhile, is left alone.
    """
    freed = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _SEGMENT.fullmatch(path.name)
        if match is None or int(match["pid"]) not in pids or lives(int(match["pid"])):
            continue
        with contextlib.suppress(FileNotFoundError, PermissionError):
            path.unlink()
            freed += 1
    return freed
