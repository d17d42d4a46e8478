"""Whether the kernel's OOM killer was at work while a job ran: what tells its SIGKILL from anyone else's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers.control_groups import control_groups


@dataclass(frozen=True)
class OomKills:
    """The kernel's counts of processes that it killed for want of memory, None where it does not tell.

    ``group`` is of this process's own memory cgroup, in which its jobs run; ``inherits`` whether it counts the groups
    below it too (version 2). ``machine`` is of the whole machine, other containers included.
    """

    group: int | None = None
    machine: int | None = None
    inherits: bool = False


def read_oom_kills(root: Path = Path("/")) -> OomKills:
    """The counts as they stand now."""
    machine = _count(root / "proc/vmstat")
    for folder in reversed(control_groups(root, "memory")):
        if (count := _count(folder / "memory.events")) is not None:
            return OomKills(count, machine, inherits=True)
        if (count := _count(folder / "memory.oom_control")) is not None:
            return OomKills(count, machine)
    return OomKills(None, machine)


def oom_evidence(before: OomKills, after: OomKills) -> tuple[bool, str]:
    """Whether the OOM killer struck between two readings, and that in words for a process ended by SIGKILL.

    The machine's count decides only where the group's cannot: another container's shortage is not this job's.
    """
    group, machine = _grown(before.group, after.group), _grown(before.machine, after.machine)
    if group:
        return True, f"the kernel's OOM killer was at work (oom_kill +{group})"
    if group == 0 and after.inherits:
        return False, "not the kernel's OOM killer (oom_kill +0)"
    if machine:
        return True, f"the kernel's OOM killer was at work on this machine (oom_kill +{machine})"
    if machine == 0:
        return False, "not the kernel's OOM killer (oom_kill +0)"
    return False, "whether by the kernel's OOM killer cannot be read here"


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _count(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None
