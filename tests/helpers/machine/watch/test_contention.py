from dataclasses import replace
from pathlib import Path

import pytest

from helpers.machine.watch.contention import (
    ContentionSample,
    CpuMeter,
    CpuSample,
    ForeignProcess,
    Surveyor,
    TimeInterval,
    contention_of,
    core_seconds,
    owner_of,
)
from helpers.machine.watch.processes import Process, parse_stat
from helpers.trainers.contract.errors import LaunchError

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
    at: float, busy: float, job: float, *, core: int = 0, steal: float = 0.0, supervisor: float = 0.0
) -> CpuSample:
    return CpuSample(at, busy, steal, {JOB: (job, core), SUPERVISOR: (50.0 + supervisor, core)})


def worked(start: float, end: float, *processes: tuple[str, int, float]) -> TimeInterval:
    return TimeInterval(start, end, tuple(ForeignProcess(*each, "ann") for each in processes))


def test_what_others_take_is_a_share_of_the_cores_and_the_biggest_is_named() -> None:
    samples = [look(float(at), float(at), 0.8 * at) for at in range(11)]
    intervals = [worked(at, at + 1.0, ("cc1plus", COMPILER, 0.19), ("ls", 9, 0.01)) for at in range(10)]
    contention = contention_of(samples, {0}, (2.0, 7.0), intervals)
    assert contention.foreign_share == pytest.approx(0.2)
    assert contention.top[0] == ForeignProcess("cc1plus", COMPILER, pytest.approx(0.95), "ann")
    assert not contention.is_quiet(0.05)
    text = "20.0% of the leased cards' time went to others: cc1plus (pid 555, user ann, 0.9 s), ls (pid 9, user ann, "
    assert contention.describe().startswith(text)


def test_of_many_the_first_are_named_and_what_no_survey_met_is_counted() -> None:
    samples = [look(float(at), float(at), 0.5 * at) for at in range(5)]
    contention = contention_of(samples, {0}, (0.0, 4.0), [worked(0.0, 4.0, ("cc1plus", COMPILER, 0.4))])
    assert (contention.foreign_share, contention.rest_seconds) == (pytest.approx(0.5), pytest.approx(1.6))
    samples = [look(float(at), float(at), 0.0) for at in range(5)]
    crowd = worked(0.0, 4.0, *[(f"p{n}", n, 0.1 * n) for n in range(1, 9)])
    text = contention_of(samples, {0}, (0.0, 4.0), [crowd]).describe()
    assert "p8 (pid 8, user ann, 0.8 s)" in text and "p6" in text and "p5" not in text
    assert "other processes, or interrupts (1.9 s)" in text


def test_an_interval_that_lies_partly_in_the_window_counts_in_part() -> None:
    samples = [look(float(at), float(at), 0.0) for at in range(9)]
    contention = contention_of(
        samples, {0}, (3.0, 5.0), [worked(0.0, 4.0, ("a", 1, 2.0)), worked(5.0, 8.0, ("b", 2, 2))]
    )
    assert contention.top == (ForeignProcess("a", 1, 0.5, "ann"),)


def process(pid: int, seconds: float, core: int = 0, name: str = "x", born: int = 1) -> Process:
    return Process(pid, 1, name, "R", seconds, born, core)


def test_a_survey_names_who_roams_and_not_who_stays_elsewhere_or_idles() -> None:
    surveyor = Surveyor({0}, owner=lambda pid: f"user{pid}")
    for at in range(4):
        surveyor.survey(at, [process(1, at, at % 2), process(2, at, 1), process(3, 7.0)])
    assert [interval.worked for interval in surveyor.intervals] == [(ForeignProcess("x", 1, 1.0, "user1"),)] * 3


def test_a_process_id_that_was_taken_again_is_another_process() -> None:
    owners = iter(["ann", "bob"])
    surveyor = Surveyor({0}, owner=lambda pid: next(owners))
    surveyor.survey(0.0, [process(1, 99.0, born=1)])
    surveyor.survey(1.0, [process(1, 100.0, born=1)])
    surveyor.survey(2.0, [process(1, 0.5, name="new", born=9)])
    assert surveyor.intervals[0].worked == (ForeignProcess("x", 1, 1.0, "ann"),)
    assert surveyor.intervals[1].worked == (ForeignProcess("new", 1, 0.5, "bob"),)


def test_the_owner_of_a_process_that_worked_too_little_to_be_named_is_not_asked() -> None:
    asked: list[int] = []
    surveyor = Surveyor({0}, owner=lambda pid: asked.append(pid) or "ann")
    surveyor.survey(0.0, [])
    surveyor.survey(1.0, [process(1, 0.04), process(2, 0.02)])
    surveyor.survey(2.0, [process(1, 0.08), process(2, 0.03)])
    assert asked == [1]


def test_the_owner_of_a_process_is_its_user_and_nobody_of_one_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir()
    assert owner_of(5, tmp_path) == (tmp_path / "5").owner()
    assert owner_of(6, tmp_path) == ""


def test_what_the_hypervisor_steals_went_to_others() -> None:
    samples = [look(float(at), 0.9 * at, 0.9 * at, steal=0.1 * at) for at in range(5)]
    contention = contention_of(samples, {0}, (0.0, 4.0))
    assert contention.foreign_share == pytest.approx(0.1)
    assert "the hypervisor (0.4 s)" in contention.describe()


def test_the_supervisors_own_time_is_not_foreign_and_own_time_on_other_cores_hides_no_foreigner() -> None:
    samples = [look(float(at), 1.0 * at, 0.9 * at, supervisor=0.1 * at) for at in range(5)]
    assert contention_of(samples, {0}, (0.0, 4.0)).foreign_share == pytest.approx(0.0)
    elsewhere = [look(float(at), 1.0 * at, 1.0 * at, core=1) for at in range(5)]
    assert contention_of(elsewhere, {0}, (0.0, 4.0)).foreign_share == pytest.approx(1.0)


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
    # user, nice, system, idle, iowait, irq, softirq, steal
    assert core_seconds("cpu0 100 200 400 800 1600 3200 6400 12800 0 0") == {0: pytest.approx((103.0, 128.0))}


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
    assert meter.facts(None) == {}
    assert meter.unhealthy((10.0, 11.0)) == ()


def test_a_leased_core_that_is_offline_is_an_error() -> None:
    with pytest.raises(LaunchError, match="no core 7"):
        CpuMeter((0, 7), stat=lambda: BEFORE).sample(0.0, (), None)


# --- the cores of a GPU job's ranks, which are mostly idle

# Four ranks with 16 CPUs each; 100 ticks are a second of one CPU.
RANKS = {f"GPU{rank}": range(16 * rank, 16 * (rank + 1)) for rank in range(4)}


def stat_of(user: dict[int, float], softirq: dict[int, float] | None = None) -> str:
    """A machine of 64 CPUs that have been busy for so many seconds, by CPU."""
    rows = (
        f"cpu{cpu} {round(100 * user.get(cpu, 0))} 0 0 9000 0 0 {round(100 * (softirq or {}).get(cpu, 0))} 0 0 0\n"
        for cpu in range(64)
    )
    return "".join(rows)


def watched(
    user: dict[int, float], softirq: dict[int, float] | None = None, others: tuple[Process, ...] = ()
) -> ContentionSample:
    """After 10 s in which the CPUs were busy for so long."""
    texts = iter([stat_of({}), stat_of(user, softirq)])
    meter = CpuMeter(range(64), stat=lambda: next(texts), supervisor=2**22 + 1, ranks=RANKS)
    meter.sample(10.0, (), [replace(each, cpu_seconds=0.0) for each in others])
    meter.sample(20.0, (), others)
    return meter.contention((10.0, 20.0))


def test_a_neighbour_on_the_cores_of_one_rank_counts_although_the_others_are_free() -> None:
    # Two of one rank's 16 CPUs: 12.5% of this rank's, and 3.1% of all.
    make = Process(77, 1, "make", "R", 20.0, 1, 40)
    contention = watched({40: 10.0, 41: 10.0}, others=(make,))
    assert contention.foreign_share == pytest.approx(0.125)
    assert not contention.is_quiet(0.05)
    assert contention.describe().startswith("12.5% of the time of the cores of GPU2 went to others: make (pid 77, ")


def test_a_quiet_gpu_machine_with_daemons_interrupts_and_kernel_threads_stays_quiet() -> None:
    # One CPU's interrupts and one kernel thread that reads images, both on the cores of one rank, and a daemon.
    reads = Process(9, 2, "kworker/u128:3", "S", 10.0, 1, 17, of_kernel=True)
    daemon = Process(78, 1, "nv-hostengine", "S", 4.0, 1, 20)
    contention = watched({17: 10.0, 20: 4.0}, softirq={16: 10.0}, others=(reads, daemon))
    assert contention.foreign_share == pytest.approx(0.025)
    assert contention.is_quiet(0.05)
    assert [each.name for each in contention.top] == ["nv-hostengine"]


def test_on_cores_that_compute_interrupts_and_kernel_threads_count_as_ever() -> None:
    texts = iter([stat_of({}), stat_of({17: 10.0}, softirq={16: 10.0})])
    meter = CpuMeter((16, 17), stat=lambda: next(texts), supervisor=2**22 + 1)
    for at, seconds in ((10.0, 0.0), (20.0, 10.0)):
        meter.sample(at, (), [Process(9, 2, "kworker/17:3", "S", seconds, 1, 17, of_kernel=True)])
    assert meter.contention((10.0, 20.0)).foreign_share == pytest.approx(1.0)


def test_a_thread_of_the_kernel_is_told_by_its_flag_and_not_by_its_parent() -> None:
    rest = " 0 0 0 0 {} 0 0 0 0 1 2 0 0 20 0 1 0 5" + " 0" * 16 + " 3 0 0"
    assert parse_stat(f"9 (kworker/u128:3) S 2{rest.format(69238880)}").of_kernel
    # In a container process 2 may be a shell.
    assert not parse_stat(f"9 (cc1plus) R 2{rest.format(4194304)}").of_kernel
