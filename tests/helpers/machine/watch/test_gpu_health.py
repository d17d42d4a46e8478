import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.machine.nvml import Gpu, GpuSettings, GpuState
from helpers.machine.watch import Norm
from helpers.machine.watch.gpu_health import (
    THROTTLE_REASONS,
    HealthSample,
    facts_of_nodes,
    gpu_facts,
    unhealthy_reasons,
)
from helpers.machine.watch.meters import GpuMeter
from tests.helpers import machines
from tests.helpers.machines import write

GPU = Gpu(0, "GPU-a", "Tesla V100-SXM2-16GB", 16 * 1024**3, (7, 0), 300)
WINDOW = (10.0, 20.0)


USUAL = GpuSettings(300, 300, 1290, 1290, 90, False, 3, 16, (True,) * 6)
RECORDED = Norm(True, frozenset({300}), {"sm_clock_mhz": (1290.0,), "memory_clock_mhz": (877.0,)})


def state(throttle: int = 0, ecc: int = 0, mhz: int = 1290, hot: int = 82) -> GpuState:
    return GpuState(mhz, hot, 290.0, throttle, ecc, 877)


def reasons(states: Sequence[GpuState], settings: GpuSettings = USUAL, norm: Norm | None = None) -> tuple[str, ...]:
    """Of one card with these states in the window, after a quiet look before it."""
    inside = [HealthSample(11.0 + at, GPU.uuid, each, settings) for at, each in enumerate(states)]
    return unhealthy_reasons([HealthSample(1.0, GPU.uuid, state(), settings), *inside], [GPU], WINDOW, norm)


class StandInNvml(machines.StandInNvml):
    """One GPU whose users and throttle reasons a test sets."""

    def __init__(self) -> None:
        super().__init__((GPU,), {})
        self.users: tuple[int, ...] = ()
        self.drawers: tuple[int, ...] = ()
        self.now = state()
        self.limits = USUAL
        self.looks = 0
        self.closer_looks = 0

    def state(self, gpu: Gpu) -> GpuState:
        self.looks += 1
        return self.now

    def settings(self, gpu: Gpu) -> GpuSettings:
        self.closer_looks += 1
        return self.limits

    def compute_processes(self, gpu: Gpu) -> tuple[int, ...]:
        return self.users

    def drawing_processes(self, gpu: Gpu) -> tuple[int, ...]:
        return self.drawers


@pytest.mark.parametrize("bits", THROTTLE_REASONS)
def test_a_throttled_card_is_unhealthy_and_says_how_far(bits: int) -> None:
    samples = [HealthSample(12.0, "GPU-a", state()), HealthSample(13.0, "GPU-a", state(bits))]
    (reason,) = unhealthy_reasons(samples, [GPU], WINDOW)
    assert reason.startswith(f"GPU-a: {THROTTLE_REASONS[bits]} in 50.0% of the looks (1 of 2; 2% may be), down to 1290")
    # Before the window it does not count.
    assert unhealthy_reasons([HealthSample(5.0, "GPU-a", state(bits)), samples[0]], [GPU], WINDOW) == ()


def test_idling_application_clocks_and_the_power_cap_are_healthy_and_a_card_without_a_look_is_not() -> None:
    assert unhealthy_reasons([HealthSample(12.0, "GPU-a", state(0x01 | 0x02 | 0x04))], [GPU], WINDOW) == ()
    assert unhealthy_reasons([], [GPU], WINDOW) == ("GPU-a: no look at it during the window",)


def looked_at(*seen: tuple[int, GpuState]) -> list[HealthSample]:
    """So many looks with each state, in WINDOW, as many as an hour has."""
    states = [each for times, each in seen for _ in range(times)]
    step = (WINDOW[1] - WINDOW[0]) / len(states)
    return [HealthSample(WINDOW[0] + at * step, GPU.uuid, each, USUAL) for at, each in enumerate(states)]


@pytest.mark.slow
@pytest.mark.parametrize("bits", [0x08, 0x48])
@pytest.mark.parametrize(("slowed", "fit"), [(1, True), (100, True), (101, False), (5000, False)])
def test_a_card_is_throttled_by_the_share_of_its_looks_and_not_by_one_of_thousands(
    bits: int, slowed: int, fit: bool
) -> None:
    samples = looked_at((5000 - slowed, state()), (slowed, state(bits, mhz=900)))
    found = unhealthy_reasons(samples, [GPU], WINDOW, Norm())
    assert (found == ()) is fit
    assert fit or f"in {slowed / 5000:.1%} of the looks ({slowed} of 5000; 2% may be), down to 900 MHz" in found[0]
    # Also where it is not held against the run, it is shown.
    shown = gpu_facts(samples, [GPU], WINDOW)["gpu_clocks_held_by"]
    assert shown.endswith("0.02%" if slowed == 1 else f"{slowed / 5000:.0%}")


def test_reasons_that_take_turns_slow_the_card_together() -> None:
    samples = looked_at((980, state()), (10, state(0x20)), (11, state(0x80)))
    thermal, brake = unhealthy_reasons(samples, [GPU], WINDOW)
    assert "software thermal slowdown in 1.0% of the looks (10 of 1001" in thermal
    assert "hardware power brake in 1.1% of the looks (11 of 1001" in brake


def test_a_low_power_cap_that_held_a_card_back_in_one_look_of_thousands_did_not_slow_it() -> None:
    low = replace(USUAL, power_limit_watts=200)
    for held, fit in ((1, True), (500, False)):
        samples = [replace(each, settings=low) for each in looked_at((5000 - held, state()), (held, state(0x04)))]
        assert (unhealthy_reasons(samples, [GPU], WINDOW, Norm()) == ()) is fit


def test_uncorrected_ecc_errors_that_rose_since_the_first_look_and_memory_to_be_retired_are_unhealthy() -> None:
    (reason,) = reasons([state(ecc=2)])
    assert "2 uncorrected ECC errors during the run" in reason
    old = [HealthSample(at, GPU.uuid, state(ecc=5)) for at in (1.0, 12.0)]
    assert unhealthy_reasons(old, [GPU], WINDOW) == ()
    ecc = [(1.0, 0), (5.0, 1), (12.0, 1)]
    risen = [HealthSample(at, GPU.uuid, state(ecc=errors)) for at, errors in ecc]
    (before,) = unhealthy_reasons(risen, [GPU], WINDOW)
    assert "1 uncorrected" in before
    (reason,) = reasons([state()], replace(USUAL, pages_pending=True))
    assert "wait to be retired or remapped" in reason


@pytest.mark.parametrize(
    ("hot", "share", "fit"), [(86, 0.5, True), (88, 0.0002, True), (87, 0.1, False), (95, 0.5, False)]
)
def test_a_card_that_is_often_close_to_its_slowdown_temperature_is_unhealthy(hot: int, share: float, fit: bool) -> None:
    close = round(5000 * share)
    found = unhealthy_reasons(looked_at((5000 - close, state()), (close, state(hot=hot))), [GPU], WINDOW)
    assert (found == ()) is fit
    assert fit or f"{hot} °C, and it slows down at 90 °C; within 3 °C of that in {share:.1%}" in found[0]


def test_a_card_that_tells_no_limits_is_judged_by_what_it_tells() -> None:
    assert reasons([state(hot=99)], GpuSettings(), RECORDED) == ()


# --- the power cap and the clocks against what was recorded, else against the card's defaults


def test_another_power_cap_than_recorded_is_unhealthy_whichever_way() -> None:
    low = replace(RECORDED, power_limits_watts=frozenset({250}))
    (reason,) = reasons([state()], norm=low)
    assert "power cap 300 W, recorded at 250 W (sudo nvidia-smi -i 0 -pl 250, or record with --update" in reason
    (reason,) = reasons([state()], replace(USUAL, power_limit_watts=200), RECORDED)
    assert "power cap 200 W, recorded at 300 W" in reason
    assert reasons([state(0x04)], replace(USUAL, power_limit_watts=250), low) == ()


def test_without_an_entry_a_cap_below_the_default_counts_where_it_held_the_card_back() -> None:
    capped = replace(USUAL, power_limit_watts=200)
    (reason,) = reasons([state(0x04)], capped, Norm())
    assert "held back by a power cap of 200 W, by default 300 W (sudo nvidia-smi -i 0 -pl 300" in reason
    assert reasons([state()], capped, Norm()) == ()
    assert reasons([state(0x04)], USUAL, Norm()) == ()


def test_while_a_new_entry_is_recorded_neither_cap_nor_clock_stops_it() -> None:
    settings = replace(USUAL, power_limit_watts=200, applications_clock_mhz=900)
    assert reasons([state(0x04, mhz=700)], settings, None) == ()


def test_a_cap_that_changes_in_the_window_is_told() -> None:
    samples = [HealthSample(at, GPU.uuid, state(), replace(USUAL, power_limit_watts=watts))
               for at, watts in ((1.0, 300), (12.0, 300), (15.0, 250))]  # fmt: skip
    found = unhealthy_reasons(samples, [GPU], WINDOW, Norm())
    assert found == ("GPU-a: power cap changed during the run: 300 W, 300 W, 250 W",)


def test_a_median_clock_far_from_the_recorded_one_is_unhealthy() -> None:
    (reason,) = reasons([state(mhz=1100), state(mhz=1100), state(mhz=1290)], norm=RECORDED)
    assert "median SM clock 1100 MHz, recorded at 1290 MHz" in reason and "-rac" in reason
    assert reasons([state(mhz=1250)], norm=RECORDED) == ()
    (memory,) = reasons([replace(state(), memory_clock_mhz=700)], norm=RECORDED)
    assert "median memory clock 700 MHz, recorded at 877 MHz" in memory


def test_a_clock_that_idling_or_the_power_cap_explains_is_the_builds_own() -> None:
    assert reasons([state(0x01, mhz=135), state()], norm=RECORDED) == ()
    assert reasons([state(0x04, mhz=1100), state(0x04, mhz=1100), state(mhz=1100)], norm=RECORDED) == ()


def test_applications_clocks_below_the_default_count_without_an_entry() -> None:
    (reason,) = reasons([state()], replace(USUAL, applications_clock_mhz=900), Norm())
    assert "applications clock 900 MHz, by default 1290 MHz (sudo nvidia-smi -i 0 -rac" in reason
    assert reasons([state()], replace(USUAL, applications_clock_mhz=900), RECORDED) == ()


def test_the_window_is_told_in_medians_a_card() -> None:
    other = replace(GPU, index=1, uuid="GPU-b")
    samples = [HealthSample(at, uuid, state(0x04, mhz=mhz, hot=hot), USUAL) for at, uuid, mhz, hot in (
        (1.0, "GPU-a", 100, 99), (11.0, "GPU-a", 1200, 70), (12.0, "GPU-a", 1290, 80), (13.0, "GPU-a", 1300, 75),
        (12.0, "GPU-b", 1400, 60))]  # fmt: skip
    assert gpu_facts(samples, [GPU, other], WINDOW) == {
        "sm_clock_mhz": "1290 1400",
        "memory_clock_mhz": "877 877",
        "gpu_temperature_c": "75 60",
        "gpu_hottest_c": "80 60",
        "gpu_power_watts": "290 290",
        "gpu_power_limit_watts": "300 300",
        "gpu_uncorrected_ecc": "0 0",
        "gpu_clocks_held_by": "software power cap 100%",
        "gpu_pcie_link": "gen3-x16 gen3-x16",
        "gpu_nvlinks_active": "6-of-6 6-of-6",
        "not_measured": "Xid errors (the suite does not read the kernel's log)",
    }
    assert gpu_facts(samples, [GPU], None) == {}
    assert gpu_facts([], [GPU], WINDOW) == {}
    silent = gpu_facts([HealthSample(12.0, "GPU-a", replace(state(), memory_clock_mhz=0))], [GPU], WINDOW)
    assert "memory_clock_mhz" not in silent and "power limit watts (NVML does not say)" in silent["not_measured"]


def test_the_links_are_those_of_the_window_and_what_nvml_does_not_say_is_unknown() -> None:
    idle, narrow = replace(USUAL, pcie_generation=1), replace(USUAL, pcie_width=8, nvlinks=(True,) * 5 + (False,))
    looks = [(1.0, idle), (11.0, narrow), (13.0, narrow), (14.0, narrow), (15.0, idle), (25.0, idle)]
    facts = gpu_facts([HealthSample(at, "GPU-a", state(), each) for at, each in looks], [GPU], WINDOW)
    assert (facts["gpu_pcie_link"], facts["gpu_nvlinks_active"]) == ("gen3-x8", "5-of-6")
    silent = gpu_facts([HealthSample(12.0, "GPU-a", state(), GpuSettings())], [GPU], WINDOW)
    assert (silent["gpu_pcie_link"], silent["gpu_nvlinks_active"]) == ("unknown", "unknown")
    assert "nvlinks (NVML does not say)" in silent["not_measured"]
    without = gpu_facts([HealthSample(12.0, "GPU-a", state(), replace(USUAL, nvlinks=()))], [GPU], WINDOW)
    assert without["not_measured"] == "Xid errors (the suite does not read the kernel's log)"


def test_the_clocks_of_all_nodes_are_kept_in_node_order_and_go_into_an_entry() -> None:
    first, second = {"sm_clock_mhz": "1290 1305", "memory_clock_mhz": "877 877", "not_measured": "x"}, {
        "sm_clock_mhz": "1312 1100", "not_measured": "y"}  # fmt: skip
    assert facts_of_nodes([first, second]) == {**first, "sm_clock_mhz": "1290 1305 1312 1100"}
    assert facts_of_nodes([first, {}]) == first
    assert facts_of_nodes([{}, second]) == {}


def metered(
    proc: Path, before: tuple[int, ...], during: tuple[int, ...], own: tuple[int, ...], drawing: tuple[int, ...] = ()
) -> GpuMeter:
    """After a look before the job, and looks in WINDOW; two processes have names, and are gone at the end."""
    nvml = StandInNvml()
    meter = GpuMeter(nvml, [GPU], proc=proc, owner=lambda pid: "ann")
    write(proc, {"42/comm": "python\n", "77/comm": "miner\n"})
    nvml.users = before
    meter.sample(0.0, (), [])
    nvml.users, nvml.drawers = during, drawing
    for at in range(10, 21):
        meter.sample(float(at), own, [])
    shutil.rmtree(proc)
    return meter


@pytest.mark.parametrize(
    ("before", "during", "drawing", "foreign"),
    [
        ((), (42,), (), ()),
        ((), (42, 77), (), (77,)),
        ((), (42,), (77,), (77,)),
        # On the card before the job, and not to be seen here.
        ((9000,), (9000, 42), (), (9000,)),
    ],
    ids=["its own", "another", "who draws", "who was there"],
)
def test_another_process_on_the_card_is_foreign_and_the_jobs_own_is_not(
    tmp_path: Path, before: tuple[int, ...], during: tuple[int, ...], drawing: tuple[int, ...], foreign: tuple[int, ...]
) -> None:
    contention = metered(tmp_path, before, during, (42,), drawing).contention(WINDOW)
    assert contention.foreign_share == float(bool(foreign)) and contention.is_quiet(0.05) is not bool(foreign)
    assert tuple(each.pid for each in contention.top) == foreign
    assert 77 not in foreign or "miner (pid 77, user ann, 10.0 s)" in contention.describe()


class Container(StandInNvml):
    """A node of eight cards, whose NVML names processes as the host counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.by_card: dict[int, tuple[int, ...]] = {}

    def compute_processes(self, gpu: Gpu) -> tuple[int, ...]:
        return self.by_card.get(gpu.index, ())


EIGHT = [replace(GPU, index=index, uuid=f"GPU-{index}") for index in range(8)]


@pytest.mark.parametrize("own", [{card: (9000 + card,) for card in range(8)}, dict.fromkeys(range(8), (9000,))],
                         ids=["a process a card", "one process for all cards"])  # fmt: skip
@pytest.mark.parametrize("foreign", [1, 7])
def test_in_a_container_one_unseen_process_a_card_is_the_jobs_and_every_other_is_foreign(
    tmp_path: Path, own: dict[int, tuple[int, ...]], foreign: int
) -> None:
    nvml = Container()
    meter = GpuMeter(nvml, EIGHT, proc=tmp_path, owner=lambda pid: "")
    meter.sample(0.0, (), None)
    nvml.by_card = own
    meter.sample(11.0, (42,), None)
    assert meter.contention((10.0, 12.0)).foreign_share == 0.0
    # On one card of eight; with lower numbers than the job's, so that their order does not tell.
    strangers = tuple(range(100, 100 + foreign))
    nvml.by_card = {**own, 3: (*strangers, *own[3])}
    for at in range(20, 31):
        meter.sample(float(at), (42,), None)
    contention = meter.contention((20.0, 30.0))
    assert contention.foreign_share == 1.0
    assert tuple(each.pid for each in contention.top) == strangers


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
    # Its settings with the first look and with every survey of all processes, one of them the last look.
    assert nvml.closer_looks == 1
    meter.sample(1.95, (), [])
    assert (nvml.looks, nvml.closer_looks) == (5, 2)
