"""The loop: asks until there is a verdict, and stops where a run fails, the attempts or the minutes are used up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.history.results import RETRIABLE_FACT, RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Budget, Build, Evidence, Night, Past
from helpers.judging.case.verdict import NeedRuns, Reason, Status, Verdict
from helpers.judging.finding import Code, found
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.machine.environment import Environment
from helpers.plan.case_plan import CasePlan
from helpers.plan.overrides import segment_of
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.report.reasons import reason_text
from helpers.session.measuring.case_loop import evidence_of, measure_case, most_runs, reusable_runs, segment_tonight
from helpers.trainers.contract.errors import SuiteError
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session.measuring.loop_double import PAIRS, SCREENED, MakePlan, MakeRun, Measure, confirming, settled
from tests.helpers.session_double import GOOD, NEW, FakeRunner, finish, roles

MORE = NeedRuns((Build.CANDIDATE,), found(Code.PLANNED, runs=1))


def entry(run: RunResult, samples_per_s: float) -> RecordedEntry:
    """What the run's machine recorded earlier."""
    environment = Environment.from_mapping(run.environment)
    provenance = Provenance("abcdef", "2024-05-06", "h", "first")
    facts = environment.to_mapping(), segment_of(run.environment, run.settings, run.case_id)
    return RecordedEntry(run.case_id, samples_per_s, MEDIAN_STEP, (samples_per_s,), None, *facts, provenance)


# --- the loop


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


# --- two builds


def test_the_judge_gets_the_builds_in_the_order_it_asks_for(
    plan: CasePlan, runner: FakeRunner, store: ResultStore, measure: Measure
) -> None:
    result = measure(plan, by=confirming)
    assert runner.made == [*SCREENED, *PAIRS]
    assert [run.build for run in result.runs] == [NEW, GOOD, NEW, NEW, GOOD]
    told = {"status": "REGRESSION", "code": "confirmed", "reason": "slower"}
    assert store.results(plan.case.id) == tuple(replace(run, verdict=told) for run in result.runs)


def test_the_judge_is_told_what_it_decides_by(plan: CasePlan, memory: MemoryDouble, measure: Measure) -> None:
    seen: list[Evidence] = []

    def judge(evidence: Evidence) -> Verdict | NeedRuns:
        seen.append(evidence)
        return settled(evidence)

    memory.known = Past((Night((4.6,)),), ((4.5, 4.6),))
    budget = Budget(pairs=7)
    measure(replace(plan, budget=budget), by=judge, cases_tonight=9)
    first, last = seen
    assert (first.past, last.past) == (Past(), memory.known)
    assert (last.budget, last.cases_tonight, last.suspicion) == (budget, 9, None)
    assert last.reference_build == "paddle 3.3.1 @abcdef in envs/good"
    assert last.seed == first.seed == f"s {plan.case.id}"


def test_history_is_asked_once_for_the_segment_of_the_first_usable_run(
    plan: CasePlan, make_run: MakeRun, runner: FakeRunner, memory: MemoryDouble, measure: Measure
) -> None:
    there = {**make_run(plan).environment, "threads": "8"}
    runner.answers = [{"invalid": "throttled"}, {"environment": there}, {}]
    measure(plan, by=lambda evidence: confirming(replace(evidence, runs=evidence.runs[1:])))
    segment = segment_of(there, plan.settings, plan.case.id)
    assert memory.asked == [(plan.case.id, "cpu", segment, 2, "s")]


def test_the_reference_builds_environment_is_no_difference_from_what_was_recorded(
    plan: CasePlan, make_run: MakeRun
) -> None:
    new, good = (make_run(plan, at, **roles(plan, *each)) for at, each in enumerate([SCREENED[0], PAIRS[0]]))
    other = replace(good, environment={**good.environment, "framework_version": "2.6.2"})
    evidence = evidence_of(replace(plan, recorded=entry(new, 100.0)), (other, new))
    assert evidence.recorded is not None
    assert evidence.recorded.differences == ()
    assert segment_tonight(plan, (other, new)) == segment_of(new.environment, new.settings, new.case_id)


def test_a_judge_within_the_budget_is_never_stopped_and_one_beyond_it_is(
    plan: CasePlan, runner: FakeRunner, measure: Measure
) -> None:
    plan = replace(plan, budget=Budget(screen_runs=3, first_runs=2, pairs=4, repeats=1, retries=3))
    assert most_runs(plan) == (3 + 2 * 4) * 2 + 3

    def judge(evidence: Evidence) -> Verdict | NeedRuns:
        done = len(evidence.runs) == most_runs(plan) + more
        return Verdict(Status.PASS, Reason("x", "y")) if done else MORE

    more = 0
    assert len(measure(plan, by=judge).runs) == 25
    more = 1
    with pytest.raises(SuiteError, match="within 25 runs"):
        measure(plan, by=judge)
