"""Who else used the leased cores while a run was timed.

The kernel counts per core how long it was busy; what the job's own processes did not use, others did,
and what the hypervisor took away (steal) went to others too. The run queue says how long the job waited.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from helpers.errors import LaunchError
from helpers.launch.cpu_health import CpuHealth
from helpers.launch.foreign import ForeignProcess as ForeignProcess
from helpers.launch.foreign import Interval, Surveyor, named, parent_of_the_ended
from helpers.launch.processes import Process, Processes

# Processes worth naming to whoever looks for the disturbance.
_TOP = 3
# Below this an amount is the rounding of the kernel's clock ticks.
_TOLD_SECONDS = 0.05
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ContentionSample:
    """What others used of the leased cards during the window.

    ``foreign_share`` is a share of the cores' time (GPU: of the looks at which another process sat on a
    card), None when it could not be measured, with the reason in ``note``: not measured is not quiet.
    ``top`` are the first of those the surveys met, ``more`` tells of the rest; ``unnamed_seconds`` went to nobody
    that they met (``unnamed``: a hint at whom). ``waited_seconds``: how long the job's main threads stood in the run
    queue, each other's time in it included; ``runnable``: threads that ran or wanted to, on all cores of the
    machine, at the mean look.
    """

    foreign_share: float | None
    top: tuple[ForeignProcess, ...] = ()
    window_seconds: float = 0.0
    steal_seconds: float = 0.0
    note: str = ""
    more: str = ""
    unnamed_seconds: float = 0.0
    unnamed: str = ""
    waited_seconds: float = 0.0
    runnable: float = 0.0

    def is_quiet(self, limit: float) -> bool:
        """Whether others had at most ``limit`` (0.05 is 5%) of the cards' time."""
        return self.foreign_share is not None and self.foreign_share <= limit

    def describe(self) -> str:
        """One line for a verdict's reason."""
        if self.foreign_share is None:
            return f"contention not measured: {self.note}"
        text = f"{self.foreign_share:.1%} of the leased cards' time went to others"
        names = [*(each.describe() for each in self.top), *([self.more] if self.more else [])]
        if self.steal_seconds >= _TOLD_SECONDS:
            names.append(f"the hypervisor ({self.steal_seconds:.1f} s)")
        if self.unnamed_seconds >= _TOLD_SECONDS:
            hint = f", children of {self.unnamed}" if self.unnamed else ""
            names.append(f"processes that came and went, or interrupts ({self.unnamed_seconds:.1f} s{hint})")
        text = f"{text}: {', '.join(names)}" if names else text
        if self.waited_seconds < _TOLD_SECONDS:
            return text
        return f"{text}; the job's main threads waited {self.waited_seconds:.1f} s for a core"


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
    """One look: cumulative seconds of the leased cores, and of the job's processes as (seconds, last core).

    ``waited`` are the seconds that each process's main thread has stood in the run queue.
    """

    at: float
    busy_seconds: float
    steal_seconds: float
    own: Mapping[int, tuple[float, int]] = field(default_factory=dict)
    waited: Mapping[int, float] = field(default_factory=dict)
    runnable: int = 0


def contention_of(
    samples: Sequence[CpuSample],
    cores: Collection[int],
    window: tuple[float, float] | None,
    intervals: Sequence[Interval] = (),
) -> ContentionSample:
    """The share of ``window`` x cores that went neither to the job nor to idling.

    (busy - own + steal) / (window x cores), linear between looks. Own time is counted where the process
    last ran on a leased core. What the ``intervals`` between surveys name is who it was; the rest is counted too.
    Not measured when the looks do not enclose the window.
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
    waited = _between(times, _waited_seconds(samples), window)
    foreign = max(0.0, busy - own + steal)
    others = named(intervals, window)
    unnamed = foreign - steal - sum(each.seconds for each in others)
    inside = [sample.runnable for sample in samples if window[0] <= sample.at <= window[1]]
    return ContentionSample(
        foreign / (seconds * len(cores)),
        tuple(each for each in others[:_TOP] if each.seconds >= _TOLD_SECONDS),
        seconds,
        steal,
        more=_more([each.seconds for each in others[_TOP:]]),
        unnamed_seconds=max(0.0, unnamed),
        unnamed=parent_of_the_ended(intervals, window),
        waited_seconds=waited,
        runnable=sum(inside) / len(inside) if inside else 0.0,
    )


class CpuMeter:
    """Looks at the leased cores; the supervisor's own process counts as the job's. ``health`` is looked at with
    every survey of all processes."""

    def __init__(
        self,
        cores: Collection[int],
        *,
        processes: Processes | None = None,
        stat: Callable[[], str] | None = None,
        supervisor: int | None = None,
        health: CpuHealth | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        self._stat = stat or (proc / "stat").read_text
        self._cores = frozenset(cores) or frozenset(core_seconds(self._stat()))
        self._processes = processes or Processes(proc)
        self._supervisor = os.getpid() if supervisor is None else supervisor
        self._samples: list[CpuSample] = []
        self._surveyor = Surveyor(self._cores)
        self._health = health
        self._proc = proc

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        stat = self._stat()
        cores = core_seconds(stat)
        missing = self._cores - set(cores)
        if missing:
            raise LaunchError("/proc/stat", got=f"no core {min(missing)}", expected="every leased core online")
        mine = {self._supervisor, *own}
        looked = [process for process in map(self._processes.look, mine) if process is not None]
        if everyone is not None:
            self._surveyor.survey(at, [process for process in everyone if process.pid not in mine])
            if self._health is not None:
                self._health.sample(at, sum(process.major_faults for process in looked))
        self._samples.append(
            CpuSample(
                at,
                sum(cores[core][0] for core in self._cores),
                sum(cores[core][1] for core in self._cores),
                {process.pid: (process.cpu_seconds, process.processor) for process in looked},
                {process.pid: run_queue_seconds(process.pid, self._proc) for process in looked},
                runnable_threads(stat),
            )
        )

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        return contention_of(self._samples, self._cores, window, self._surveyor.intervals)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return self._health.unhealthy(window) if self._health is not None else ()

    def facts(self, window: tuple[float, float] | None) -> dict[str, str]:
        """What the window was like, for the result."""
        told = self._health.facts(window) if self._health is not None else {}
        sample = self.contention(window)
        if sample.foreign_share is None:
            return told
        queue = {"run_queue_seconds": f"{sample.waited_seconds:.2f}", "runnable_threads": f"{sample.runnable:.1f}"}
        return {**told, **queue}


def run_queue_seconds(pid: int, proc: Path = Path("/proc")) -> float:
    """How long the main thread has waited for a core (the kernel's schedstat); 0 where it is not told."""
    try:
        descriptor = os.open(f"{proc}/{pid}/schedstat", os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        return int(os.read(descriptor, 256).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
    finally:
        os.close(descriptor)


def runnable_threads(stat: str) -> int:
    """Threads that run or wait for a core, of the whole machine (proc(5), procs_running)."""
    _, found, rest = stat.rpartition("procs_running ")
    return int(rest.split(maxsplit=1)[0]) if found else 0


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


def _more(seconds: Sequence[float]) -> str:
    total = sum(seconds)
    others = f"{len(seconds)} other{'' if len(seconds) == 1 else 's'}"
    return f"{others} ({total:.1f} s)" if total >= _TOLD_SECONDS else ""


def _waited_seconds(samples: Sequence[CpuSample]) -> list[float]:
    """Cumulative seconds of the job in the run queue; a process that appears later counts from birth."""
    seen = dict(samples[0].waited)
    total, totals = 0.0, []
    for sample in samples:
        for pid, seconds in sample.waited.items():
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
