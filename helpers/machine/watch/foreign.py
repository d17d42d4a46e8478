"""Finds who else used the leased cores: processes by name, id, owner and CPU seconds, as far as surveys show them."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from helpers.machine.watch.processes import Process

# For a process that has used less CPU time since the first survey, the owner is not looked up.
_WORTH_A_NAME_SECONDS = 0.05


class ForeignProcess(NamedTuple):
    """A process that is not the job's, and how much it used the cards."""

    name: str
    pid: int
    seconds: float
    # Empty where it could not be found out.
    user: str = ""

    def describe(self) -> str:
        who = f"pid {self.pid}" + (f", user {self.user}" if self.user else "")
        return f"{self.name} ({who}, {self.seconds:.1f} s)"


@dataclass(frozen=True)
class Interval:
    """What others did between two surveys."""

    start: float
    end: float
    # Processes that worked and were seen on a leased core.
    worked: tuple[ForeignProcess, ...] = ()
    # Processes whose children ended meanwhile, with the CPU seconds of those children.
    reaped: tuple[ForeignProcess, ...] = ()


def owner_of(pid: int, proc: Path = Path("/proc")) -> str:
    """The user name of a process: ``uid N`` where the user has no name here, empty when the process is gone."""
    try:
        number = (proc / str(pid)).stat().st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


class Surveyor:
    """Compares each survey with the one before, and keeps only the processes that worked: thousands did not."""

    def __init__(self, cores: Collection[int], owner: Callable[[int], str] = owner_of) -> None:
        self._cores = frozenset(cores)
        self._owner = owner
        self._worked_so_far: dict[int, float] = {}
        self._users: dict[int, str] = {}
        self._before: dict[int, Process] = {}
        self._at: float | None = None
        self.intervals: list[Interval] = []

    def survey(self, at: float, others: Collection[Process]) -> None:
        """Take in a survey. ``others`` are all processes but the job's; a new one counts with all its CPU time."""
        found = {process.pid: process for process in others}
        if self._at is not None and at > self._at:
            worked = [self._foreign(p, self._worked(p)) for p in found.values() if self._worked(p) > 0]
            reaped = [self._foreign(p, self._reaped(p)) for p in found.values() if self._reaped(p) > 0]
            self.intervals.append(Interval(self._at, at, tuple(worked), tuple(reaped)))
        self._at, self._before = at, found

    def _worked(self, process: Process) -> float:
        before = self._earlier(process)
        # A process may have moved from or to a leased core between the two surveys.
        if process.processor not in self._cores and (before is None or before.processor not in self._cores):
            return 0.0
        return process.cpu_seconds - (before.cpu_seconds if before else 0.0)

    def _reaped(self, process: Process) -> float:
        before = self._earlier(process)
        return process.children_seconds - before.children_seconds if before else 0.0

    def _earlier(self, process: Process) -> Process | None:
        before = self._before.get(process.pid)
        return before if before is not None and before.started_ticks == process.started_ticks else None

    def _foreign(self, process: Process, seconds: float) -> ForeignProcess:
        so_far = self._worked_so_far[process.pid] = self._worked_so_far.get(process.pid, 0.0) + seconds
        if so_far >= _WORTH_A_NAME_SECONDS and process.pid not in self._users:
            self._users[process.pid] = self._owner(process.pid)
        return ForeignProcess(process.name, process.pid, seconds, self._users.get(process.pid, ""))


def named(intervals: Sequence[Interval], window: tuple[float, float]) -> tuple[ForeignProcess, ...]:
    """The processes that worked in the window, most seconds first; an interval that is partly in it counts in part."""
    return _summed([(each.worked, _share(each, window)) for each in intervals])


def parent_of_the_ended(intervals: Sequence[Interval], window: tuple[float, float]) -> str:
    """The process whose ended children had most time in the window, ``make (pid 7)``; empty where there is none."""
    parents = _summed([(each.reaped, _share(each, window)) for each in intervals])
    if not parents or parents[0].seconds < _WORTH_A_NAME_SECONDS:
        return ""
    return f"{parents[0].name} (pid {parents[0].pid})"


def _share(interval: Interval, window: tuple[float, float]) -> float:
    inside = min(interval.end, window[1]) - max(interval.start, window[0])
    return max(0.0, inside) / (interval.end - interval.start)


def _summed(shares: Sequence[tuple[Sequence[ForeignProcess], float]]) -> tuple[ForeignProcess, ...]:
    found: dict[int, ForeignProcess] = {}
    for processes, share in shares:
        for each in processes if share else ():
            before = found[each.pid].seconds if each.pid in found else 0.0
            found[each.pid] = each._replace(seconds=before + share * each.seconds)
    return tuple(sorted(found.values(), key=lambda each: -each.seconds))
