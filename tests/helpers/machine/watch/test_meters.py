from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.machine.devices import CpuCard
from helpers.machine.environment import clocks_of
from helpers.machine.nvml import Gpu
from helpers.machine.watch import Norm, meters, norm_of
from helpers.machine.watch.contention import ContentionSample, CpuMeter
from helpers.machine.watch.cpu_health import CpuHealth
from helpers.machine.watch.meters import CHEAP_SURVEY_SECONDS, CardWatch, GpuMeter, meter_for, window_facts
from helpers.machine.watch.processes import JobProcesses, Process, Processes
from helpers.trainers.contract.errors import ConfigError, DeviceError
from helpers.trainers.contract.steplog import COMPLETE, WARMUP, WINDOW, Footer, Header, Step, StepLog
from tests.helpers.machine.watch.test_gpu_health import GPU, StandInNvml
from tests.helpers.machines import write

ENTRY = {"card_ids": "GPU-a", "power_limit_watts": "250", "cpu_mhz": "3000"}
NOT_MEASURED = ContentionSample(None)


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


class Surveys(JobProcesses):
    """Takes ``cost_seconds`` of CPU time for each survey."""

    def __init__(self, cost_seconds: float) -> None:
        super().__init__(Processes(), "job")
        self.cost_seconds = cost_seconds
        self.spent_seconds = 0.0

    def survey(self) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
        self.spent_seconds += self.cost_seconds
        return (), ()


class Meter:
    def __init__(self) -> None:
        self.surveyed_at: list[float] = []

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        if everyone is not None:
            self.surveyed_at.append(at)

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        return NOT_MEASURED

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return ()


def surveys(cost_seconds: float, seconds: int) -> list[float]:
    now = [0.0]
    meter, job = Meter(), Surveys(cost_seconds)
    watch = CardWatch(meter, job, lambda: now[0], survey_seconds=2.0, spent=lambda: job.spent_seconds)
    for second in range(seconds):
        now[0] = float(second)
        watch.look(survey=False)
    return meter.surveyed_at


def test_a_cheap_survey_is_made_every_two_seconds_and_a_dear_one_as_much_more_seldom() -> None:
    assert surveys(0.0, 9) == surveys(CHEAP_SURVEY_SECONDS, 9) == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert surveys(10 * CHEAP_SURVEY_SECONDS, 50) == [0.0, 20.0, 40.0]


# --- a GPU job's cores


def stat(busy_seconds: float) -> str:
    rows = (f"cpu{cpu} {round(100 * busy_seconds)} 0 0 9000 0 0 0 0 0 0\n" for cpu in range(4))
    return "".join(rows)


def on_cores(busy_share: float, health: CpuHealth | None = None, cores: tuple[int, ...] = (0, 1)) -> GpuMeter:
    """A meter of a quiet GPU, after looks from 9 to 21 s in which others took a share of its cores' time."""
    now = [0.0]
    of_cores = CpuMeter(
        cores, stat=lambda: stat(busy_share * now[0]), supervisor=2**22 + 1, health=health, ranks={"GPU0": cores}
    )
    meter = GpuMeter(StandInNvml(), [GPU], on_cores=of_cores)
    for at in range(9, 22):
        now[0] = float(at)
        meter.sample(float(at), (), [])
    return meter


@pytest.mark.parametrize(("busy_share", "quiet"), [(0.04, True), (0.06, False)])
def test_a_gpu_run_whose_cores_others_use_is_as_disturbed_as_one_whose_card_they_use(
    busy_share: float, quiet: bool
) -> None:
    contention = on_cores(busy_share).contention((10.0, 20.0))
    assert contention.foreign_share == pytest.approx(busy_share)
    assert contention.is_quiet(0.05) is quiet
    assert "of the time of the cores of GPU0 went to others" in contention.describe()


def test_cores_that_the_kernel_does_not_list_were_not_watched_and_the_cards_still_are() -> None:
    meter = on_cores(0.0, cores=(0, 7))
    contention = meter.contention((10.0, 20.0))
    assert contention.foreign_share is None and "no core 7" in contention.note
    assert len(meter.samples) == 13


def test_a_gpu_run_tells_what_held_up_its_cores_beside_what_held_up_its_cards(tmp_path: Path) -> None:
    stopped = tmp_path / "sys/fs/cgroup/cpu.stat"
    write(tmp_path, {"sys/fs/cgroup/cpu.stat": "nr_throttled 0\nthrottled_usec 0\n"})
    health = CpuHealth((0, 1), None, tmp_path, clocks=False)
    health.sample(8.0, 0)
    stopped.write_text("nr_throttled 40\nthrottled_usec 3000000\n")
    meter = on_cores(0.0, health)
    window = (8.5, 20.0)
    assert [reason.split()[:2] for reason in meter.unhealthy(window)] == [["CPU", "quota"]]
    facts = meter.facts((10.0, 20.0))
    assert facts["sm_clock_mhz"] == "1290"
    assert "Xid errors" in facts["not_measured"] and "slow-downs by heat (" in facts["not_measured"]
    assert "cpu_mhz" not in facts


@pytest.mark.parametrize(("each", "ranks"), [(1, {"GPU0": {0, 1}, "GPU1": {2, 3}}), (2, {"GPU0,GPU1": {0, 1, 2, 3}})])
def test_the_cores_of_each_process_of_a_gpu_job_are_watched(
    each: int, ranks: dict[str, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, object]] = []

    def meter(cores: object, *, health: CpuHealth, ranks: object) -> None:
        asked.append((cores, ranks))

    monkeypatch.setattr(meters, "CpuMeter", meter)
    gpus = (GPU, replace(GPU, index=1, uuid="GPU-b"))
    meter_for(gpus, StandInNvml, cores=((0, 1), (2, 3)), cards_per_process=each)
    assert asked == [([0, 1, 2, 3], ranks)]


CARD = Gpu(0, "GPU-a", "Tesla V100-SXM2-32GB", 32 * 2**30, (7, 0), 300)
OTHER = replace(CARD, index=1, uuid="GPU-b")
RECORDED = {"card_ids": "GPU-a GPU-b", "power_limit_watts": "250 300", "sm_clock_mhz": "1290 1305", "driver": "535"}


def test_the_entry_of_the_very_cards_is_the_norm() -> None:
    norm = norm_of(RECORDED, [CARD, OTHER], to_record=False)
    assert norm == Norm(True, frozenset({250, 300}), {"sm_clock_mhz": (1290.0, 1305.0)})
    assert (norm.clock("sm_clock_mhz", 1), norm.clock("sm_clock_mhz", 2), norm.clock("cpu_mhz")) == (1305.0, None, None)


@pytest.mark.parametrize("entry", [None, RECORDED, {}])
def test_without_an_entry_of_these_cards_their_defaults_are_the_norm(entry: dict[str, str] | None) -> None:
    assert norm_of(entry, [replace(CARD, uuid="GPU-c")], to_record=False) == Norm()


def test_while_an_entry_is_recorded_there_is_no_norm() -> None:
    assert norm_of(RECORDED, [CARD, OTHER], to_record=True) is None


def test_an_entry_of_a_processor_has_no_cards() -> None:
    norm = norm_of({"card_ids": "", "cpu_mhz": "3000"}, [CpuCard(0, (0,))], to_record=False)
    assert norm == Norm(True, frozenset(), {"cpu_mhz": (3000.0,)})


@pytest.mark.parametrize("text", ["fast", "0", "-1290", "nan", "1290 inf"])
def test_a_clock_that_no_card_has_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="sm_clock_mhz"):
        norm_of({**RECORDED, "sm_clock_mhz": text}, [CARD, OTHER], to_record=False)


def test_only_clocks_go_from_a_result_into_an_entry() -> None:
    facts = {"sm_clock_mhz": "1290", "cpu_mhz": "", "gpu_power_watts": "290"}
    assert clocks_of(facts) == {"sm_clock_mhz": "1290"}


def test_another_nodes_cards_have_their_own_clocks_in_the_entry() -> None:
    norm = norm_of(RECORDED, [OTHER], to_record=False, first=1)
    assert norm == Norm(True, frozenset({250, 300}), {"sm_clock_mhz": (1305.0,)})
    assert norm_of(RECORDED, [CARD], to_record=False, first=1) == Norm()
    # An entry from before the other nodes' clocks were kept: there is nothing to compare them with.
    old = norm_of({**RECORDED, "sm_clock_mhz": "1290"}, [OTHER], to_record=False, first=1)
    assert old is not None and old.recorded and old.clock("sm_clock_mhz") is None
