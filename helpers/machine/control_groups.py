"""Finds the control groups of this process, which bound its share of the machine, and whether the kernel's OOM killer
worked while a job ran in them, so that its SIGKILL is known from any other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers.machine.unknown import ask


def control_groups(root: Path, controller: str) -> list[Path]:
    """The folders of this process's control group and of those above it, for both versions of control groups.

    Some may not exist: a container often sees only its own root.
    """
    own: list[tuple[Path, str]] = []
    text = ask(lambda: (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace"))
    for line in str(text).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            own.append((root / "sys/fs/cgroup", path))
        elif controller in names.split(","):
            own.append((root / f"sys/fs/cgroup/{controller}", path))
    found = [root / "sys/fs/cgroup", root / f"sys/fs/cgroup/{controller}"]
    for mount, path in own:
        parts = [part for part in path.split("/") if part not in ("", "..")]
        found += [mount.joinpath(*parts[: count + 1]) for count in range(len(parts))]
    return list(dict.fromkeys(found))


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
