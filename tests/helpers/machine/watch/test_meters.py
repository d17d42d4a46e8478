from __future__ import annotations

from pathlib import Path

import pytest

from helpers.machine.devices import CpuCard
from helpers.machine.watch.contention import CpuMeter
from helpers.machine.watch.meters import GpuMeter, meter_for, window_facts
from helpers.machine.watch.norm import norm_of
from helpers.machine.watch.processes import Processes
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.steplog import COMPLETE, WARMUP, WINDOW, Footer, Header, Step, StepLog
from tests.helpers.machine.watch.test_gpu_health import GPU, StandInNvml

ENTRY = {"card_ids": "GPU-a", "power_limit_watts": "250", "cpu_mhz": "3000"}


def log(rank: int, start: float) -> StepLog:
    """A step of warm-up and two of the window, a second each."""
    header = Header("j", "c", 0, rank, 2, "h", 1, "paddle", "3", "", "gpu")
    steps = tuple(Step(0, n, WINDOW if n else WARMUP, start + n, start + n + 1, 8, 0.0) for n in range(3))
    return StepLog(f"rank{rank}", header, steps, Footer(COMPLETE))


def test_cards_are_watched_by_what_they_are() -> None:
    on_cores = meter_for((CpuCard(0, (0,)), CpuCard(1, (1,))), lambda: "no NVML")
    assert isinstance(on_cores, CpuMeter)
    assert isinstance(meter_for((GPU,), StandInNvml), GpuMeter)
    with pytest.raises(DeviceError, match="no NVML"):
        meter_for((GPU,), lambda: "no NVML")


def test_a_meter_holds_the_cards_against_its_norm() -> None:
    meter = meter_for((GPU,), StandInNvml, norm_of(ENTRY, (GPU,), to_record=False))
    for at in (1.0, 11.5, 12.5):
        meter.sample(at, (), [])
    assert "power cap 300 W, recorded at 250 W" in meter.unhealthy((11.0, 13.0))[0]


def test_the_facts_are_of_this_nodes_window() -> None:
    meter = meter_for((GPU,), StandInNvml)
    for at in (1.0, 11.5, 12.5, 31.5):
        meter.sample(at, (), [])
    facts = window_facts(meter, [log(0, 10.0), log(1, 30.0)], ranks=1)
    assert facts["sm_clock_mhz"] == "1290"
    assert window_facts(meter, [log(0, 40.0)], ranks=1) == {}
    assert window_facts(meter, [], ranks=1) == {}


def test_the_real_processor_tells_a_clock_or_why_it_does_not() -> None:
    core = CpuCard(0, (0,))
    meter = meter_for((core,))
    for at in (9.0, 15.0, 21.0):
        meter.sample(at, (), Processes().all())
    facts = meter.facts((10.0, 20.0))
    assert "cpu_mhz" in facts or "core frequency" in facts["not_measured"]
    assert (
        Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq").exists()
        or "frequency cap" in facts["not_measured"]
    )
