"""The loop: asks until there is a verdict, stops where a run fails, takes up only what is exactly its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.history.results import CONTENDED, SLOWED, RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.evidence import Budget, Build, Evidence
from helpers.judging.failure_class import FAILURE_FACT, FailureClass
from helpers.judging.rules import MEDIAN_STEP
from helpers.judging.verdict import NeedRuns, Reason, Status, Verdict
from helpers.machine.environment import Environment
from helpers.plan.case_plan import CasePlan
from helpers.plan.overrides import segment_of
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.session.measure import CaseResult, evidence_of, measure_case, most_runs, not_run, reusable_runs
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
    return lambda plan, **options: measure_case(plan, runner, store, MemoryDouble(), **options)


def entry(run: RunResult, samples_per_s: float) -> RecordedEntry:
    """What the run's machine recorded earlier."""
    environment = Environment.from_mapping(run.environment)
    provenance = Provenance("abcdef", "2024-05-06", "h", "first")
    facts = environment.to_mapping(), segment_of(run.environment, run.settings, run.case_id)
    return RecordedEntry(run.case_id, samples_per_s, MEDIAN_STEP, (samples_per_s,), None, None, *facts, provenance)


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
    assert measure(make_plan(), judge=judge).verdict.status is Status.INVALID
    assert runner.asked == [0, 1]


def test_the_verdict_is_written_into_every_run_of_it(make_plan: MakePlan, store: ResultStore, measure: Measure) -> None:
    plan = make_plan(runs=2)
    result = measure(plan)
    found = [run.verdict for run in store.results(plan.case.id)]
    told = {"status": "NO_BASELINE", "code": "no-baseline", "reason": result.verdict.reason.message}
    assert found == [told, told]


def test_the_recorded_figure_is_what_the_runs_are_held_against(make_plan: MakePlan, make_run: MakeRun) -> None:
    plan = make_plan()
    evidence = evidence_of(replace(plan, recorded=entry(make_run(plan), 100.0)), (make_run(plan),))
    assert evidence.recorded is not None
    assert (evidence.recorded.samples_per_s, evidence.recorded.replicates) == (100.0, (100.0,))
    assert evidence.recorded.differences == ()
    assert "abcdef" in evidence.recorded.label


def test_runs_in_another_segment_are_not_compared(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, measure: Measure
) -> None:
    plan = make_plan()
    runner.answers = [{"environment": {**make_run(plan).environment, "threads": "8"}}]
    verdict = measure(replace(plan, recorded=entry(make_run(plan), 100.0))).verdict
    assert verdict.status is Status.INCOMPARABLE
    assert "threads" in verdict.reason.message


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


def test_evidence_is_the_plan_and_its_runs(make_plan: MakePlan, make_run: MakeRun) -> None:
    plan = make_plan(runs=4, overrides={"b": 1, "a": 2})
    run = make_run(plan)
    evidence = evidence_of(plan, (run,))
    assert (evidence.case_id, evidence.rule, evidence.planned_runs) == (plan.case.id, plan.rule, 4)
    assert evidence.runs == (run.evidence,)
    assert evidence.overrides == ("a", "b")
    assert evidence.neutral == {}
    assert [evidence_of(replace(plan, to_record=each), ()).to_record for each in (False, True)] == [False, True]


def test_evidence_tells_which_overrides_do_not_matter_and_why(make_plan: MakePlan) -> None:
    evidence = evidence_of(make_plan(overrides={"momentum": 0, "learning_rate": 0.2, "layout": "NHWC"}), ())
    assert evidence.overrides == ("layout", "learning_rate", "momentum")
    assert list(evidence.neutral) == ["learning_rate"]
    assert "factor" in evidence.neutral["learning_rate"]


def test_a_case_that_cannot_run_here_has_its_reason(make_plan: MakePlan) -> None:
    result = not_run(make_plan(), "needs 8 cards, 0 found")
    assert (result.verdict.status, result.verdict.reason.message) == (Status.NOT_RUN, "needs 8 cards, 0 found")
    assert result.runs == ()


# --- judges that misbehave


def need(*order: Build, count: int | None = None) -> NeedRuns:
    return NeedRuns(Build.CANDIDATE, order, len(order) if count is None else count, "never sure")


def test_a_judge_that_never_settles_is_stopped(make_plan: MakePlan, runner: FakeRunner, measure: Measure) -> None:
    plan = make_plan()
    with pytest.raises(SuiteError, match="never sure"):
        measure(plan, judge=lambda _: need(Build.CANDIDATE, Build.CANDIDATE))
    assert 0 < len(runner.asked) <= most_runs(plan)


def test_a_judge_that_asks_too_much_at_once_starts_nothing(
    make_plan: MakePlan, runner: FakeRunner, measure: Measure
) -> None:
    with pytest.raises(SuiteError, match="1000 more runs"):
        measure(make_plan(), judge=lambda _: need(*[Build.CANDIDATE] * 1000))
    assert runner.asked == []


@pytest.mark.parametrize("request_", [need(), need(count=3), need(Build.CANDIDATE, count=2)])
def test_a_judge_that_contradicts_itself_does_not_loop(
    make_plan: MakePlan, runner: FakeRunner, measure: Measure, request_: NeedRuns
) -> None:
    with pytest.raises(SuiteError, match="order"):
        measure(make_plan(), judge=lambda _: request_)
    assert runner.asked == []


def test_a_run_of_the_reference_build_is_never_faked_with_the_candidate(
    make_plan: MakePlan, runner: FakeRunner, measure: Measure
) -> None:
    with pytest.raises(SuiteError, match="no reference build"):
        measure(make_plan(), judge=lambda _: need(Build.CANDIDATE, Build.REFERENCE))
    assert runner.asked == []


def test_another_judge_decides_in_its_place(make_plan: MakePlan, store: ResultStore, measure: Measure) -> None:
    seen: list[int] = []

    def judge(evidence: Evidence) -> Verdict | NeedRuns:
        seen.append(len(evidence.runs))
        return Verdict(Status.PASS, Reason("x", "y")) if len(evidence.runs) == 4 else need(*[Build.CANDIDATE] * 2)

    assert measure(make_plan(), judge=judge).verdict.status is Status.PASS
    assert seen == [0, 2, 4]


# --- resuming


def test_resuming_makes_only_what_is_missing(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, store: ResultStore, measure: Measure
) -> None:
    plan = make_plan(runs=3, settings={"lr": 0.1, "shape": (3, 224)}, build={"version": "3.0"})
    finish(store, make_run(plan, 0), make_run(plan, 1))
    result = measure(plan, resume=True)
    assert (runner.asked, result.resumed, len(result.runs)) == ([2], 2, 3)


def test_resuming_a_finished_case_trains_nothing(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, store: ResultStore, measure: Measure
) -> None:
    plan = make_plan()
    finish(store, make_run(plan, samples_per_s=123.0))
    result = measure(plan, resume=True)
    assert (runner.asked, result.resumed) == ([], 1)
    assert result.verdict.measured is not None
    assert result.verdict.measured.centre == 123.0


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
    plan = make_plan(settings={"lr": 0.1}, build={"version": "3.0"})
    finish(store, replace(make_run(plan), **change))
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


@pytest.mark.parametrize("data", ["other images", ""])
def test_a_run_on_other_data_is_made_again(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, store: ResultStore, measure: Measure, data: str
) -> None:
    plan = make_plan(data="photographs")
    run = make_run(plan)
    finish(store, replace(run, environment={**run.environment, "data": data}))
    assert measure(plan, resume=True).resumed == 0
    assert runner.asked == [0]


@pytest.mark.parametrize("fact", ["host_id", "cpu_model", "driver", "flags"])
@pytest.mark.parametrize("was", ["another", None])
def test_a_run_of_another_machine_or_segment_is_made_again(
    make_plan: MakePlan,
    make_run: MakeRun,
    runner: FakeRunner,
    store: ResultStore,
    measure: Measure,
    fact: str,
    was: str | None,
) -> None:
    plan = make_plan(environment={name: name for name in ("host_id", "cpu_model", "driver", "flags")})
    run = make_run(plan)
    facts = {name: value for name, value in run.environment.items() if name != fact}
    finish(store, replace(run, environment=facts if was is None else {**facts, fact: was}))
    assert reusable_runs(plan, store, True) == ()
    assert measure(plan, resume=True).resumed == 0
    assert runner.asked == [0]


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

KILLED = {"failure": "killed by a signal: rank 0", "figures": {}, "facts": {FAILURE_FACT: FailureClass.KILLED.value}}
FULL = {"failure": "disk full: rank 0", "figures": {}, "facts": {FAILURE_FACT: FailureClass.DISK_FULL.value}}


def test_a_run_that_an_infrastructure_failure_ended_is_made_again_and_both_are_kept(
    make_plan: MakePlan, runner: FakeRunner, store: ResultStore
) -> None:
    plan, memory = make_plan(), MemoryDouble()
    runner.answers = [KILLED, {}]
    result = measure_case(plan, runner, store, memory)
    assert result.verdict.status is Status.NO_BASELINE
    assert "attempt 1 of 2 ended: killed by a signal: rank 0" in result.verdict.reason.message
    assert [run.failure is None for run in store.results(plan.case.id)] == [False, True]
    assert [run.replicate for run in memory.results] == [0, 1]


@pytest.mark.parametrize(("answers", "made"), [([KILLED] * 9, 2), ([FULL] * 9, 1), ([KILLED, FULL], 2)])
def test_attempts_end_at_their_bound(
    make_plan: MakePlan, runner: FakeRunner, measure: Measure, answers: list[dict[str, Any]], made: int
) -> None:
    runner.answers = answers
    result = measure(make_plan(runs=3))
    assert (result.verdict.status, len(result.runs)) == (Status.INFRA_ERROR, made)
    assert result.verdict.reason.message.startswith(str(answers[made - 1]["failure"]))


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_the_most_runs_bound_the_attempts_too(
    make_plan: MakePlan, runner: FakeRunner, measure: Measure, retries: int
) -> None:
    plan = make_plan(runs=1, budget=Budget(1, 2, 3, 1, 0, retries))
    runner.answers = [KILLED] * retries
    assert len(measure(plan).runs) == 1 + retries <= most_runs(plan)


def test_resuming_counts_the_attempts_that_were_made(
    make_plan: MakePlan, make_run: MakeRun, runner: FakeRunner, store: ResultStore, measure: Measure
) -> None:
    plan = make_plan(runs=2)
    finish(store, make_run(plan, 0), make_run(plan, 1, **KILLED))
    runner.answers = [KILLED]
    result = measure(plan, resume=True)
    assert (runner.asked, result.resumed, result.verdict.status) == ([2], 2, Status.INFRA_ERROR)
    assert "attempt 1 of 2 ended" in result.verdict.reason.message


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


def test_a_class_that_this_suite_does_not_know_is_not_tried_again(make_plan: MakePlan, make_run: MakeRun) -> None:
    unknown = make_run(make_plan(), failure="odd", facts={FAILURE_FACT: "odd"})
    assert unknown.failure_class is None
    assert not unknown.evidence.retriable


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
        assert result.verdict.reason.message.startswith(told)
        assert result.verdict.measured is not None and result.verdict.measured.n == made


def test_a_case_that_needs_less_is_judged_as_ever(make_plan: MakePlan, runner: FakeRunner, measure: Measure) -> None:
    runner.answers = [{"wall_seconds": 60.0}] * 2
    result = measure(replace(make_plan(runs=2), budget=Budget(case_minutes=2.0)))
    assert (result.verdict.status, len(result.runs)) == (Status.NO_BASELINE, 2)
