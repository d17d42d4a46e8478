"""Who watches which cards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers.devices import Card, CpuCard
from helpers.errors import DeviceError
from helpers.launch.contention import CpuMeter, Meter
from helpers.launch.health import GpuMeter
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
