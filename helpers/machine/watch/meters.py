"""Watches the leased GPUs during a run (their state, and foreign processes on them), chooses the meter for a run's
cards, and decides when it looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from helpers.machine.devices import Card, CpuCard
from helpers.machine.nvml import Gpu, GpuSettings, Nvml, open_nvml
from helpers.machine.watch import Norm
from helpers.machine.watch.contention import ContentionSample, CpuMeter, ForeignProcess, Meter, owner_of
from helpers.machine.watch.cpu_health import CpuHealth
from helpers.machine.watch.gpu_health import HealthSample, gpu_facts, unhealthy_reasons
from helpers.machine.watch.processes import JobProcesses, Process
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.steplog import StepLog

# The CPU time of a survey of some 130 processes. With a survey every 2 s (JobLimits) this is 0.2% of a core.
CHEAP_SURVEY_SECONDS = 0.004


def meter_for(
    cards: Sequence[Card],
    nvml: Callable[[], Nvml | str] = open_nvml,
    norm: Norm | None = None,
    *,
    processes: int | None = None,
) -> CpuMeter | GpuMeter:
    """The meter that watches the leased cards. Raises DeviceError if NVML is gone since it listed them.

    ``norm`` has the recorded clocks and power limits of the case (norm_of); with None nothing is compared.
    ``processes`` is how many processes of the job drive the cards; with None, one drives each card.
    """
    gpus = [card for card in cards if isinstance(card, Gpu)]
    if not gpus:
        cores = [core for card in cards if isinstance(card, CpuCard) for core in card.cores]
        return CpuMeter(cores, health=CpuHealth(cores, norm))
    found = nvml()
    if isinstance(found, str):
        raise DeviceError("NVML", got=found, expected="the library that listed the cards", remedy="Check the driver")
    return GpuMeter(found, gpus, norm=norm, processes=processes)


def window_facts(meter: CpuMeter | GpuMeter, logs: Sequence[StepLog], ranks: int) -> dict[str, str]:
    """The facts of the cards in the measured window of this node. Its ``ranks`` are the first of the logs; empty
    without logs."""
    window = window_of(logs[:ranks])
    return meter.facts(window) if window else {}


def window_of(logs: Sequence[StepLog]) -> tuple[float, float] | None:
    """Start and end of the measured window of ranks on one host, in seconds; clocks of different hosts cannot be
    compared."""
    steps = [step for log in logs for step in log.window]
    return (min(step.start for step in steps), max(step.end for step in steps)) if steps else None


class CardWatch:
    """Has a meter sample at every look. Since listing all processes takes time, the meter gets the list only every
    ``survey_seconds``.

    If there are so many processes that a list takes more than CHEAP_SURVEY_SECONDS of CPU time (``spent``), the next
    list is delayed by the same factor. So surveys take the same share of a core on a crowded machine as on a quiet one.
    """

    def __init__(
        self,
        meter: Meter,
        job: JobProcesses,
        clock: Callable[[], float],
        survey_seconds: float,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._meter = meter
        self._job = job
        self._clock = clock
        self._survey_seconds = self._pause_seconds = survey_seconds
        self._spent = spent
        self._own: tuple[int, ...] = ()
        self._surveyed: float | None = None

    def look(self, survey: bool) -> None:
        """Sample now; with ``survey`` all processes are listed, even if they were listed recently."""
        now = self._clock()
        others = None
        if survey or self._surveyed is None or now - self._surveyed >= self._pause_seconds:
            began = self._spent()
            mine, others = self._job.survey()
            self._pause_seconds = self._survey_seconds * max(1.0, (self._spent() - began) / CHEAP_SURVEY_SECONDS)
            self._own = tuple(process.pid for process in mine)
            self._surveyed = now
            now = self._clock()
        self._meter.sample(now, self._own, others)


class GpuMeter:
    """Implements Meter for GPUs. It looks at most once every ``every_seconds``, since NVML's answers take milliseconds.

    At every survey of all processes, which includes the first and the last look, it also reads the cards' settings and
    the processes with a graphics context. The first look must come before the job starts: a process that is on a card
    at that time is foreign. ``norm`` and ``processes`` are as in ``meter_for``.
    """

    def __init__(
        self,
        nvml: Nvml,
        gpus: Sequence[Gpu],
        *,
        norm: Norm | None = None,
        processes: int | None = None,
        every_seconds: float = 0.5,
        proc: Path = Path("/proc"),
        owner: Callable[[int], str] = owner_of,
    ) -> None:
        self._nvml = nvml
        self._gpus = tuple(gpus)
        self._norm = norm
        self._processes = len(self._gpus) if processes is None else processes
        self._every = every_seconds
        self._proc = proc
        self._owner = owner
        self._before: dict[str, frozenset[int]] = {}
        self._foreign: list[tuple[float, frozenset[int]]] = []
        self._names: dict[int, tuple[str, str]] = {}
        self._drawing: dict[str, frozenset[int]] = {}
        self.samples: list[HealthSample] = []

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        due = everyone is not None or not self._foreign
        if not due and at - self._foreign[-1][0] < self._every:
            return
        foreign: set[int] = set()
        for gpu in self._gpus:
            settings = self._look_closer(gpu) if due else None
            self.samples.append(HealthSample(at, gpu.uuid, self._nvml.state(gpu), settings))
            users = frozenset(self._nvml.compute_processes(gpu)) | self._drawing[gpu.uuid]
            before = self._before.setdefault(gpu.uuid, users)
            foreign |= self._strangers(users, before, own)
        for pid in foreign - set(self._names):
            # The name is read now, since it cannot be read after the process has ended.
            self._names[pid] = (self._name(pid), self._owner(pid))
        self._foreign.append((at, frozenset(foreign)))

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        if window is None or window[1] <= window[0]:
            return ContentionSample(None, note="the run has no measured window")
        looks = [pids for at, pids in self._foreign if window[0] <= at <= window[1]]
        if not looks:
            return ContentionSample(None, note="no look at the cards during the measured window")
        seconds = window[1] - window[0]
        pids = sorted(set().union(*looks))
        shares = {pid: sum(pid in look for look in looks) / len(looks) for pid in pids}
        top = tuple(
            ForeignProcess(self._names[pid][0], pid, shares[pid] * seconds, self._names[pid][1]) for pid in pids
        )
        return ContentionSample(sum(bool(look) for look in looks) / len(looks), top, seconds)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return unhealthy_reasons(self.samples, self._gpus, window, self._norm)

    def facts(self, window: tuple[float, float] | None) -> dict[str, str]:
        """The medians of the window that a result keeps."""
        return gpu_facts(self.samples, self._gpus, window)

    def _look_closer(self, gpu: Gpu) -> GpuSettings:
        self._drawing[gpu.uuid] = frozenset(self._nvml.drawing_processes(gpu))
        return self._nvml.settings(gpu)

    def _strangers(self, users: frozenset[int], before: frozenset[int], own: Collection[int]) -> set[int]:
        """The processes on a card that do not belong to the job.

        In a container NVML may give process ids of the host, which do not show whether a process is a rank of the job.
        So as many of these processes as the job has ranks count as the job's, unless they were there before the job.
        """
        new = users - before
        unseen = sorted(pid for pid in new if not (self._proc / str(pid)).exists())
        allowed = set(unseen[: self._processes]) if not new & set(own) else set()
        return set(users & before) | {pid for pid in new if pid not in own and pid not in allowed}

    def _name(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            return "a process of another container"
