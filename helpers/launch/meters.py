"""Who watches which cards, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers.devices import Card, CpuCard
from helpers.errors import DeviceError
from helpers.launch.contention import CpuMeter, Meter
from helpers.launch.health import GpuMeter
from helpers.launch.processes import JobProcesses
from helpers.nvml import Gpu, Nvml, open_nvml


def meter_for(cards: Sequence[Card], nvml: Callable[[], Nvml | str] = open_nvml) -> Meter:
    """Watches the leased cards from outside; DeviceError where NVML is gone since it listed them."""
    gpus = [card for card in cards if isinstance(card, Gpu)]
    if not gpus:
        return CpuMeter([core for card in cards if isinstance(card, CpuCard) for core in card.cores])
    found = nvml()
    if isinstance(found, str):
        raise DeviceError("NVML", got=found, expected="the library that listed the cards", remedy="Check the driver")
    return GpuMeter(found, gpus)


class CardWatch:
    """Shows a meter the cards at every look, and every ``survey_seconds`` all processes too: they are dear to list."""

    def __init__(self, meter: Meter, job: JobProcesses, clock: Callable[[], float], survey_seconds: float) -> None:
        self._meter = meter
        self._job = job
        self._clock = clock
        self._survey_seconds = survey_seconds
        self._own: tuple[int, ...] = ()
        self._surveyed: float | None = None

    def look(self, survey: bool) -> None:
        """Sample now; ``survey``: whenever the last survey was."""
        now = self._clock()
        others = None
        if survey or self._surveyed is None or now - self._surveyed >= self._survey_seconds:
            mine, others = self._job.survey()
            self._own = tuple(process.pid for process in mine)
            self._surveyed = now
            now = self._clock()
        self._meter.sample(now, self._own, others)
