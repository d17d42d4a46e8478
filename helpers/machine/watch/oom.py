"""Finds whether the kernel's OOM killer worked while a job ran, so that its SIGKILL is known from any other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers.machine.control_groups import control_groups


@dataclass(frozen=True)
class OomKills:
    """The kernel's counts of processes that it killed for want of memory; None where it does not say."""

    # Of this process's own memory control group, in which its jobs run.
    group: int | None = None
    # Of the whole machine, other containers included.
    machine: int | None = None
    # Whether the group's count includes the groups below it (version 2).
    inherits: bool = False


def read_oom_kills(root: Path = Path("/")) -> OomKills:
    """The counts at this moment."""
    machine = _count(root / "proc/vmstat")
    for folder in reversed(control_groups(root, "memory")):
        if (count := _count(folder / "memory.events")) is not None:
            return OomKills(count, machine, inherits=True)
        if (count := _count(folder / "memory.oom_control")) is not None:
            return OomKills(count, machine)
    return OomKills(None, machine)


def oom_evidence(before: OomKills, after: OomKills) -> tuple[bool, str]:
    """Whether the OOM killer worked between two readings, and a text that says so of a process ended by SIGKILL.

    The machine's count decides only where the group's cannot, since another container may have run out of memory.
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
