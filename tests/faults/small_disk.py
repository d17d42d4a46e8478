"""A real file system of a few megabytes that can be filled and made read-only."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FILLER = ".filler"
_BLOCK = 64 * 1024


def why_no_mount() -> str:
    """Why this process cannot mount a file system; empty where it can."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "fault-table", folder], capture_output=True, text=True
        )
        if done.returncode:
            return f"no right to mount a small disk ({done.stderr.strip()}): run as root, or under unshare -rm"
        subprocess.run(["umount", "-l", folder], check=True)
    return ""


@dataclass(frozen=True)
class SmallDisk:
    """A tmpfs mounted at ``folder``."""

    folder: Path

    def fill(self) -> None:
        fill(self.folder)

    def empty(self) -> None:
        """Delete what only filled it."""
        (self.folder / _FILLER).unlink(missing_ok=True)

    def read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)

    def writable(self) -> None:
        subprocess.run(["mount", "-o", "remount,rw", str(self.folder)], check=True)


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int = 8) -> Iterator[SmallDisk]:
    """Yield a disk at ``folder`` that has what was there; at the end it is gone with all that it holds."""
    folder.mkdir(parents=True, exist_ok=True)
    present = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "fault-table", str(folder)], check=True)
    try:
        for name, content in present.items():
            (folder / name).write_bytes(content)
        yield SmallDisk(folder)
    finally:
        # Unmounted lazily: a process that still uses it must not keep the table's folder from being removed.
        subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(folder: Path) -> None:
    """Write until the disk is full."""
    with contextlib.suppress(OSError), (folder / _FILLER).open("ab", buffering=0) as file:
        size = _BLOCK
        while size:
            try:
                file.write(b"\0" * size)
            except OSError:
                size //= 2


# For a fault's own text (inject.py): the same in the process in which the fault is made.
IN_A_JOB = """
from pathlib import Path
from tests.faults.small_disk import fill as fill_disk

DISK = Path({folder!r})

def fill():
    fill_disk(DISK)
    mark()
"""
