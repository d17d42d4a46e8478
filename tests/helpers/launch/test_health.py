from pathlib import Path

import pytest

from helpers.launch.health import GpuMeter, HealthSample, unhealthy_reasons
from helpers.nvml import Gpu, GpuState

GPU = Gpu(0, "GPU-a", "Tesla V100-SXM2-16GB", 16 * 1024**3, (7, 0), 300)
WINDOW = (10.0, 20.0)


def state(throttle: int = 0, ecc: int = 0) -> GpuState:
    return GpuState(1290, 82, 290.0, throttle, ecc)


class StandInNvml:
    """One GPU whose users and throttle reasons a test sets."""

    def __init__(self) -> None:
        self.users: tuple[int, ...] = ()
        self.now = state()
        self.looks = 0

    def driver(self) -> str:
        return "525"

    def cuda_driver(self) -> str:
        return "12.0"

    def gpus(self) -> tuple[Gpu, ...]:
        return (GPU,)

    def state(self, gpu: Gpu) -> GpuState:
        self.looks += 1
        return self.now

    def compute_processes(self, gpu: Gpu) -> tuple[int, ...]:
        return self.users


def metered(proc: Path, before: tuple[int, ...], during: tuple[int, ...], own: tuple[int, ...]) -> GpuMeter:
    nvml = StandInNvml()
    meter = GpuMeter(nvml, [GPU], proc=proc)
    nvml.users = before
    meter.sample(0.0, (), None)
    nvml.users = during
    for at in range(10, 21):
        meter.sample(float(at), own, None)
    return meter


@pytest.mark.parametrize(
    ("bits", "name"),
    [(0x08, "hardware slowdown"), (0x20, "software thermal"), (0x40, "hardware thermal"), (0x80, "power brake")],
)
def test_a_throttled_card_is_unhealthy_and_says_how_far(bits: int, name: str) -> None:
    samples = [HealthSample(12.0, "GPU-a", state()), HealthSample(13.0, "GPU-a", state(bits))]
    (reason,) = unhealthy_reasons(samples, ["GPU-a"], WINDOW)
    assert name in reason and "1 of 2 looks, down to 1290 MHz, up to 82 °C" in reason


def test_idling_application_clocks_and_the_power_cap_are_healthy() -> None:
    assert unhealthy_reasons([HealthSample(12.0, "GPU-a", state(0x01 | 0x02 | 0x04 | 0x10))], ["GPU-a"], WINDOW) == ()


def test_throttling_outside_the_window_does_not_count() -> None:
    samples = [HealthSample(5.0, "GPU-a", state(0x40)), HealthSample(12.0, "GPU-a", state())]
    assert unhealthy_reasons(samples, ["GPU-a"], WINDOW) == ()


def test_an_uncorrected_ecc_error_is_unhealthy() -> None:
    (reason,) = unhealthy_reasons([HealthSample(12.0, "GPU-a", state(ecc=2))], ["GPU-a"], WINDOW)
    assert "2 uncorrected ECC errors" in reason


def test_a_card_without_a_look_is_not_healthy() -> None:
    assert unhealthy_reasons([], ["GPU-a"], WINDOW) == ("GPU-a: no look at it during the window",)


def test_the_jobs_own_process_is_not_foreign(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    contention = metered(tmp_path, (), (42,), (42,)).contention(WINDOW)
    assert contention.foreign_share == 0.0 and contention.is_quiet(0.05)


def test_another_process_on_the_card_is_named(tmp_path: Path) -> None:
    for pid, name in ((42, "python"), (77, "miner")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(name + "\n")
    contention = metered(tmp_path, (), (42, 77), (42,)).contention(WINDOW)
    assert contention.foreign_share == 1.0
    assert "miner (pid 77" in contention.describe()


def test_who_sat_on_the_card_before_the_job_is_foreign_even_unseen(tmp_path: Path) -> None:
    contention = metered(tmp_path, (9000,), (9000, 9001), ()).contention(WINDOW)
    assert [each.pid for each in contention.top] == [9000]


def test_in_a_container_as_many_unseen_processes_pass_as_there_are_ranks(tmp_path: Path) -> None:
    assert metered(tmp_path, (), (9001,), (42,)).contention(WINDOW).foreign_share == 0.0
    assert metered(tmp_path, (), (9001, 9002), (42,)).contention(WINDOW).foreign_share == 1.0


def test_without_a_window_or_a_look_nothing_was_measured(tmp_path: Path) -> None:
    meter = metered(tmp_path, (), (), ())
    assert meter.contention(None).foreign_share is None
    assert meter.contention((30.0, 31.0)).foreign_share is None


def test_nvml_is_asked_sparingly(tmp_path: Path) -> None:
    nvml = StandInNvml()
    meter = GpuMeter(nvml, [GPU], every_seconds=0.5, proc=tmp_path)
    for poll in range(20):
        meter.sample(poll * 0.1, (), None)
    assert nvml.looks == 4
    assert len(meter.samples) == 4


def test_the_meter_reports_throttling_in_the_window(tmp_path: Path) -> None:
    nvml = StandInNvml()
    meter = GpuMeter(nvml, [GPU], proc=tmp_path)
    meter.sample(11.0, (), None)
    nvml.now = state(0x40)
    meter.sample(12.0, (), None)
    assert "hardware thermal slowdown in 1 of 2 looks" in meter.unhealthy(WINDOW)[0]
    assert meter.unhealthy(None) == ()
