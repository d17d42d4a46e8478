"""One run for real, with the job itself replaced: what an outcome becomes on disk, and what may be used of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import helpers.machine.near_cores
import helpers.session.measuring.job_runner
from helpers.history.results import CONTENDED, IMAGES_FACT, MACHINE_SHARED, SLOWED, RunResult
from helpers.history.run_folders import ResultStore, read_result
from helpers.judging.case.evidence import Build, Stage
from helpers.launch.failure import KILLED, LAUNCHER_DIED, TIMED_OUT, Failure
from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits
from helpers.machine.devices import Card, CpuCard, Machine
from helpers.machine.environment import Environment
from helpers.machine.host import Host, OomKills
from helpers.machine.nvml import Gpu
from helpers.machine.watch.contention import ContentionSample, CpuMeter, Meter
from helpers.machine.watch.meters import GpuMeter
from helpers.plan.case_plan import CasePlan
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.perf_yaml import Config, load_config
from helpers.session.measuring.job_runner import JobRunner, RunTerms
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import COMPLETE, WARMUP, WINDOW, Footer, Header, Step, StepLog
from tests.helpers.machine.watch.test_gpu_health import StandInNvml

ROOT = Path(__file__).resolve().parents[3]
HOST = Host("h", "0123456789abcdef", "Linux", "6.1", "AMD EPYC", 4, 8 * 1024**3)
CARDS = (CpuCard(0, (0, 1)), CpuCard(1, (2, 3)))
V100 = Gpu(3, "GPU-3", "Tesla V100-SXM2-32GB", 32 * 1024**3, (7, 0), 300)
MACHINE = Machine(HOST, CARDS, (V100,), driver="535.1", cuda_driver="12.2")
QUIET = ContentionSample(0.01, window_seconds=5.0)
LOUD = ContentionSample(0.5, window_seconds=5.0)
UNKNOWN = ContentionSample(None, note="no looks")
FAILURES = (LAUNCHER_DIED, TIMED_OUT)

MakePlan = Callable[..., CasePlan]
RunOf = Callable[..., RunResult]


def step_log(rank: int = 0) -> StepLog:
    """Two steps of warm-up and five of the window, a second and 8 images each; rank 1 takes twice as long."""
    seconds = 1.0 + rank
    steps = tuple(
        Step(0, n, WARMUP if n < 2 else WINDOW, 100.0 + n * seconds, 100.0 + (n + 1) * seconds, 8, 0.25)
        for n in range(7)
    )
    facts = {"threads": "2", "cudnn": "9"}
    header = Header("j", "c", 0, rank, 2, "h", 1, "paddle", "3.3.1", "abc", "cpu", facts)
    return StepLog(f"rank{rank}", header, steps, Footer(COMPLETE, "", 1000 + rank, 10 + rank))


LOGS = (step_log(0), step_log(1))


def outcome(kind: OutcomeKind = OutcomeKind.COMPLETE, **values: Any) -> JobOutcome:
    complete = kind is OutcomeKind.COMPLETE
    given = {
        "reason": "" if complete else f"it {kind.value}",
        "log_tail": "" if complete else "last words",
        "logs": LOGS if complete else (),
        "wall_seconds": 30.0,
        "start_up_seconds": 4.0 if complete else None,
        "contention": QUIET if complete else UNKNOWN,
    }
    return JobOutcome(kind, **{**given, **values})


@dataclass
class Jobs:
    """Stands where run_job stands: keeps what it was asked, answers ``outcome``."""

    outcome: JobOutcome = field(default_factory=outcome)
    specs: list[JobSpec] = field(default_factory=list)
    commands: list[LaunchCommand] = field(default_factory=list)
    limits: list[JobLimits] = field(default_factory=list)
    meters: list[Meter] = field(default_factory=list)

    def __call__(
        self, spec: JobSpec, command: LaunchCommand, limits: JobLimits, meter: Meter, **options: Any
    ) -> JobOutcome:
        self.specs.append(spec)
        self.commands.append(command)
        self.limits.append(limits)
        self.meters.append(meter)
        return self.outcome


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    fake = Jobs()
    monkeypatch.setattr(helpers.session.measuring.job_runner, "run_job", fake)
    return fake


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(ROOT / "helpers/plan/defaults.yaml")


@pytest.fixture
def plan(make_plan: MakePlan) -> CasePlan:
    build = {"interpreter": "/opt/python", "framework": "paddle", "version": "3.0", "commit": "def"}
    return make_plan(build=build, data="photographs", settings={"lr": 0.1, "environment": {"OMP_X": 1}})


@pytest.fixture
def runner(tmp_path: Path, config: Config) -> JobRunner:
    return JobRunner(MACHINE, CARDS, ResultStore(tmp_path, "s"), config)


@pytest.fixture
def run_of(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> RunOf:
    """What becomes of a job's outcome; the keywords are the session's terms."""

    def run(answer: JobOutcome, runner: JobRunner = runner, plan: CasePlan = plan, **terms: bool) -> RunResult:
        jobs.outcome = answer
        return replace(runner, terms=RunTerms(**terms)).run(plan, 0)

    return run


# --- a complete run


def test_a_complete_quiet_run_is_a_measurement(run_of: RunOf) -> None:
    run = run_of(outcome())
    assert run.measured
    assert (run.failure, run.invalid, run.refusal, run.marks) == (None, None, None, ())
    # 2 ranks x 5 steps x 8 images in the 10 s of the slower rank.
    assert run.figures["wall-clock"] == pytest.approx(8.0)
    assert run.step_seconds == (2.0,) * 5
    assert run.samples_per_step == (16,) * 5
    assert (run.wall_seconds, run.start_up_seconds, run.training_seconds, run.window_seconds) == (30.0, 4.0, 14.0, 10.0)
    assert run.reader_share == pytest.approx(0.25)
    assert (run.peak_host_bytes, run.peak_device_bytes) == (2001, 11)
    assert run.foreign_share == 0.01
    assert "1.0%" in run.contention


def test_a_run_says_what_it_was_measured_with(run_of: RunOf, plan: CasePlan) -> None:
    run = run_of(outcome())
    environment = Environment.from_mapping(run.environment)
    assert (run.case_id, run.target, run.session, run.origin) == (plan.case.id, "cpu", "s", "measured")
    assert (run.build, run.settings, run.protocol) == (
        plan.build,
        plan.settings,
        plan.protocol.steps,
    )
    assert (environment.host_id, environment.cards, environment.data) == (HOST.host_id, "2 x 2 cores", "photographs")
    assert (environment.device, environment.driver, environment.threads) == ("cpu", "", "2")
    # The framework that trained, not the one that was found installed.
    assert (environment.framework_version, environment.framework_commit) == ("3.3.1", "abc")


def test_the_job_is_the_plan_on_the_leased_cards(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, config: Config, tmp_path: Path
) -> None:
    data = DatasetFacts(tmp_path / "images", 100, 8, "0" * 64)
    run = replace(runner, terms=RunTerms(data=data)).run(plan, 0)
    assert IMAGES_FACT not in run.facts
    (spec,) = jobs.specs
    assert (spec.case, spec.device, spec.cores, spec.cards) == (plan.case, "cpu", ((0, 1), (2, 3)), ())
    assert (spec.warmup_steps, spec.window_steps, spec.replicate) == (2, 5, 0)
    assert (spec.settings, spec.environment) == (plan.settings, {"OMP_X": "1"})
    assert spec.data_root == str(tmp_path / "images")
    assert Path(spec.run_folder) == runner.store.run_folder(plan.case.id, 0)
    assert "/opt/python" in jobs.commands[0].argv
    assert jobs.limits[0].start_up_seconds == config.limits.start_up_seconds
    assert jobs.limits[0].grace_seconds == config.limits.stop_grace_seconds
    assert isinstance(jobs.meters[0], CpuMeter)


def test_a_variable_that_the_case_sets_itself_is_not_the_callers(
    runner: JobRunner, make_plan: MakePlan, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MALLOC_ARENA_MAX", "MALLOC_TOP_PAD_"):
        monkeypatch.setenv(name, "7")
    plan = make_plan(build={"interpreter": "/opt/python"}, settings={"environment": {"MALLOC_ARENA_MAX": 1}})
    flags = runner.run(plan, 0).environment["flags"]
    assert "MALLOC_TOP_PAD_=7" in flags
    assert "MALLOC_ARENA_MAX" not in flags


def test_a_run_of_the_reference_build_is_the_same_job_in_the_other_interpreter(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    good = {"interpreter": "/envs/good/bin/python", "framework": "paddle", "version": "3.3.1", "commit": "abc"}
    plan = replace(plan, reference=good)
    first, second = runner.run(plan, 0), runner.run(plan, 1, Build.REFERENCE, Stage.CONFIRM)
    assert (first.role, first.stage, first.build) == ("candidate", "screen", plan.build)
    assert (second.role, second.stage, second.build) == ("reference", "confirm", good)
    assert ["/opt/python" in jobs.commands[0].argv, good["interpreter"] in jobs.commands[1].argv] == [True, True]
    assert replace(jobs.specs[1], job_id="", replicate=0, run_folder="") == replace(
        jobs.specs[0], job_id="", run_folder=""
    )
    assert read_result(runner.store.run_folder(plan.case.id, 1) / "result.json") == second


@pytest.mark.parametrize("allow", [True, False])
def test_a_run_that_a_test_slowed_down_is_marked_and_only_where_disturbance_is_allowed_used(
    run_of: RunOf, allow: bool
) -> None:
    slowed = replace(LOGS[1], header=replace(LOGS[1].header, facts={"test_slowdown": "0.05"}))
    run = run_of(outcome(logs=(LOGS[0], slowed)), allow_contention=allow)
    assert (run.measured, run.marks) == (allow, (SLOWED,))
    assert allow or str(run.invalid).startswith("slowed down for a test: unset PERFGATE_TEST_SLOWDOWN")


# --- a run that is no measurement


@pytest.mark.parametrize("logs", [(), LOGS], ids=["no logs", "logs"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_job_that_broke_off_has_a_failure_and_no_figure(
    run_of: RunOf, runner: JobRunner, plan: CasePlan, failure: Failure, logs: tuple[StepLog, ...]
) -> None:
    run = run_of(outcome(OutcomeKind.FAILED, failure=failure, logs=logs, contention=QUIET))
    assert not run.measured
    assert run.failure == f"{failure.what}: it failed"
    assert run.evidence.retriable is failure.retriable
    assert (run.invalid, run.refusal) == (None, None)
    assert (run.figures, run.step_seconds, run.samples_per_step) == ({}, (), ())
    assert (run.training_seconds, run.window_seconds, run.reader_share) == (0.0, 0.0, None)
    assert run.log_tail == "last words"
    assert read_result(runner.store.run_folder(plan.case.id, 0) / "result.json").failure == run.failure


def test_a_refused_job_is_no_failure(run_of: RunOf) -> None:
    run = run_of(outcome(OutcomeKind.REFUSED, reason="no bfloat16 here"))
    assert (run.failure, run.invalid, run.refusal) == (None, None, "no bfloat16 here")
    assert (run.measured, run.figures) == (False, {})


@pytest.mark.parametrize(
    ("grown", "what", "told"),
    [
        (1, "killed by the kernel for want of memory", "the kernel's OOM killer was at work (oom_kill +1)"),
        (0, "killed by a signal", "not the kernel's OOM killer (oom_kill +0)"),
    ],
)
def test_a_kill_is_told_from_the_kernels_by_its_count(
    run_of: RunOf, runner: JobRunner, grown: int, what: str, told: str
) -> None:
    counts = iter([OomKills(4, 9, inherits=True), OomKills(4 + grown, 9 + grown, inherits=True)])
    killed = outcome(OutcomeKind.FAILED, reason="rank 0 ended by SIGKILL", failure=KILLED, guilty_rank=0)
    run = run_of(killed, replace(runner, oom_kills=lambda: next(counts)))
    assert run.failure == f"{what}: rank 0 ended by SIGKILL; {told}"
    assert run.evidence.retriable


def test_the_count_says_nothing_of_another_hosts_rank(run_of: RunOf, runner: JobRunner) -> None:
    counts = iter([OomKills(4), OomKills(9)])
    killed = outcome(OutcomeKind.FAILED, reason="rank 2 ended by SIGKILL", failure=KILLED, guilty_rank=2)
    run = run_of(killed, replace(runner, oom_kills=lambda: next(counts)))
    assert run.failure == "killed by a signal: rank 2 ended by SIGKILL"


# --- disturbed runs


@pytest.mark.parametrize(("contention", "allow"), [(QUIET, False), (LOUD, True)])
def test_an_unhealthy_card_is_invalid_whatever_else(run_of: RunOf, contention: ContentionSample, allow: bool) -> None:
    unwell = outcome(contention=contention, unhealthy=("GPU 0 was throttled", "GPU 1: 2 ECC errors"))
    run = run_of(unwell, allow_contention=allow)
    assert not run.measured
    assert run.invalid == "device unhealthy: GPU 0 was throttled; GPU 1: 2 ECC errors"


@pytest.mark.parametrize("allow", [False, True])
def test_a_contended_run_is_invalid_or_marked_where_contention_is_allowed(run_of: RunOf, allow: bool) -> None:
    run = run_of(outcome(contention=LOUD), allow_contention=allow)
    assert (run.measured, run.marks) == (allow, (CONTENDED,) if allow else ())
    assert allow or str(run.invalid).startswith("contended: 50.0%")


@pytest.mark.parametrize("max_foreign_share", [0.05, 1.0])
def test_what_was_not_measured_is_not_quiet(
    run_of: RunOf, runner: JobRunner, config: Config, max_foreign_share: float
) -> None:
    lenient = replace(config, contention=replace(config.contention, max_foreign_share=max_foreign_share))
    run = run_of(outcome(contention=UNKNOWN), replace(runner, config=lenient))
    assert run.invalid is not None
    assert "contention not measured: no looks" in run.invalid
    marked = run_of(outcome(contention=UNKNOWN), replace(runner, config=lenient), allow_contention=True)
    assert (marked.invalid, marked.marks, marked.foreign_share) == (None, (CONTENDED,), None)


@pytest.mark.parametrize(("answer", "others"), [(outcome(), ()), (outcome(contention=LOUD), (CONTENDED,))])
def test_a_shared_machine_is_marked_beside_contention(
    run_of: RunOf, answer: JobOutcome, others: tuple[str, ...]
) -> None:
    assert run_of(answer, allow_contention=True, share_machine=True).marks == (MACHINE_SHARED, *others)


def warm_for(warmup: int, rank: int = 0, fall: float = 0.0) -> StepLog:
    """A warm-up whose steps get shorter by ``fall`` seconds each, and a window of five steps of 1 s."""
    steps, now = [], 100.0
    for n in range(warmup + 5):
        seconds = 1.0 + fall * max(0, warmup - n)
        steps.append(Step(0, n + 1, WARMUP if n < warmup else WINDOW, now, now + seconds, 8, 0.25))
        now += seconds
    return replace(LOGS[rank], steps=tuple(steps))


@pytest.mark.parametrize(("fall", "allow"), [(0.0, False), (0.1, False), (0.1, True)])
def test_a_run_that_was_never_steady_is_invalid(
    run_of: RunOf, plan: CasePlan, jobs: Jobs, fall: float, allow: bool
) -> None:
    protocol = replace(plan.protocol, warmup_steps=6, steady_window_steps=2, most_warmup_steps=8)
    plan = replace(plan, suite_case=replace(plan.suite_case, protocol=protocol))
    logs = (warm_for(8), warm_for(8, rank=1, fall=fall))
    run = run_of(outcome(logs=logs), plan=plan, allow_contention=allow)
    assert (run.measured, run.failure, run.facts["warmup_steps"]) == (fall == 0.0, None, "8")
    assert fall == 0.0 or str(run.invalid).startswith("never steady: rank 1")
    spec = jobs.specs[0]
    assert (spec.warmup_steps, spec.steady_window_steps, spec.most_warmup_steps) == (6, 2, 8)


# --- GPUs, and what cannot start


SECOND = replace(V100, index=4, uuid="GPU-4")


class Quiet(StandInNvml):
    """Two cards, each near four CPUs; the second has the lower ones."""

    def gpus(self) -> tuple[Gpu, ...]:
        return (V100, SECOND)

    def near_cpus(self, gpu: Gpu) -> frozenset[int]:
        return frozenset(range(4, 8) if gpu == V100 else range(4))


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers.session.measuring.job_runner, "open_nvml", Quiet)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(helpers.machine.near_cores, "siblings_of", lambda cpu, root: {cpu})
    monkeypatch.setattr(helpers.machine.near_cores, "tightest_quota", lambda root: None)


@pytest.mark.usefixtures("eight_cpus")
def test_a_gpu_job_gets_its_cards_their_cores_and_a_meter_that_watches_them(
    runner: JobRunner, make_plan: MakePlan, jobs: Jobs
) -> None:
    plan = make_plan(target="v100", build={"interpreter": "/opt/python"})
    cards: tuple[Card, ...] = (V100,)
    run = replace(runner, cards=cards).run(plan, 0)
    assert (jobs.specs[0].device, jobs.specs[0].cards, jobs.specs[0].cores) == ("gpu", ("GPU-3",), ((4, 5, 6, 7),))
    assert isinstance(jobs.meters[0], GpuMeter)
    assert (run.environment["card_ids"], run.environment["driver"]) == ("GPU-3", "535.1")
    assert (run.facts["card_cores"], run.facts["card_cores_chosen"]) == ("4,5,6,7", "near the cards, by NVML")


def test_without_nvml_a_gpu_job_does_not_start_unwatched(
    runner: JobRunner, make_plan: MakePlan, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.session.measuring.job_runner, "open_nvml", lambda: "nvidia-ml-py is not installed")
    plan = make_plan(target="v100", build={"interpreter": "/opt/python"})
    with pytest.raises(DeviceError, match="nvidia-ml-py is not installed"):
        replace(runner, cards=(V100,)).run(plan, 0)
    assert jobs.specs == []


def test_the_losses_of_rank_0s_window_are_kept_where_they_were_fetched(run_of: RunOf) -> None:
    losses = [9.0, None, 6.0, None, 5.5, None, 5.0]
    first = replace(
        LOGS[0], steps=tuple(replace(step, loss=loss) for step, loss in zip(LOGS[0].steps, losses, strict=True))
    )
    run = run_of(outcome(logs=(first, LOGS[1])))
    assert run.losses == (6.0, 5.5, 5.0)
    assert run.evidence.loss == 5.5


def test_a_rank_that_loaded_another_library_is_told_beside_the_first(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    jobs.outcome = outcome()
    assert runner.run(plan, 0, Build.CANDIDATE, Stage.SCREEN).environment["cudnn"] == "9"
    other = replace(LOGS[1], header=replace(LOGS[1].header, facts={"threads": "2", "cudnn": "8.9.7"}))
    jobs.outcome = outcome(logs=(LOGS[0], other))
    assert runner.run(plan, 1, Build.CANDIDATE, Stage.SCREEN).environment["cudnn"] == "8.9.7 / 9"
