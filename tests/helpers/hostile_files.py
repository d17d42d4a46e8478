"""What a reader may find in place of a file that it knows, and a limit on how long it may look at it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SPARSE_BYTES = 10 * 2**30
# A reader that waits for a FIFO waits for ever; any other takes a hundredth of it.
_MOST_SECONDS = 30


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, SPARSE_BYTES)


# How each is made, and a word of what its reader says.
UNREADABLE: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "a FIFO": (os.mkfifo, "a FIFO"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
    "a link to a file": (lambda path: path.symlink_to("/etc/passwd"), "a symbolic link"),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "a symbolic link"),
    "a folder": (Path.mkdir, "a folder"),
    "a sparse file of 10 GB": (_sparse, "bytes, expected at most"),
}


@contextmanager
def in_time(seconds: int = _MOST_SECONDS) -> Iterator[None]:
    """Fails instead of waiting for ever."""

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"still reading after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
