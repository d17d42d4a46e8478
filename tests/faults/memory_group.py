"""A memory control group of a given size: the kernel ends who needs more in it, as in a container."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.control_group import enter_words, made_group

# The files for memory and for swap, of versions 1 and 2. Without a limit on swap the kernel would swap first.
_LIMITS = (("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), ("memory.max", "memory.swap.max"))
_MIB = 2**20


@dataclass(frozen=True)
class MemoryGroup:
    """``prefix`` are words before a command line that put it into the group."""

    folder: Path

    @property
    def prefix(self) -> tuple[str, ...]:
        return enter_words(self.folder)

    def kills(self) -> int:
        """Processes of the group that the kernel has ended for want of memory."""
        for name in ("memory.oom_control", "memory.events"):
            if (path := self.folder / name).exists():
                lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
                return sum(int(line[1]) for line in lines if line[0] == "oom_kill")
        return 0


@contextlib.contextmanager
def memory_group(mib: int) -> Generator[MemoryGroup, None, None]:
    """Make the group, and remove it at the end. Raises OSError where this process may not make one."""
    with made_group("memory", lambda folder: _limit(folder, mib)) as folder:
        yield MemoryGroup(folder)


def _limit(folder: Path, mib: int) -> bool:
    """Whether the folder is a memory group, and is limited now."""
    for name, swap in _LIMITS:
        if (folder / name).exists():
            (folder / name).write_text(str(mib * _MIB), encoding="utf-8")
            if (folder / swap).exists():
                (folder / swap).write_text(str(mib * _MIB if "memsw" in swap else 0), encoding="utf-8")
            return True
    return False


def why_no_memory_group() -> str:
    """Why this process can make no memory group; empty where it can."""
    try:
        with memory_group(64):
            return ""
    except OSError as error:
        return f"no memory control group can be made: {error}"
