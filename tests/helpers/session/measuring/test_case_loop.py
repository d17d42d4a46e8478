"""The loop: asks until there is a verdict, stops where a run fails, takes up only what is exactly its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.history.results import CONTENDED, RETRIABLE_FACT, SLOWED, RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Budget, Build, Evidence
from helpers.judging.case.verdict import NeedRuns, Reason, Status, Verdict
from helpers.judging.finding import Code, found
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.machine.environment import Environment
from helpers.plan.case_plan import CasePlan
from helpers.plan.overrides import segment_of
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.report.reasons import reason_text
from helpers.session.measuring.case_loop import (
    CaseResult,
    MeasureRequest,
    is_of_plan,
    measure_case,
    most_runs,
    reusable_runs,
)
from helpers.trainers.contract.errors import SuiteError
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session_double import FakeRunner, finish

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]
Measure = Callable[..., CaseResult]


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path, "s")


@pytest.fixture
def runner(store: ResultStore, make_run: MakeRun) -> FakeRunner:
    return FakeRunner(store, make_run)


@pytest.fixture
def measure(runner: FakeRunner, store: ResultStore) -> Measure:
    """measure_case with the test's runner, store and memory; each keyword is measure_case's own."""
    return lambda plan, **options: measure_case(plan, runner, store, MemoryDouble(), MeasureRequest(**options))


def entry(run: RunResult, samples_per_s: float) -> RecordedEntry:
    """What the run's machine recorded earlier."""
    environment = Environment.from_mapping(run.environment)
    provenance = Provenance("abcdef", "2024-05-06", "h", "first")
    facts = environment.to_mapping(), segment_of(run.environment, run.settings, run.case_id)
    return RecordedEntry(run.case_id, samples_per_s, MEDIAN_STEP, (samples_per_s,), None, *facts, provenance)


# --- the loop


def test_runs_until_the_judge_has_its_verdict(make_plan: MakePlan, runner: FakeRunner, measure: Measure) -> None:
    runner.answers = [{"samples_per_s": rate} for rate in (100.0, 104.0, 102.0)]
    result = measure(make_plan(runs=3))
    assert runner.asked == [0, 1, 2]
    assert (result.verdict.status, result.resumed, len(result.runs)) == (Status.NO_BASELINE, 0, 3)
    assert result.verdict.measured is not None
    assert (result.verdict.measured.centre, result.verdict.measured.n) == (102.0, 3)


@pytest.mark.parametrize("problem", ["failure", "invalid", "refusal"])
def test_a_run_that_cannot_be_used_is_shown_to_the_judge_before_the_next_one(
    make_plan: MakePlan, runner: FakeRunner, measure: Measure, problem: str
) -> None:
    def judge(evidence: Evidence) -> Verdict | NeedRuns:
        broken = [run for run in evidence.runs if getattr(run, problem) is not None]
        return Verdict(Status.INVALID, Reason("x", "y")) if broken else need(*[Build.CANDIDATE] * 7)

    runner.answers = [{}, {problem: "why", "figures": {}}]
    assert measure(make_plan(), by=judge).verdict.status is Status.INVALID
    assert runner.asked == [0, 1]


@pytest.mark.parametrize("different", [0, 1])
def test_one_run_in_another_segment_is_enough_not_to_compare(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, measure: Measure, different: int
) -> None:
    plan = make_plan(runs=2)
    plan = replace(plan, to_record=True)
    runner.answers = [{}, {}]
    runner.answers[different] = {"environment": {**make_run(plan).environment, "threads": "8"}}
    verdict = measure(replace(plan, recorded=entry(make_run(plan), 100.0))).verdict
    assert verdict.status is Status.INCOMPARABLE


# --- judges that misbehave


def need(*order: Build) -> NeedRuns:
    return NeedRuns(order, found(Code.NO_DROP))


@pytest.mark.parametrize("order", [(Build.CANDIDATE, Build.CANDIDATE), ()])
def test_a_judge_that_never_settles_is_stopped(
    make_plan: MakePlan, runner: FakeRunner, measure: Measure, order: tuple[Build, ...]
) -> None:
    plan = make_plan(budget=Budget(pairs=3))
    with pytest.raises(SuiteError, match="no-drop"):
        measure(plan, by=lambda _: need(*order))
    assert len(runner.asked) <= most_runs(plan)


# --- resuming


def test_resuming_makes_only_what_is_missing(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, store: ResultStore, measure: Measure
) -> None:
    plan = make_plan(runs=3, settings={"lr": 0.1, "shape": (3, 224)}, build={"version": "3.0"})
    finish(store, make_run(plan, 0), make_run(plan, 1))
    result = measure(plan, resume=True)
    assert (runner.asked, result.resumed, len(result.runs)) == ([2], 2, 3)


def test_without_resume_every_run_is_made(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, store: ResultStore, measure: Measure
) -> None:
    plan = make_plan()
    finish(store, make_run(plan))
    assert measure(plan).resumed == 0
    assert runner.asked == [0]


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"lr": 0.2}},
        {"settings": {}},
        {"overrides": {"lr": 0.1}},
        {"protocol": {"warmup_steps": 2, "window_steps": 6}},
        {"protocol": {}},
        {"target": "v100"},
        {"build": {"version": "2.9"}},
        {"failure": "exit 1"},
        {"invalid": "contended"},
        {"refusal": "no"},
        {"environment": {"data": "other images"}},
        {"environment": {"host_id": "another"}},
        {"environment": {"driver": ""}},
    ],
)
def test_a_run_that_is_not_exactly_this_plans_is_made_again(
    make_plan: MakePlan,
    make_run: MakeRun,
    runner: FakeRunner,
    store: ResultStore,
    measure: Measure,
    change: dict[str, Any],
) -> None:
    here = {name: name for name in ("host_id", "cpu_model", "driver", "flags")}
    plan = make_plan(settings={"lr": 0.1}, build={"version": "3.0"}, data="photographs", environment=here)
    run = make_run(plan)
    assert is_of_plan(plan, run, False)
    environment = {**run.environment, **change.get("environment", {})}
    finish(store, replace(run, **{**change, "environment": environment}))
    assert reusable_runs(plan, store, False) == ()
    assert measure(plan, resume=True).resumed == 0
    assert runner.asked == [0]


@pytest.mark.parametrize("mark", [CONTENDED, SLOWED])
@pytest.mark.parametrize("allowed", [False, True])
def test_a_disturbed_run_is_taken_up_only_where_contention_is_allowed(
    make_plan: MakePlan,
    make_run: MakeRun,
    runner: FakeRunner,
    store: ResultStore,
    measure: Measure,
    allowed: bool,
    mark: str,
) -> None:
    plan = make_plan()
    finish(store, make_run(plan, marks=(mark,)))
    result = measure(plan, resume=True, allow_contention=allowed)
    assert (runner.asked, result.resumed) == (([], 1) if allowed else ([0], 0))


def test_a_run_of_this_machine_is_taken_up_whatever_is_known_only_after_it(
    make_plan: MakePlan, make_run: MakeRun, store: ResultStore
) -> None:
    plan = make_plan(environment={"host_id": "host_id"})
    run = make_run(plan)
    finish(store, replace(run, environment={**run.environment, "threads": "8"}))
    assert len(reusable_runs(plan, store, False)) == 1


@pytest.mark.parametrize(("present", "reused"), [((0, 1), 2), ((1, 2), 0), ((0, 2), 1), ((0, 2, 3), 1)])
def test_what_follows_a_gap_is_made_again(
    make_plan: MakePlan, make_run: MakeRun, store: ResultStore, present: tuple[int, ...], reused: int
) -> None:
    plan = make_plan(runs=4)
    finish(store, *(make_run(plan, replicate) for replicate in present))
    assert [run.replicate for run in reusable_runs(plan, store, False)] == list(range(reused))


def test_a_failed_run_is_kept_aside_when_it_is_made_again(
    make_plan: MakePlan, make_run: MakeRun, store: ResultStore, measure: Measure
) -> None:
    plan = make_plan()
    finish(store, make_run(plan, failure="exit 137", figures={}))
    assert measure(plan, resume=True).verdict.status is Status.NO_BASELINE
    aside = store.folder / plan.case.id / "r0.aside1" / "result.json"
    assert "exit 137" in aside.read_text()


# --- attempts

KILLED = {"failure": "killed by a signal: rank 0", "figures": {}, "facts": {RETRIABLE_FACT: "yes"}}
FULL = {"failure": "disk full: rank 0", "figures": {}, "facts": {RETRIABLE_FACT: "no"}}


def test_a_run_that_an_infrastructure_failure_ended_is_made_again_and_both_are_kept(
    make_plan: MakePlan, runner: FakeRunner, store: ResultStore
) -> None:
    plan, memory = make_plan(), MemoryDouble()
    runner.answers = [KILLED, {}]
    result = measure_case(plan, runner, store, memory)
    assert result.verdict.status is Status.NO_BASELINE
    assert "attempt 1 of 2 ended: killed by a signal: rank 0" in reason_text(result.verdict.reason)
    assert [run.failure is None for run in store.results(plan.case.id)] == [False, True]
    assert [run.replicate for run in memory.results] == [0, 1]


@pytest.mark.parametrize(("answers", "made"), [([KILLED] * 9, 2), ([FULL] * 9, 1), ([KILLED, FULL], 2)])
def test_attempts_end_at_their_bound(
    make_plan: MakePlan, runner: FakeRunner, measure: Measure, answers: list[dict[str, Any]], made: int
) -> None:
    runner.answers = answers
    result = measure(make_plan(runs=3))
    assert (result.verdict.status, len(result.runs)) == (Status.INFRA_ERROR, made)
    assert reason_text(result.verdict.reason).startswith(str(answers[made - 1]["failure"]))


def test_resuming_counts_the_attempts_that_were_made(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, store: ResultStore, measure: Measure
) -> None:
    plan = make_plan(runs=2)
    finish(store, make_run(plan, 0), make_run(plan, 1, **KILLED))
    runner.answers = [KILLED]
    result = measure(plan, resume=True)
    assert (runner.asked, result.resumed, result.verdict.status) == ([2], 2, Status.INFRA_ERROR)
    assert "attempt 1 of 2 ended" in reason_text(result.verdict.reason)


def test_resuming_a_case_that_used_its_attempts_up_makes_one_more(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, store: ResultStore, measure: Measure
) -> None:
    plan = make_plan()
    finish(store, make_run(plan, 0, **KILLED), make_run(plan, 1, **KILLED))
    result = measure(plan, resume=True)
    assert (runner.asked, result.resumed, result.verdict.status) == ([1], 1, Status.NO_BASELINE)
    assert (store.folder / plan.case.id / "r1.aside1" / "result.json").exists()


def test_a_failed_attempt_in_the_middle_does_not_cost_the_runs_behind_it(
    make_plan: MakePlan, make_run: MakeRun, store: ResultStore
) -> None:
    plan = make_plan(runs=3)
    finish(store, make_run(plan, 0), make_run(plan, 1, **KILLED), make_run(plan, 2))
    assert len(reusable_runs(plan, store, False)) == 3


# --- the case's minutes


@pytest.mark.parametrize(("minutes", "made"), [(None, 9), (4.0, 4), (3.9, 3), (0.1, 1)])
def test_no_run_is_begun_that_the_case_s_minutes_have_no_room_for(
    make_plan: MakePlan, runner: FakeRunner, measure: Measure, minutes: float | None, made: int
) -> None:
    plan = replace(make_plan(runs=9), budget=Budget(case_minutes=minutes))
    runner.answers = [{"wall_seconds": 60.0}] * 9
    result = measure(plan)
    assert len(result.runs) == made
    assert (result.verdict.status is Status.INCONCLUSIVE) is (minutes is not None)
    if minutes is not None:
        told = f"stopped after {made:.1f} of budgets.case_minutes = {minutes:g}, because "
        assert reason_text(result.verdict.reason).startswith(told)
        assert result.verdict.measured is not None and result.verdict.measured.n == made
