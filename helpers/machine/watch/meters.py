"""Watches the leased GPUs during a run (their state, and foreign processes on them), chooses the meter for a run's
cards, and decides when it looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from helpers.machine.devices import Card, CpuCard
from helpers.machine.nvml import Gpu, GpuSettings, Nvml, open_again, open_nvml
from helpers.machine.watch import Norm
from helpers.machine.watch.contention import ContentionSample, CpuMeter, ForeignProcess, Meter, owner_of, worst
from helpers.machine.watch.cpu_health import CpuHealth
from helpers.machine.watch.gpu_health import HealthSample, gpu_facts, unhealthy_reasons
from helpers.machine.watch.processes import JobProcesses, Process
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.steplog import StepLog

# The CPU time of a survey of some 130 processes. With a survey every 2 s (JobLimits) this is 0.2% of a core.
CHEAP_SURVEY_SECONDS = 0.004


def meter_for(
    cards: Sequence[Card],
    nvml: Callable[[], Nvml | str] = open_nvml,
    norm: Norm | None = None,
    *,
    cores: Sequence[Sequence[int]] = (),
    cards_per_process: int = 1,
) -> CpuMeter | GpuMeter:
    """The meter that watches the leased cards. Raises DeviceError if NVML is gone since it listed them.

    ``norm`` has the recorded clocks and power limits of the case (norm_of); with None nothing is compared.
    GPUs are watched together with ``cores``, to which the process of each is pinned; a process drives
    ``cards_per_process`` of them.
    """
    gpus = [card for card in cards if isinstance(card, Gpu)]
    if not gpus:
        every = [core for card in cards if isinstance(card, CpuCard) for core in card.cores]
        return CpuMeter(every, health=CpuHealth(every, norm))
    ranks = _ranks(gpus, cores, cards_per_process) if cores else {}
    every = sorted(set().union(*ranks.values()))
    on_cores = CpuMeter(every, health=CpuHealth(every, clocks=False), ranks=ranks) if ranks else None
    return GpuMeter(open_again(nvml), gpus, norm=norm, on_cores=on_cores)


def _ranks(gpus: Sequence[Gpu], cores: Sequence[Sequence[int]], each: int) -> dict[str, frozenset[int]]:
    """The cores of each process, by the names of its cards."""
    found = {}
    for first in range(0, len(gpus), each):
        name = ",".join(f"GPU{gpu.index}" for gpu in gpus[first : first + each])
        found[name] = frozenset().union(*cores[first : first + each])
    return found


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
    at that time is foreign. ``norm`` is as in ``meter_for``. ``on_cores`` watches the cores of the job's processes at
    the same looks, and a neighbour there counts as one on a card: it starves the readers.
    """

    def __init__(
        self,
        nvml: Nvml,
        gpus: Sequence[Gpu],
        *,
        norm: Norm | None = None,
        on_cores: CpuMeter | None = None,
        every_seconds: float = 0.5,
        proc: Path = Path("/proc"),
        owner: Callable[[int], str] = owner_of,
    ) -> None:
        self._nvml = nvml
        self._gpus = tuple(gpus)
        self._norm = norm
        self._on_cores = on_cores
        # Why the cores cannot be watched.
        self._unwatched = ""
        self._every = every_seconds
        self._proc = proc
        self._owner = owner
        self._before: dict[str, frozenset[int]] = {}
        # By card, the process that counts as the job's although its id is none here.
        self._unseen: dict[str, int] = {}
        self._foreign: list[tuple[float, frozenset[int]]] = []
        self._names: dict[int, tuple[str, str]] = {}
        self._drawing: dict[str, frozenset[int]] = {}
        self.samples: list[HealthSample] = []

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        due = everyone is not None or not self._foreign
        if not due and at - self._foreign[-1][0] < self._every:
            return
        foreign: set[int] = set()
        self._look_at_cores(at, own, everyone)
        for gpu in self._gpus:
            settings = self._look_closer(gpu) if due else None
            self.samples.append(HealthSample(at, gpu.uuid, self._nvml.state(gpu), settings))
            users = frozenset(self._nvml.compute_processes(gpu)) | self._drawing[gpu.uuid]
            foreign |= self._strangers(gpu.uuid, users, own)
        for pid in foreign - set(self._names):
            # The name is read now, since it cannot be read after the process has ended.
            self._names[pid] = (self._name(pid), self._owner(pid))
        self._foreign.append((at, frozenset(foreign)))

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        on_cards = self._on_cards(window)
        if self._on_cores is None:
            return on_cards
        if self._unwatched:
            return worst([on_cards, ContentionSample(None, note=self._unwatched)])
        return worst([on_cards, self._on_cores.contention(window)])

    def _on_cards(self, window: tuple[float, float] | None) -> ContentionSample:
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
        of_cores = self._on_cores.unhealthy(window) if self._on_cores is not None else ()
        return (*unhealthy_reasons(self.samples, self._gpus, window, self._norm), *of_cores)

    def facts(self, window: tuple[float, float] | None) -> dict[str, str]:
        """The medians of the window that a result keeps."""
        found = gpu_facts(self.samples, self._gpus, window)
        if self._on_cores is None:
            return found
        of_cores = self._on_cores.facts(window)
        unseen = [each["not_measured"] for each in (found, of_cores) if each.get("not_measured")]
        return {**of_cores, **found, **({"not_measured": "; ".join(unseen)} if unseen else {})}

    def _look_at_cores(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        if self._on_cores is None or self._unwatched:
            return
        try:
            self._on_cores.sample(at, own, everyone)
        except LaunchError as error:
            # Some containers show the kernel's list of cores under other numbers. The cards are watched nevertheless.
            self._unwatched = str(error)

    def _look_closer(self, gpu: Gpu) -> GpuSettings:
        self._drawing[gpu.uuid] = frozenset(self._nvml.drawing_processes(gpu))
        return self._nvml.settings(gpu)

    def _strangers(self, card: str, users: frozenset[int], own: Collection[int]) -> set[int]:
        """The processes among ``users`` of a card that do not belong to the job.

        In a container NVML may give process ids of the host, which do not show whether a process is the job's. However
        many cards a process of the job drives, one process drives each card. So the first of these processes on a card
        counts as the job's, unless it was there before the job.
        """
        before = self._before.setdefault(card, users)
        new = users - before
        unseen = () if new & set(own) else sorted(pid for pid in new if not (self._proc / str(pid)).exists())
        if unseen and self._unseen.get(card) not in unseen:
            self._unseen[card] = unseen[0]
        ours = {*own, self._unseen[card]} if unseen else set(own)
        return {*(users & before), *(new - ours)}

    def _name(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            return "a process of another container"
