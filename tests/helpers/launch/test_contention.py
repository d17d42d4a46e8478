from pathlib import Path

import pytest

from helpers.errors import LaunchError
from helpers.launch.contention import ContentionSample, CpuMeter, CpuSample, ForeignProcess, contention_of, core_seconds
from helpers.launch.processes import Process, parse_stat

JOB, SUPERVISOR, COMPILER = 100, 1, 555

# Two lines of a real /proc/stat, and the same cores one second later at 100 ticks a second.
BEFORE = """cpu  49780 0 13684 244355 644 0 507 269 0 0
cpu0 18341 0 3315 132527 209 0 20 144 0 0
cpu1 31438 0 10369 111827 434 0 487 125 0 0
intr 727302 0 0
"""
AFTER = """cpu  49880 0 13684 244355 644 0 507 289 0 0
cpu0 18431 0 3315 132527 209 0 20 154 0 0
cpu1 31538 0 10369 111827 434 0 487 125 0 0
"""


def look(
    at: float,
    busy: float,
    job: float,
    *,
    core: int = 0,
    steal: float = 0.0,
    supervisor: float = 0.0,
    compiler: float | None = None,
) -> CpuSample:
    others = None if compiler is None else {COMPILER: ("cc1plus", compiler, 0), 9: ("idle", 5.0, 0)}
    own = {JOB: (job, core), SUPERVISOR: (50.0 + supervisor, core)}
    return CpuSample(at, busy, steal, own, others)


def test_a_job_alone_on_its_core_is_quiet() -> None:
    samples = [look(float(at), 10.0 + at, float(at)) for at in range(11)]
    contention = contention_of(samples, {0}, (2.0, 8.0))
    assert contention.foreign_share == pytest.approx(0.0, abs=1e-9)
    assert contention.is_quiet(0.05) and contention.window_seconds == 6.0


def test_what_others_take_is_a_share_of_the_cores_and_the_biggest_is_named() -> None:
    samples = [look(float(at), float(at), 0.8 * at, compiler=0.2 * at) for at in range(11)]
    contention = contention_of(samples, {0}, (2.0, 7.0))
    assert contention.foreign_share == pytest.approx(0.2)
    assert contention.top == (ForeignProcess("cc1plus", COMPILER, pytest.approx(1.0)),)
    assert not contention.is_quiet(0.05)
    assert contention.describe() == "20.0% of the leased cards' time went to others: cc1plus (pid 555, 1.0 s)"


def test_a_process_that_roams_is_named_and_one_that_stays_elsewhere_is_not() -> None:
    def others(at: float) -> dict[int, tuple[str, float, int]]:
        return {1: ("roams", at, int(at) % 2), 2: ("elsewhere", at, 1)}

    samples = [CpuSample(float(at), float(at), 0.0, {}, others(float(at))) for at in range(5)]
    assert contention_of(samples, {0}, (1.0, 3.0)).top == (ForeignProcess("roams", 1, 2.0),)


def test_two_cores_halve_the_share() -> None:
    samples = [look(float(at), 1.2 * at, 1.0 * at) for at in range(5)]
    assert contention_of(samples, {0, 1}, (1.0, 3.0)).foreign_share == pytest.approx(0.1)


def test_what_the_hypervisor_steals_went_to_others() -> None:
    samples = [look(float(at), 0.9 * at, 0.9 * at, steal=0.1 * at) for at in range(5)]
    contention = contention_of(samples, {0}, (0.0, 4.0))
    assert contention.foreign_share == pytest.approx(0.1)
    assert "the hypervisor (0.4 s)" in contention.describe()


def test_the_supervisors_own_time_is_not_foreign_and_its_past_does_not_count() -> None:
    samples = [look(float(at), 1.0 * at, 0.9 * at, supervisor=0.1 * at) for at in range(5)]
    assert contention_of(samples, {0}, (0.0, 4.0)).foreign_share == pytest.approx(0.0)


def test_own_time_on_other_cores_does_not_hide_a_foreigner() -> None:
    samples = [look(float(at), 1.0 * at, 1.0 * at, core=1) for at in range(5)]
    assert contention_of(samples, {0}, (0.0, 4.0)).foreign_share == pytest.approx(1.0)


def test_noise_before_and_after_the_window_does_not_count() -> None:
    busy = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    job = [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0]
    samples = [look(float(at), busy[at], job[at]) for at in range(7)]
    assert contention_of(samples, {0}, (2.0, 5.0)).foreign_share == pytest.approx(0.0)
    assert contention_of(samples, {0}, (2.0, 6.0)).foreign_share == pytest.approx(0.25)


def test_a_rank_that_appears_late_brings_its_whole_life() -> None:
    samples = [CpuSample(0.0, 0.0, 0.0, {}), CpuSample(1.0, 1.0, 0.0, {}), CpuSample(2.0, 2.0, 0.0, {JOB: (2.0, 0)})]
    assert contention_of(samples, {0}, (0.0, 2.0)).foreign_share == pytest.approx(0.0)


@pytest.mark.parametrize("window", [None, (3.0, 3.0), (-1.0, 2.0), (1.0, 5.0)])
def test_what_was_not_looked_at_is_not_quiet(window: tuple[float, float] | None) -> None:
    samples = [look(float(at), float(at), float(at)) for at in range(4)]
    contention = contention_of(samples, {0}, window)
    assert contention.foreign_share is None and contention.note
    assert not contention.is_quiet(1.0)
    assert contention.describe().startswith("contention not measured: ")
    assert contention_of(samples[:1], {0}, (0.0, 1.0)).foreign_share is None


def test_proc_stat_is_read_by_core() -> None:
    before, after = core_seconds(BEFORE), core_seconds(AFTER)
    assert before[0] == pytest.approx((216.76, 1.44))
    assert after[0][0] - before[0][0] == pytest.approx(0.9)
    assert after[1][0] - before[1][0] == pytest.approx(1.0)
    assert after[0][1] - before[0][1] == pytest.approx(0.1)


def test_the_meter_joins_cores_and_processes(tmp_path: Path) -> None:
    texts = iter([BEFORE, AFTER])
    meter = CpuMeter((0,), stat=lambda: next(texts), supervisor=2**22 + 1)
    other = Process(COMPILER, 1, "cc1plus", "R", 3.0, 1, 0)
    meter.sample(10.0, (), [other])
    meter.sample(
        11.0, (), [parse_stat(f"{COMPILER} (cc1plus) R 1" + " 0" * 9 + " 350 40 0 0 20 0 1 0 1" + " 0" * 16 + " 0 0 0")]
    )
    contention = meter.contention((10.0, 11.0))
    assert contention.foreign_share == pytest.approx(1.0)
    assert contention.top == (ForeignProcess("cc1plus", COMPILER, pytest.approx(0.9)),)
    assert meter.unhealthy((10.0, 11.0)) == ()


def test_a_leased_core_that_is_offline_is_an_error() -> None:
    with pytest.raises(LaunchError, match="no core 7"):
        CpuMeter((0, 7), stat=lambda: BEFORE).sample(0.0, (), None)


def test_a_quiet_sample_describes_itself() -> None:
    assert ContentionSample(0.013).describe() == "1.3% of the leased cards' time went to others"
