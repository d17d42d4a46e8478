"""Control groups for one fault, made beside or below this process's own; in one with a memory limit the kernel ends who
needs more, as in a container."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from helpers.machine.host import control_groups

# The files for memory and for swap, of versions 1 and 2. Without a limit on swap the kernel would swap first.
_LIMITS = (("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), ("memory.max", "memory.swap.max"))
_MIB = 2**20


@contextlib.contextmanager
def made_group(controller: str, prepare: Callable[[Path], bool]) -> Generator[Path, None, None]:
    """Make a group and yield its folder, which ``prepare`` has found to be one of ``controller``; remove it at the end.

    Raises OSError where this process may not make one.
    """
    error = OSError(f"no {controller} controller is mounted")
    for parent in control_groups(Path("/"), controller):
        folder = parent / f"perfgate-fault-{uuid.uuid4().hex[:8]}"
        try:
            if not parent.is_dir():
                continue
            folder.mkdir()
        except OSError as refused:
            error = refused
            continue
        with _gone_at_the_end(folder):
            try:
                suits = prepare(folder)
            except OSError as refused:
                error, suits = refused, False
            if suits:
                yield folder
                return
    raise error


def enter_words(folder: Path) -> tuple[str, ...]:
    """Words before a command line that put it into the group."""
    return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(folder / "cgroup.procs"))


@contextlib.contextmanager
def _gone_at_the_end(folder: Path) -> Generator[None, None, None]:
    try:
        yield
    finally:
        # A process that has just ended stays in the group for a moment.
        for _ in range(50):
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


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
