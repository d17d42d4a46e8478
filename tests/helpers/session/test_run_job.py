"""One run for real, with the job itself replaced: what an outcome becomes on disk, and what may be used of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import helpers.machine.near_cores
import helpers.session.run_job
from helpers.history.results import CONTENDED, IMAGES_FACT, MACHINE_SHARED, SLOWED, RunResult
from helpers.history.run_folders import ResultStore, read_result
from helpers.judging.evidence import Build, Stage
from helpers.judging.failure_class import FailureClass
from helpers.judging.verdict import Reason, Status, Verdict
from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.nodes.connected import ConnectedNodes
from helpers.launch.nodes.others import OtherNodes
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits
from helpers.machine.devices import Card, CpuCard, Machine
from helpers.machine.environment import Environment, Host, clocks_of
from helpers.machine.host import OomKills
from helpers.machine.nvml import Gpu
from helpers.machine.watch.contention import ContentionSample, CpuMeter, Meter
from helpers.machine.watch.meters import GpuMeter
from helpers.plan.case_plan import CasePlan
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.overrides import with_overrides
from helpers.plan.perf_yaml import Config, load_config
from helpers.plan.recipes.recipe import settings_for
from helpers.report.row import row_of
from helpers.report.text import render
from helpers.session.gate import Gate
from helpers.session.measure import CaseResult, measure_case, reusable_runs
from helpers.session.run_job import JobRunner, RunTerms
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import DeviceError, LaunchError, SuiteError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import counts_text
from helpers.trainers.contract.steplog import (
    COMPLETE,
    WARMUP,
    WINDOW,
    Footer,
    Header,
    Step,
    StepLog,
)
from tests.helpers.machine.watch.test_gpu_health import StandInNvml
from tests.helpers.memory_double import MemoryDouble

ROOT = Path(__file__).resolve().parents[3]
HOST = Host("h", "0123456789abcdef", "Linux", "6.1", "AMD EPYC", 4, 8 * 1024**3)
CARDS = (CpuCard(0, (0, 1)), CpuCard(1, (2, 3)))
V100 = Gpu(3, "GPU-3", "Tesla V100-SXM2-32GB", 32 * 1024**3, (7, 0), 300)
MACHINE = Machine(HOST, CARDS, (V100,), driver="535.1", cuda_driver="12.2")
QUIET = ContentionSample(0.01, window_seconds=5.0)
LOUD = ContentionSample(0.5, window_seconds=5.0)
UNKNOWN = ContentionSample(None, note="no looks")
INCOMPLETE = [kind for kind in OutcomeKind if kind not in (OutcomeKind.COMPLETE, OutcomeKind.REFUSED)]
CLASSES = {
    OutcomeKind.CRASHED: FailureClass.LAUNCHER_DIED,
    OutcomeKind.HUNG: FailureClass.HUNG,
    OutcomeKind.TIMED_OUT: FailureClass.TIMED_OUT,
    OutcomeKind.START_UP_FAILED: FailureClass.NEVER_STARTED,
    OutcomeKind.BAD_LOG: FailureClass.BAD_LOG,
}

MakePlan = Callable[..., CasePlan]


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
        "exit_code": 0 if complete else 1,
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
    monkeypatch.setattr(helpers.session.run_job, "run_job", fake)
    return fake


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(ROOT / "perf.yaml")


@pytest.fixture
def plan(make_plan: MakePlan) -> CasePlan:
    build = {"interpreter": "/opt/python", "framework": "paddle", "version": "3.0", "commit": "def"}
    return make_plan(build=build, data="photographs", settings={"lr": 0.1, "environment": {"OMP_X": 1}})


@pytest.fixture
def runner(tmp_path: Path, config: Config) -> JobRunner:
    return JobRunner(MACHINE, CARDS, ResultStore(tmp_path, "s"), config)


def run_with(runner: JobRunner, plan: CasePlan, jobs: Jobs, answer: JobOutcome) -> RunResult:
    jobs.outcome = answer
    return runner.run(plan, 0)


def warm_for(warmup: int, rank: int = 0, fall: float = 0.0) -> StepLog:
    """A warm-up whose steps get shorter by ``fall`` seconds each, and a window of five steps of 1 s."""
    steps, now = [], 100.0
    for n in range(warmup + 5):
        seconds = 1.0 + fall * max(0, warmup - n)
        steps.append(Step(0, n + 1, WARMUP if n < warmup else WINDOW, now, now + seconds, 8, 0.25))
        now += seconds
    return replace(LOGS[rank], steps=tuple(steps))


# --- a complete run


def test_a_complete_quiet_run_is_a_measurement(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    run = run_with(runner, plan, jobs, outcome())
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


def test_one_process_that_drives_both_cards_is_a_measurement_of_both(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    case = replace(plan.case, framework=Framework.MXNET, execution=None)
    driven = replace(plan, suite_case=replace(plan.suite_case, case=case), settings={"cards_per_process": 2})
    log = step_log()
    log = replace(
        log,
        header=replace(log.header, world_size=1, cards_per_process=2),
        steps=tuple(replace(step, samples=16) for step in log.steps),
    )
    run = run_with(runner, driven, jobs, outcome(logs=(log,)))
    # 5 steps of 2 x 8 images in 5 s.
    assert (run.measured, run.figures["wall-clock"], run.samples_per_step) == (True, pytest.approx(16.0), (16,) * 5)
    assert (run.peak_host_bytes, run.peak_device_bytes, run.settings) == (1000, 10, {"cards_per_process": 2})
    assert read_result(runner.store.run_folder(case.id, 0) / "result.json") == run
    (spec,), (command,) = jobs.specs, jobs.commands
    # Both cards are the one process's, which is started directly.
    assert (spec.ranks, spec.cores) == (1, ((0, 1), (2, 3)))
    assert command.argv[1:4] == ("-u", "-m", "helpers.trainers.mxnet.trainer")


@pytest.mark.parametrize(
    ("framework", "device", "steps"),
    [(Framework.MXNET, "gpu", 5), (Framework.TENSORFLOW, "gpu", 5), (Framework.MXNET, "cpu", 0)],
)
def test_steps_that_the_host_times_on_a_gpu_are_followed_by_profiled_ones(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, framework: Framework, device: str, steps: int
) -> None:
    case = replace(plan.case, framework=framework, execution=None)
    suite_case = replace(plan.suite_case, case=case, target="v100" if device == "gpu" else "cpu")
    log = step_log()
    log = replace(log, header=replace(log.header, world_size=1, cards_per_process=2))
    timed = replace(plan, suite_case=suite_case, settings={"cards_per_process": 2})
    run = run_with(runner, timed, jobs, outcome(logs=(log,)))
    assert [spec.profiled_steps for spec in jobs.specs] == [steps]
    # No rank has left an answer.
    assert run.measured and run.facts.get("device_time", "").startswith("unknown: rank 0: ") is (steps > 0)


def test_the_result_is_on_disk_when_the_run_returns(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    run = run_with(runner, plan, jobs, outcome())
    assert read_result(runner.store.run_folder(plan.case.id, 0) / "result.json") == run


def test_a_run_says_what_it_was_measured_with(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    run = run_with(runner, plan, jobs, outcome())
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


def test_the_sessions_environment_tables_are_stored_with_every_run(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    tables = {"CPU": {"CPU": "AMD EPYC * 4"}, "topology": {"GPU0": "X\tNV2"}}
    run = replace(runner, terms=RunTerms(system=tables)).run(plan, 0)
    assert read_result(runner.store.run_folder(plan.case.id, 0) / "result.json").system == run.system == tables


def test_the_job_is_the_plan_on_the_leased_cards(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, config: Config, tmp_path: Path
) -> None:
    data = DatasetFacts(tmp_path / "images", 100, 8, 1e5, 500.0, 375.0, "0" * 64)
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


def test_every_run_has_its_own_folder_and_id(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    runs = [runner.run(plan, replicate) for replicate in (0, 1)]
    assert [run.replicate for run in runs] == [0, 1]
    assert [run.uuid for run in runs] == [spec.job_id for spec in jobs.specs]
    assert runs[0].uuid != runs[1].uuid
    assert runner.store.results(plan.case.id) == tuple(runs)


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


def test_a_reference_run_that_wrote_no_log_says_its_own_version(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    jobs.outcome = outcome(OutcomeKind.CRASHED)
    good = {"interpreter": "/envs/good/bin/python", "version": "2.6.2", "commit": "fed"}
    run = runner.run(replace(plan, reference=good), 0, Build.REFERENCE, Stage.CONFIRM)
    assert (run.environment["framework_version"], run.environment["framework_commit"]) == ("2.6.2", "fed")


def test_the_losses_of_rank_0s_window_are_kept_where_they_were_fetched(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    losses = [9.0, None, 6.0, None, 5.5, None, 5.0]
    first = replace(
        LOGS[0], steps=tuple(replace(step, loss=loss) for step, loss in zip(LOGS[0].steps, losses, strict=True))
    )
    run = run_with(runner, plan, jobs, outcome(logs=(first, LOGS[1])))
    assert run.losses == (6.0, 5.5, 5.0)
    assert run.evidence.loss == 5.5


def test_the_warm_up_steps_that_were_made_are_kept_beside_the_protocols_own(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    run = run_with(runner, plan, jobs, outcome(logs=(warm_for(4), warm_for(4, rank=1))))
    assert run.facts["warmup_steps"] == "4"
    assert run.protocol == plan.protocol.steps


@pytest.mark.parametrize("allow", [True, False])
def test_a_run_that_a_test_slowed_down_is_marked_and_only_where_disturbance_is_allowed_used(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, allow: bool
) -> None:
    slowed = replace(LOGS[1], header=replace(LOGS[1].header, facts={"test_slowdown": "0.05"}))
    run = run_with(replace(runner, terms=RunTerms(allow_contention=allow)), plan, jobs, outcome(logs=(LOGS[0], slowed)))
    assert (run.measured, run.marks) == (allow, (SLOWED,))
    assert allow or str(run.invalid).startswith("slowed down for a test: unset PERFGATE_TEST_SLOWDOWN")


def test_a_figure_says_that_the_suite_made_its_images(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    data = DatasetFacts(Path("grown"), 1_300_000, 8, 1e5, 500.0, 375.0, "0" * 64, made=50_000)
    run = run_with(replace(runner, terms=RunTerms(data=data)), plan, jobs, outcome())
    assert run.facts[IMAGES_FACT].startswith("not on ImageNet: on 50,000 images of its sizes")
    measured = CaseResult(plan, Verdict(Status.PASS, Reason("passes", "as published")), (run,))
    row = row_of(Gate(False).outcome(measured, ("r0",)))
    assert row.warnings[-1] == data.remark()
    assert "the list names each 26 times" in " ".join(render([row], 200).split())


def test_a_rank_that_loaded_another_library_is_told_beside_the_first(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    jobs.outcome = outcome()
    assert runner.run(plan, 0, Build.CANDIDATE, Stage.SCREEN).environment["cudnn"] == "9"
    other = replace(LOGS[1], header=replace(LOGS[1].header, facts={"threads": "2", "cudnn": "8.9.7"}))
    jobs.outcome = outcome(logs=(LOGS[0], other))
    assert runner.run(plan, 1, Build.CANDIDATE, Stage.SCREEN).environment["cudnn"] == "8.9.7 / 9"


def test_a_result_says_in_what_its_program_differs_from_the_published_one(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    case = Case.parse("paddle-resnet50v1.5-amp_o2-bs256-1x1-dali-static")
    on_gpu = replace(plan, suite_case=replace(plan.suite_case, case=case, target="v100"))
    counts = {"conv2d": 53, "float16_conv2d": 53, "nhwc_conv2d": 53, "batch_norm": 20, "fused_batch_norm_act": 33}
    facts = {
        "program": "old",
        "program_counts": counts_text({**counts, "elementwise_add": 1, "merged_momentum": 2, "cast": 3}),
    }
    jobs.outcome = outcome(logs=tuple(replace(each, header=replace(each.header, facts=facts)) for each in LOGS))
    run = runner.run(on_gpu, 0, Build.CANDIDATE, Stage.SCREEN)
    told = "batch_norm 20, published 4; fused_bn_add_activation 0, published 16"
    assert run.facts["program_against_published"] == told
    assert run.evidence.program == "old"


# --- a run that is no measurement


@pytest.mark.parametrize("logs", [(), LOGS], ids=["no logs", "logs"])
@pytest.mark.parametrize("kind", INCOMPLETE)
def test_a_job_that_broke_off_has_a_failure_and_no_figure(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, kind: OutcomeKind, logs: tuple[StepLog, ...]
) -> None:
    run = run_with(runner, plan, jobs, outcome(kind, logs=logs, contention=QUIET))
    assert not run.measured
    assert run.failure == f"{CLASSES[kind].value}: it {kind.value}"
    assert run.facts["failure_class"] == CLASSES[kind].value
    assert (run.invalid, run.refusal) == (None, None)
    assert (run.figures, run.step_seconds, run.samples_per_step) == ({}, (), ())
    assert (run.training_seconds, run.window_seconds, run.reader_share) == (0.0, 0.0, None)
    assert run.log_tail == "last words"
    assert read_result(runner.store.run_folder(plan.case.id, 0) / "result.json").failure == run.failure


@pytest.mark.parametrize("kind", INCOMPLETE)
def test_a_job_that_broke_off_makes_its_case_an_infra_error(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, kind: OutcomeKind
) -> None:
    jobs.outcome = outcome(kind, logs=LOGS, contention=QUIET)
    result = measure_case(plan, runner, runner.store, MemoryDouble())
    assert result.verdict.status is Status.INFRA_ERROR
    assert result.verdict.reason.message.startswith(f"{CLASSES[kind].value}: it {kind.value}")
    # A second attempt is made of what may end otherwise, and resuming gives it one more.
    assert len(result.runs) == 1 + CLASSES[kind].retriable
    assert len(reusable_runs(plan, runner.store, True)) == len(result.runs) - 1


def test_a_refused_job_is_no_failure(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    run = run_with(runner, plan, jobs, outcome(OutcomeKind.REFUSED, reason="no bfloat16 here"))
    assert (run.failure, run.invalid, run.refusal) == (None, None, "no bfloat16 here")
    assert (run.measured, run.figures) == (False, {})


def test_a_crashed_job_is_no_less_a_crash_on_an_unhealthy_or_contended_machine(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    crashed = outcome(OutcomeKind.CRASHED, contention=LOUD, unhealthy=("too hot",))
    run = run_with(replace(runner, terms=RunTerms(allow_contention=True)), plan, jobs, crashed)
    assert (run.failure, run.invalid, run.marks) == ("launcher died: it crashed", None, ())


@pytest.mark.parametrize(
    ("grown", "cause", "told"),
    [
        (1, FailureClass.OOM_KILLED, "the kernel's OOM killer was at work (oom_kill +1)"),
        (0, FailureClass.KILLED, "not the kernel's OOM killer (oom_kill +0)"),
    ],
)
def test_a_kill_is_told_from_the_kernels_by_its_count(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, grown: int, cause: FailureClass, told: str
) -> None:
    counts = iter([OomKills(4, 9, inherits=True), OomKills(4 + grown, 9 + grown, inherits=True)])
    killed = outcome(OutcomeKind.CRASHED, reason="rank 0 ended by SIGKILL", cause=FailureClass.KILLED, guilty_rank=0)
    run = run_with(replace(runner, oom_kills=lambda: next(counts)), plan, jobs, killed)
    assert run.failure == f"{cause.value}: rank 0 ended by SIGKILL; {told}"
    assert run.failure_class is cause and run.evidence.retriable


def test_the_count_says_nothing_of_another_hosts_rank(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    counts = iter([OomKills(4), OomKills(9)])
    killed = outcome(OutcomeKind.CRASHED, reason="rank 2 ended by SIGKILL", cause=FailureClass.KILLED, guilty_rank=2)
    run = run_with(replace(runner, oom_kills=lambda: next(counts)), plan, jobs, killed)
    assert run.failure == "killed by a signal: rank 2 ended by SIGKILL"


def test_another_hosts_own_count_says_how_its_rank_was_killed(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    killed = outcome(
        OutcomeKind.CRASHED, reason="rank 2 ended by SIGKILL", cause=FailureClass.KILLED, guilty_rank=2,
        oom_evidence=(True, "the kernel's OOM killer was at work (oom_kill +1)"),
    )  # fmt: skip
    run = run_with(replace(runner, oom_kills=lambda: OomKills(4)), plan, jobs, killed)
    assert run.failure_class is FailureClass.OOM_KILLED and "oom_kill +1" in str(run.failure)


def test_a_complete_run_has_no_class(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    run = run_with(runner, plan, jobs, outcome())
    assert "failure_class" not in run.facts and run.failure_class is None and not run.evidence.retriable


# --- disturbed runs


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("contention", [QUIET, LOUD])
def test_an_unhealthy_card_is_invalid_whatever_else(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, contention: ContentionSample, allow: bool
) -> None:
    unwell = outcome(contention=contention, unhealthy=("GPU 0 was throttled", "GPU 1: 2 ECC errors"))
    run = run_with(replace(runner, terms=RunTerms(allow_contention=allow)), plan, jobs, unwell)
    assert not run.measured
    assert run.invalid == "device unhealthy: GPU 0 was throttled; GPU 1: 2 ECC errors"


def test_a_contended_run_is_invalid_and_says_what_to_do(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    run = run_with(runner, plan, jobs, outcome(contention=LOUD))
    assert run.invalid is not None
    assert run.invalid.startswith("contended: 50.0%")
    assert "at most 5%" in run.invalid
    assert "--allow-contention" in run.invalid
    assert (run.measured, run.marks) == (False, ())


def test_a_contended_run_is_measured_and_marked_where_contention_is_allowed(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    run = run_with(replace(runner, terms=RunTerms(allow_contention=True)), plan, jobs, outcome(contention=LOUD))
    assert (run.measured, run.invalid, run.marks) == (True, None, (CONTENDED,))


def test_allowing_contention_does_not_mark_a_quiet_run(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    assert run_with(replace(runner, terms=RunTerms(allow_contention=True)), plan, jobs, outcome()).marks == ()


@pytest.mark.parametrize("max_foreign_share", [0.05, 1.0])
def test_what_was_not_measured_is_not_quiet(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, config: Config, max_foreign_share: float
) -> None:
    lenient = replace(config, contention=replace(config.contention, max_foreign_share=max_foreign_share))
    run = run_with(replace(runner, config=lenient), plan, jobs, outcome(contention=UNKNOWN))
    assert run.invalid is not None
    assert "contention not measured: no looks" in run.invalid
    allowed = replace(runner, config=lenient, terms=RunTerms(allow_contention=True))
    marked = run_with(allowed, plan, jobs, outcome(contention=UNKNOWN))
    assert (marked.invalid, marked.marks, marked.foreign_share) == (None, (CONTENDED,), None)


@pytest.mark.parametrize(("share", "measured"), [(0.05, True), (0.051, False)])
def test_the_limit_itself_is_still_quiet(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, share: float, measured: bool
) -> None:
    assert run_with(runner, plan, jobs, outcome(contention=ContentionSample(share))).measured is measured


@pytest.mark.parametrize(("answer", "others"), [(outcome(), ()), (outcome(contention=LOUD), (CONTENDED,))])
def test_a_shared_machine_is_marked_beside_contention(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, answer: JobOutcome, others: tuple[str, ...]
) -> None:
    shared = replace(runner, terms=RunTerms(allow_contention=True, share_machine=True))
    assert run_with(shared, plan, jobs, answer).marks == (MACHINE_SHARED, *others)


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
    monkeypatch.setattr(helpers.session.run_job, "open_nvml", Quiet)
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


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize(("shared", "cores"), [(False, (4, 5, 6, 7)), (True, (4, 5))])
def test_a_gpu_job_on_a_shared_machine_leaves_the_other_cards_their_cores(
    runner: JobRunner, make_plan: MakePlan, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, shared: bool,
    cores: tuple[int, ...],
) -> None:  # fmt: skip
    monkeypatch.setattr(Quiet, "near_cpus", lambda self, gpu: frozenset(range(4, 8)))
    plan = make_plan(target="v100", build={"interpreter": "/opt/python"})
    replace(runner, cards=(V100,), terms=RunTerms(share_machine=shared)).run(plan, 0)
    assert jobs.specs[0].cores == (cores,)


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize(
    ("case_id", "overrides", "threads", "workers"),
    [
        ("paddle-resnet50v1.5-fp32-bs96-1x1-dali-static", {}, 2, 2),
        ("paddle-resnet50v1.5-fp32-bs96-1x1-dali-static", {"dali.threads": 16}, 16, 2),
        # NVIDIA's script says both.
        ("tensorflow-resnet50v1.5-fp32-bs128-1x1-dali", {}, 4, 10),
    ],
)
def test_readers_that_no_publisher_counted_are_at_most_as_many_as_the_share_of_cpus(
    runner: JobRunner, make_plan: MakePlan, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, case_id: str,
    overrides: dict[str, Any], threads: int, workers: int,
) -> None:  # fmt: skip
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {4, 5})
    case = Case.parse(case_id)
    settings = with_overrides(settings_for(case, "gpu"), overrides, case_id)
    plan = make_plan(target="v100", build={"interpreter": "/opt/python"}, settings=settings, overrides=overrides)
    plan = replace(plan, suite_case=replace(plan.suite_case, case=case))
    run = replace(runner, cards=(V100,)).run(plan, 0)
    ran = jobs.specs[0].settings
    assert (ran["dali"]["threads"], ran["native"]["workers"]) == (threads, workers)
    # What is compared with other results of the case.
    assert run.settings == settings


@pytest.mark.usefixtures("eight_cpus")
def test_the_clocks_of_the_other_nodes_cards_are_kept_beside_this_nodes(
    runner: JobRunner, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Watched(Jobs):
        def __call__(
            self, spec: JobSpec, command: LaunchCommand, limits: JobLimits, meter: Meter, **options: Any
        ) -> Any:
            for at in (101.0, 103.0, 130.0):
                meter.sample(at, (), [])
            return super().__call__(spec, command, limits, meter, **options)

    class Others(OtherNodes):
        def facts(self) -> tuple[dict[str, str], ...]:
            return ({"sm_clock_mhz": "1305", "not_measured": "NVLinks"},)

    class Two(ConnectedNodes):
        def start_of(self, *arguments: Any) -> tuple[LaunchCommand, OtherNodes]:
            return LaunchCommand(("true",)), Others()

    monkeypatch.setattr(helpers.session.run_job, "run_job", Watched())
    plan = make_plan(target="v100", build={"interpreter": "/opt/python"})
    run = replace(runner, cards=(V100,), connected=Two()).run(plan, 0)
    assert run.facts["sm_clock_mhz"] == "1290 1305"
    assert clocks_of(run.facts)["sm_clock_mhz"] == "1290 1305"
    assert run.facts["not_measured"].startswith("Xid errors")


def test_without_nvml_a_gpu_job_does_not_start_unwatched(
    runner: JobRunner, make_plan: MakePlan, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.session.run_job, "open_nvml", lambda: "nvidia-ml-py is not installed")
    plan = make_plan(target="v100", build={"interpreter": "/opt/python"})
    with pytest.raises(DeviceError, match="nvidia-ml-py is not installed"):
        replace(runner, cards=(V100,)).run(plan, 0)
    assert jobs.specs == []


def test_a_job_that_cannot_be_started_leaves_no_result(
    runner: JobRunner, plan: CasePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> JobOutcome:
        raise LaunchError("job", got="no such file", expected="an interpreter")

    monkeypatch.setattr(helpers.session.run_job, "run_job", broken)
    with pytest.raises(SuiteError, match="an interpreter"):
        runner.run(plan, 0)
    assert runner.store.results(plan.case.id) == ()
