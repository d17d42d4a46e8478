"""Chooses the meter that watches the leased cards, and decides when it looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from helpers.machine.devices import Card, CpuCard
from helpers.machine.nvml import Gpu, Nvml, open_nvml
from helpers.machine.watch.contention import CpuMeter, Meter
from helpers.machine.watch.cpu_health import CpuHealth
from helpers.machine.watch.health import GpuMeter
from helpers.machine.watch.norm import Norm, norm_of
from helpers.machine.watch.processes import JobProcesses
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.steplog import StepLog

# The CPU time of a survey of some 130 processes; every 2 s (JobLimits) that is 0.2% of a core.
CHEAP_SURVEY_SECONDS = 0.004


def meter_for(
    cards: Sequence[Card], nvml: Callable[[], Nvml | str] = open_nvml, norm: Norm | None = None
) -> CpuMeter | GpuMeter:
    """The meter that watches the leased cards. Raises DeviceError where NVML is gone since it listed them.

    ``norm`` is what the case was recorded at (norm_for); with None nothing is compared.
    """
    gpus = [card for card in cards if isinstance(card, Gpu)]
    if not gpus:
        cores = [core for card in cards if isinstance(card, CpuCard) for core in card.cores]
        return CpuMeter(cores, health=CpuHealth(cores, norm))
    found = nvml()
    if isinstance(found, str):
        raise DeviceError("NVML", got=found, expected="the library that listed the cards", remedy="Check the driver")
    return GpuMeter(found, gpus, norm=norm)


def norm_for(cards: Sequence[Card], recorded: Mapping[str, str] | None, to_record: bool) -> Norm | None:
    """What the leased cards should run at, by the environment of the case's recorded entry; ``recorded`` is None where
    there is none."""
    return norm_of(recorded, [card.uuid for card in cards if isinstance(card, Gpu)], to_record)


def window_facts(meter: CpuMeter | GpuMeter, logs: Sequence[StepLog], ranks: int) -> dict[str, str]:
    """The facts of the cards in the window of this node's ``ranks``, which come first; empty without logs."""
    steps = [step for log in logs[:ranks] for step in log.window]
    return meter.facts((min(step.start for step in steps), max(step.end for step in steps))) if steps else {}


class CardWatch:
    """Lets a meter sample at every look, and gives it all processes every ``survey_seconds``, since listing them is
    expensive.

    Where so many processes run that a list takes more than CHEAP_SURVEY_SECONDS of CPU time (``spent``), the next one
    is made later by the same factor. So surveys take no larger share of a core on a crowded machine than on a quiet
    one.
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
        """Sample now; with ``survey`` all processes are listed, whenever that was done last."""
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
