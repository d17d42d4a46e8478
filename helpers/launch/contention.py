"""Who else used the leased cores while a run was timed.

The kernel counts per core how long it was busy; what the job's own processes did not use, others did,
and what the hypervisor took away (steal) went to others too.
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from helpers.errors import LaunchError
from helpers.launch.processes import Process, Processes

# Processes worth naming to whoever looks for the disturbance.
_TOP = 3
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ForeignProcess(NamedTuple):
    name: str
    pid: int
    seconds: float


@dataclass(frozen=True)
class ContentionSample:
    """What others used of the leased cards during the window.

    ``foreign_share`` is a share of the cores' time (GPU: of the looks at which another process sat on a
    card), None when it could not be measured, with the reason in ``note``: not measured is not quiet.
    """

    foreign_share: float | None
    top: tuple[ForeignProcess, ...] = ()
    window_seconds: float = 0.0
    steal_seconds: float = 0.0
    note: str = ""

    def is_quiet(self, limit: float) -> bool:
        """Whether others had at most ``limit`` (0.05 is 5%) of the cards' time."""
        return self.foreign_share is not None and self.foreign_share <= limit

    def describe(self) -> str:
        """One line for a verdict's reason."""
        if self.foreign_share is None:
            return f"contention not measured: {self.note}"
        text = f"{self.foreign_share:.1%} of the leased cards' time went to others"
        names = [f"{each.name} (pid {each.pid}, {each.seconds:.1f} s)" for each in self.top]
        if self.steal_seconds >= 0.05:
            names.append(f"the hypervisor ({self.steal_seconds:.1f} s)")
        return f"{text}: {', '.join(names)}" if names else text


class Meter(Protocol):
    """Watches a run from outside. ``at`` is in monotonic seconds, the clock of the step logs."""

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        """One look; ``own`` are the job's process ids, ``everyone`` is given at some looks only."""
        ...

    def contention(self, window: tuple[float, float] | None) -> ContentionSample: ...

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        """Why the cards were not fit to be measured during the window; empty when they were."""
        ...


@dataclass(frozen=True)
class CpuSample:
    """One look: cumulative seconds of the leased cores, and of processes as (seconds, last core)."""

    at: float
    busy_seconds: float
    steal_seconds: float
    own: Mapping[int, tuple[float, int]] = field(default_factory=dict)
    others: Mapping[int, tuple[str, float, int]] | None = None


def contention_of(
    samples: Sequence[CpuSample], cores: Collection[int], window: tuple[float, float] | None
) -> ContentionSample:
    """The share of ``window`` x cores that went neither to the job nor to idling.

    (busy - own + steal) / (window x cores), linear between looks. Own time is counted where the process
    last ran on a leased core. Not measured when the looks do not enclose the window.
    """
    if window is None or window[1] <= window[0]:
        return ContentionSample(None, note="the run has no measured window")
    if len(samples) < 2 or samples[0].at > window[0] or samples[-1].at < window[1]:
        return ContentionSample(None, note="the looks at the cores do not enclose the measured window")
    seconds = window[1] - window[0]
    times = [sample.at for sample in samples]
    busy = _between(times, [sample.busy_seconds for sample in samples], window)
    steal = _between(times, [sample.steal_seconds for sample in samples], window)
    own = _between(times, _own_seconds(samples, cores), window)
    foreign = max(0.0, busy - own + steal)
    return ContentionSample(foreign / (seconds * len(cores)), _top(samples, cores, window), seconds, steal)


class CpuMeter:
    """Looks at the leased cores; the supervisor's own process counts as the job's."""

    def __init__(
        self,
        cores: Collection[int],
        *,
        processes: Processes | None = None,
        stat: Callable[[], str] | None = None,
        supervisor: int | None = None,
    ) -> None:
        self._stat = stat or Path("/proc/stat").read_text
        self._cores = frozenset(cores) or frozenset(core_seconds(self._stat()))
        self._processes = processes or Processes()
        self._supervisor = os.getpid() if supervisor is None else supervisor
        self._samples: list[CpuSample] = []

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        cores = core_seconds(self._stat())
        missing = self._cores - set(cores)
        if missing:
            raise LaunchError("/proc/stat", got=f"no core {min(missing)}", expected="every leased core online")
        mine = {self._supervisor, *own}
        looked = [process for process in map(self._processes.look, mine) if process is not None]
        others = None
        if everyone is not None:
            others = {p.pid: (p.name, p.cpu_seconds, p.processor) for p in everyone if p.pid not in mine}
        self._samples.append(
            CpuSample(
                at,
                sum(cores[core][0] for core in self._cores),
                sum(cores[core][1] for core in self._cores),
                {process.pid: (process.cpu_seconds, process.processor) for process in looked},
                others,
            )
        )

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        return contention_of(self._samples, self._cores, window)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return ()


def core_seconds(stat: str) -> dict[int, tuple[float, float]]:
    """Busy and stolen seconds of each core since boot, from ``/proc/stat`` (proc(5))."""
    cores = {}
    for line in stat.splitlines():
        if line.startswith("cpu") and line[3:4].isdigit():
            name, *ticks = line.split()
            user, nice, system, _, _, irq, softirq, steal = (int(tick) for tick in ticks[:8])
            busy = user + nice + system + irq + softirq
            cores[int(name[3:])] = (busy / _TICKS_PER_SECOND, steal / _TICKS_PER_SECOND)
    return cores


def _own_seconds(samples: Sequence[CpuSample], cores: Collection[int]) -> list[float]:
    """Cumulative seconds of the job on the leased cores at each look."""
    # The supervisor had a life before the first look; processes that appear later are the job's from birth.
    seen = {pid: seconds for pid, (seconds, _) in samples[0].own.items()}
    total, totals = 0.0, []
    for sample in samples:
        for pid, (seconds, core) in sample.own.items():
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


def _top(
    samples: Sequence[CpuSample], cores: Collection[int], window: tuple[float, float]
) -> tuple[ForeignProcess, ...]:
    """Others with the most time between the full looks around the window, while seen on a leased core."""
    looks = [(sample.at, sample.others) for sample in samples if sample.others is not None]
    used: dict[int, float] = {}
    names: dict[int, str] = {}
    for (start, before), (end, after) in itertools.pairwise(looks):
        if end <= window[0] or start >= window[1]:
            continue
        for pid, (name, seconds, core) in after.items():
            _, seconds_before, core_before = before.get(pid, (name, 0.0, core))
            # A process that roams is met now here, now there.
            if seconds > seconds_before and (core in cores or core_before in cores):
                used[pid] = used.get(pid, 0.0) + seconds - seconds_before
                names[pid] = name
    biggest = sorted(used, key=lambda pid: -used[pid])[:_TOP]
    return tuple(ForeignProcess(names[pid], pid, used[pid]) for pid in biggest)
