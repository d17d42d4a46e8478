"""A memory control group of so many bytes: whoever needs more in it is ended by the kernel, as in a container."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from helpers.control_groups import control_groups

# Bytes, then swap: versions 1 and 2 of control groups. Without a limit on swap the kernel would swap first.
_LIMITS = (("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), ("memory.max", "memory.swap.max"))
_MIB = 2**20


@dataclass(frozen=True)
class MemoryGroup:
    """``prefix`` are words before a command line that put it into the group."""

    folder: Path

    @property
    def prefix(self) -> tuple[str, ...]:
        return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs"))

    def kills(self) -> int:
        """Processes of the group that the kernel has ended for want of memory."""
        for name in ("memory.oom_control", "memory.events"):
            if (path := self.folder / name).exists():
                lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
                return sum(int(line[1]) for line in lines if line[0] == "oom_kill")
        return 0


@contextlib.contextmanager
def memory_group(mib: int) -> Generator[MemoryGroup, None, None]:
    """The group, and its end. OSError where this process may not make one."""
    error = OSError("no memory controller is mounted")
    for parent in control_groups(Path("/"), "memory"):
        if not parent.is_dir():
            continue
        folder = parent / f"perfgate-fault-{uuid.uuid4().hex[:8]}"
        try:
            folder.mkdir()
        except OSError as refused:
            error = refused
            continue
        try:
            if _limit(folder, mib):
                yield MemoryGroup(folder)
                return
        except PermissionError as refused:
            error = refused
        finally:
            folder.rmdir()
    raise error


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
    """Empty where a group can be made."""
    try:
        with memory_group(64):
            return ""
    except OSError as error:
        return f"no memory control group can be made: {error}"
