"""Measures how much other processes used the leased cores during the measured window.

The kernel counts how long each core was busy. Busy time that the job's own processes did not use was used by others,
and so was time that the hypervisor took away (steal). The others' names, ids, owners and CPU seconds are known as far
as surveys of all processes show them.

The ranks of a GPU job leave most of their cores' time idle. So each rank's cores are judged by themselves: others on
the cores of one rank hold up all ranks. Interrupts and kernel threads count as the job's there, since the kernel reads
the job's images and talks to its cards on these cores.
"""

from __future__ import annotations

import bisect
import functools
import math
import os
import pwd
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from helpers.machine.watch.cpu_health import CpuHealth
from helpers.machine.watch.processes import Process, Processes
from helpers.trainers.contract.errors import LaunchError

# How many processes are named, to help find the disturbance.
_TOP = 3
# A smaller amount is a rounding error of the kernel's clock ticks.
_NAMED_SECONDS = 0.05
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ForeignProcess(NamedTuple):
    """A process that does not belong to the job, and for how long it used the cards."""

    name: str
    pid: int
    seconds: float
    # Empty if it could not be found out.
    user: str = ""

    def describe(self) -> str:
        who = f"pid {self.pid}" + (f", user {self.user}" if self.user else "")
        return f"{self.name} ({who}, {self.seconds:.1f} s)"


@dataclass(frozen=True)
class TimeInterval:
    """The processes that worked between two surveys and were seen on a leased core."""

    start: float
    end: float
    worked: tuple[ForeignProcess, ...] = ()


def owner_of(pid: int, proc: Path = Path("/proc")) -> str:
    """The user name of a process: ``uid N`` if the user has no name here, empty if the process is gone."""
    try:
        return _user((proc / str(pid)).stat().st_uid)
    except OSError:
        return ""


# The answer may come from a server in the network, and is asked for while a job is measured.
@functools.cache
def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


class Surveyor:
    """Compares each survey with the previous one, and keeps only the processes that worked; most did not.

    With ``spare_kernel`` kernel threads are no foreign processes; ``kernel_seconds`` is how long they worked so far.
    """

    def __init__(
        self, cores: Collection[int], owner: Callable[[int], str] = owner_of, *, spare_kernel: bool = False
    ) -> None:
        self._cores = frozenset(cores)
        self._owner = owner
        self._spare_kernel = spare_kernel
        self.kernel_seconds = 0.0
        self._before: dict[int, Process] = {}
        self._at: float | None = None
        self.intervals: list[TimeInterval] = []

    def survey(self, at: float, others: Collection[Process]) -> None:
        """Add a survey. ``others`` are all processes except the job's; a new one counts with all its CPU time."""
        found = {process.pid: process for process in others}
        if self._at is not None and at > self._at:
            worked = []
            for process in found.values():
                if (seconds := self._worked(process)) <= 0:
                    continue
                if self._spare_kernel and process.of_kernel:
                    self.kernel_seconds += seconds
                else:
                    # Asked while the process is there, unless it has worked too little to be named.
                    user = self._owner(process.pid) if process.cpu_seconds >= _NAMED_SECONDS else ""
                    worked.append(ForeignProcess(process.name, process.pid, seconds, user))
            self.intervals.append(TimeInterval(self._at, at, tuple(worked)))
        self._at, self._before = at, found

    def _worked(self, process: Process) -> float:
        before = self._before.get(process.pid)
        if before is not None and before.started_ticks != process.started_ticks:
            before = None
        # A process may have moved from or to a leased core between the two surveys.
        if process.processor not in self._cores and (before is None or before.processor not in self._cores):
            return 0.0
        return process.cpu_seconds - (before.cpu_seconds if before else 0.0)


def named(intervals: Sequence[TimeInterval], window: tuple[float, float]) -> tuple[ForeignProcess, ...]:
    """The processes that worked in the window, those with most seconds first. An interval that is partly in the window
    counts in proportion."""
    found: dict[int, ForeignProcess] = {}
    for interval in intervals:
        inside = min(interval.end, window[1]) - max(interval.start, window[0])
        share = max(0.0, inside) / (interval.end - interval.start)
        for each in interval.worked if share else ():
            before = found[each.pid].seconds if each.pid in found else 0.0
            found[each.pid] = each._replace(seconds=before + share * each.seconds)
    return tuple(sorted(found.values(), key=lambda each: -each.seconds))


@dataclass(frozen=True)
class ContentionSample:
    """How much others used the leased cards during the window."""

    # The share of the cores' time; for GPUs, the share of looks at which another process was on a card. None if it
    # could not be measured, which does not count as quiet.
    foreign_share: float | None
    # The other processes that used the most time.
    top: tuple[ForeignProcess, ...] = ()
    window_seconds: float = 0.0
    # Time that the hypervisor gave to other guests.
    steal_seconds: float = 0.0
    # Why ``foreign_share`` was not measured.
    note: str = ""
    # Foreign time of other processes than the top ones, and of interrupts.
    rest_seconds: float = 0.0
    # Of what ``foreign_share`` is a share.
    of: str = "the leased cards' time"

    def is_quiet(self, limit: float) -> bool:
        """Whether others had at most ``limit`` (0.05 is 5%) of the cards' time."""
        return self.foreign_share is not None and self.foreign_share <= limit

    def describe(self) -> str:
        """One line for a verdict's reason."""
        if self.foreign_share is None:
            return f"contention not measured: {self.note}"
        text = f"{self.foreign_share:.1%} of {self.of} went to others"
        names = [each.describe() for each in self.top]
        if self.steal_seconds >= _NAMED_SECONDS:
            names.append(f"the hypervisor ({self.steal_seconds:.1f} s)")
        if self.rest_seconds >= _NAMED_SECONDS:
            names.append(f"other processes, or interrupts ({self.rest_seconds:.1f} s)")
        return f"{text}: {', '.join(names)}" if names else text


class Meter(Protocol):
    """Watches the cards of a run from outside the job. All times are monotonic seconds, as in the step logs."""

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        """Look once. ``own`` are the job's process ids; ``everyone`` are all other processes, which are listed only at
        some looks."""
        ...

    def contention(self, window: tuple[float, float] | None) -> ContentionSample: ...

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        """Why the cards were not fit for measuring during the window; empty when they were."""
        ...


@dataclass(frozen=True)
class CpuSample:
    """One look at the leased cores; all seconds are cumulative."""

    at: float
    # Of the leased cores together.
    busy_seconds: float
    steal_seconds: float
    # By process id of the job: its seconds, and the core on which it ran last.
    own: Mapping[int, tuple[float, int]] = field(default_factory=dict)
    # Of kernel threads that count as the job's.
    kernel_seconds: float = 0.0


def contention_of(
    samples: Sequence[CpuSample],
    cores: Collection[int],
    window: tuple[float, float] | None,
    intervals: Sequence[TimeInterval] = (),
) -> ContentionSample:
    """The share of ``window`` x cores in which the cores neither worked for the job nor were idle.

    It is (busy - own - kernel + steal) / (window x cores), interpolated linearly between looks. A process of the job
    counts if it last ran on a leased core. The ``intervals`` between surveys name other processes; time that they do
    not explain counts too. The share is not measured if the looks do not enclose the window.
    """
    if window is None or window[1] <= window[0]:
        return ContentionSample(None, note="the run has no measured window")
    if len(samples) < 2 or samples[0].at > window[0] or samples[-1].at < window[1]:
        return ContentionSample(None, note="the looks at the cores do not enclose the measured window")
    seconds = window[1] - window[0]
    times = [sample.at for sample in samples]
    busy = _between(times, [sample.busy_seconds for sample in samples], window)
    steal = _between(times, [sample.steal_seconds for sample in samples], window)
    own = _between(times, _cumulative([sample.own for sample in samples], cores), window)
    kernel = _between(times, [sample.kernel_seconds for sample in samples], window)
    foreign = max(0.0, busy - own - kernel + steal)
    top = tuple(each for each in named(intervals, window)[:_TOP] if each.seconds >= _NAMED_SECONDS)
    rest = foreign - steal - sum(each.seconds for each in top)
    return ContentionSample(foreign / (seconds * len(cores)), top, seconds, steal, rest_seconds=max(0.0, rest))


class _Part:
    """Cores that are judged together."""

    def __init__(self, name: str, cores: Collection[int], *, spare_kernel: bool) -> None:
        self._name = name
        self.cores = frozenset(cores)
        self.surveyor = Surveyor(self.cores, spare_kernel=spare_kernel)
        self._samples: list[CpuSample] = []

    def sample(self, look: CpuSample, cores: Mapping[int, tuple[float, float]]) -> None:
        """Add a look, with this part of the ``cores``. Raises LaunchError if one is missing."""
        missing = self.cores - set(cores)
        if missing:
            raise LaunchError("/proc/stat", got=f"no core {min(missing)}", expected="every leased core online")
        busy, steal = (sum(cores[core][kind] for core in self.cores) for kind in (0, 1))
        kernel = self.surveyor.kernel_seconds
        self._samples.append(replace(look, busy_seconds=busy, steal_seconds=steal, kernel_seconds=kernel))

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        found = contention_of(self._samples, self.cores, window, self.surveyor.intervals)
        return replace(found, of=f"the time of the cores of {self._name}") if self._name else found


class CpuMeter:
    """Implements Meter for cores. The supervisor's own process counts as the job's. ``health`` takes a sample with
    every survey of all processes.

    ``ranks`` has the cores of each rank of a GPU job, by a name for it; with them, the rank on whose cores others
    worked most counts.
    """

    def __init__(
        self,
        cores: Collection[int],
        *,
        stat: Callable[[], str] | None = None,
        supervisor: int | None = None,
        health: CpuHealth | None = None,
        ranks: Mapping[str, Collection[int]] | None = None,
    ) -> None:
        self._stat = stat or Path("/proc/stat").read_text
        self._of_gpus = bool(ranks)
        named = ranks or {"": cores or core_seconds(self._stat())}
        self._parts = [_Part(name, each, spare_kernel=self._of_gpus) for name, each in named.items()]
        self._processes = Processes()
        self._supervisor = os.getpid() if supervisor is None else supervisor
        self._health = health

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        stat = self._stat()
        mine = {self._supervisor, *own}
        looked = [process for process in map(self._processes.look, mine) if process is not None]
        if everyone is not None:
            others = [process for process in everyone if process.pid not in mine]
            for part in self._parts:
                part.surveyor.survey(at, others)
            if self._health is not None:
                self._health.sample(at, sum(process.major_faults for process in looked))
        look = CpuSample(at, 0.0, 0.0, {each.pid: (each.cpu_seconds, each.processor) for each in looked})
        cores = core_seconds(stat, interrupts=not self._of_gpus)
        for part in self._parts:
            part.sample(look, cores)

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        return worst([part.contention(window) for part in self._parts])

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return self._health.unhealthy(window) if self._health is not None else ()

    def facts(self, window: tuple[float, float] | None) -> dict[str, str]:
        """The facts of the window that a result keeps."""
        return self._health.facts(window) if self._health is not None else {}


def worst(found: Sequence[ContentionSample]) -> ContentionSample:
    """One that was not measured, else the one with the largest foreign share."""
    return max(found, key=lambda each: math.inf if each.foreign_share is None else each.foreign_share)


def core_seconds(stat: str, *, interrupts: bool = True) -> dict[int, tuple[float, float]]:
    """Busy and stolen seconds of each core since boot, from ``/proc/stat`` (proc(5)); without ``interrupts``, time in
    interrupts is not busy."""
    cores = {}
    for line in stat.splitlines():
        if line.startswith("cpu") and line[3:4].isdigit():
            name, *ticks = line.split()
            user, nice, system, _, _, irq, softirq, steal = (int(tick) for tick in ticks[:8])
            busy = user + nice + system + (irq + softirq if interrupts else 0)
            cores[int(name[3:])] = (busy / _TICKS_PER_SECOND, steal / _TICKS_PER_SECOND)
    return cores


def _cumulative(looks: Sequence[Mapping[int, tuple[float, int]]], cores: Collection[int]) -> list[float]:
    """Cumulative seconds of the job on ``cores`` at each look. Each look has, by process id, its seconds and its
    core."""
    # The supervisor worked before the first look; processes that appear later belong to the job from their start.
    seen = {pid: seconds for pid, (seconds, _) in looks[0].items()}
    total, totals = 0.0, []
    for look in looks:
        for pid, (seconds, core) in look.items():
            if core in cores:
                total += max(0.0, seconds - seen.get(pid, 0.0))
            seen[pid] = seconds
        totals.append(total)
    return totals


def _between(times: Sequence[float], values: Sequence[float], window: tuple[float, float]) -> float:
    return _at(times, values, window[1]) - _at(times, values, window[0])


def _at(times: Sequence[float], values: Sequence[float], time: float) -> float:
    after = min(max(bisect.bisect_left(times, time), 1), len(times) - 1)
    before = after - 1
    share = (time - times[before]) / (times[after] - times[before])
    return values[before] + share * (values[after] - values[before])
