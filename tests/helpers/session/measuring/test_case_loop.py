"""The loop: asks until there is a verdict, stops where a run fails, takes up only what is exactly its own."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.history import default_url, open_history
from helpers.history.results import CONTENDED, MACHINE_SHARED, RETRIABLE_FACT, SLOWED, RunResult
from helpers.history.run_folders import ResultStore, read_night
from helpers.history.session_file import SessionRecord
from helpers.judging.case.evidence import Budget, Build, Evidence, Night, Past, Stage
from helpers.judging.case.verdict import NeedRuns, Reason, Standing, Status, Verdict
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
    evidence_of,
    is_of_plan,
    measure_case,
    most_runs,
    reusable_runs,
    segment_tonight,
)
from helpers.trainers.contract.errors import HistoryError, SuiteError
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session_double import GOOD, NEW, FakeRunner, finish, roles

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]
Measure = Callable[..., CaseResult]


GOOD_RUN, NEW_RUN = Build.REFERENCE, Build.CANDIDATE
SCREEN, CONFIRM = Stage.SCREEN, Stage.CONFIRM
# One screening run, then two pairs, ABBA: what a suspect gets of the judge below.
SCREENED = [(NEW_RUN, SCREEN)]
PAIRS = [(GOOD_RUN, CONFIRM), (NEW_RUN, CONFIRM), (NEW_RUN, CONFIRM), (GOOD_RUN, CONFIRM)]
WHEN = datetime.datetime(2026, 11, 21, 3, 4, 5, tzinfo=datetime.UTC)
MORE = NeedRuns((Build.CANDIDATE,), found(Code.PLANNED, runs=1))
STANDING = Standing(4.6, 1.0, 1.0, accepted=True, sigma=0.002, tau=0.001, nights=20, runs=1, new_segment=True)


def confirming(evidence: Evidence) -> Verdict | NeedRuns:
    """A judge that screens once and wants two pairs, whatever the runs say; it asks for what is missing of them."""
    made = [(run.build, run.stage) for run in evidence.runs]
    wanted = [*SCREENED, *PAIRS]
    if len(made) == len(wanted):
        return Verdict(Status.REGRESSION, Reason("confirmed", "slower"), standing=STANDING)
    stage = wanted[len(made)][1]
    left = [each for each, of in wanted[len(made) :] if of is stage]
    return NeedRuns(tuple(left), found(Code.PLANNED, runs=len(left)), stage)


def settled(evidence: Evidence) -> Verdict | NeedRuns:
    """A judge that one usable run satisfies."""
    if any(run.invalid is None for run in evidence.runs):
        return Verdict(Status.PASS, Reason("x", "y"), standing=STANDING)
    return NeedRuns((NEW_RUN,), found(Code.PLANNED, runs=1))


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path, "s")


@pytest.fixture
def runner(store: ResultStore, make_run: MakeRun) -> FakeRunner:
    return FakeRunner(store, make_run)


@pytest.fixture
def memory() -> MemoryDouble:
    return MemoryDouble()


@pytest.fixture
def measure(runner: FakeRunner, store: ResultStore, memory: MemoryDouble) -> Measure:
    """measure_case with the test's runner, store and memory; each keyword is measure_case's own."""
    return lambda plan, **options: measure_case(
        plan, runner, store, memory, MeasureRequest(**options), now=lambda: WHEN
    )


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


# --- both builds, and what a night leaves in history


@pytest.fixture
def plan(make_plan: MakePlan) -> CasePlan:
    return make_plan(build=NEW, reference=GOOD)


def made_runs(plan: CasePlan, make_run: MakeRun, count: int, **values: Any) -> list[RunResult]:
    """The first ``count`` runs that the confirming judge asks for, as results."""
    wanted = [*SCREENED, *PAIRS][:count]
    return [make_run(plan, at, **{**roles(plan, *each), **values}) for at, each in enumerate(wanted)]


# --- one night


def test_a_session_over_midnight_is_one_night_also_when_it_is_resumed(
    plan: CasePlan, make_run: MakeRun, tmp_path: Path
) -> None:
    """It begins at 23:50 in California, where the case is judged at 00:20, and goes on in the morning."""
    store = ResultStore(tmp_path, "s", SessionRecord(began="2026-11-20T23:50:00-08:00"))
    days: list[int] = []

    def judge(evidence: Evidence) -> Verdict | NeedRuns:
        days.append(evidence.day)
        return settled(evidence)

    with open_history(default_url(tmp_path)) as history:
        for judged in ("2026-11-21T08:20:00+00:00", "2026-11-21T17:00:00+00:00"):
            when = datetime.datetime.fromisoformat(judged)
            runner = FakeRunner(store, make_run)
            measure_case(
                plan, runner, store, history, MeasureRequest(resume=True, by=judge), now=lambda when=when: when
            )
            night = read_night(tmp_path / "s" / plan.case.id / "night.json")
            assert (night.date, night.created) == ("2026-11-20", judged)
            assert [each.record.session for each in history.nights_of("2026-11-20")] == ["s"]
    assert set(days) == {datetime.date(2026, 11, 20).toordinal()}


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
    environment = Environment.from_mapping(new.environment)
    provenance = Provenance("abcdef", "2024-05-06", "h", "first")
    segment = segment_of(new.environment, new.settings, new.case_id)
    facts = environment.to_mapping(), segment
    entry = RecordedEntry(new.case_id, 100.0, MEDIAN_STEP, (100.0,), None, *facts, provenance)
    evidence = evidence_of(replace(plan, recorded=entry), (other, new))
    assert evidence.recorded is not None
    assert evidence.recorded.differences == ()
    assert segment_tonight(plan, (other, new)) == segment


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


# --- nothing is lost


def test_each_run_is_on_disk_before_the_next_starts_and_all_are_in_history_at_the_end(
    plan: CasePlan, runner: FakeRunner, store: ResultStore, memory: MemoryDouble, measure: Measure
) -> None:
    seen: list[tuple[int, int]] = []
    runner.before = lambda: seen.append((len(store.results(plan.case.id)), len(memory.results)))
    measure(plan, by=confirming)
    assert seen == [(made, 0) for made in range(5)]
    assert [run.uuid for run in memory.results] == [f"u{number}" for number in range(5)]


@pytest.mark.parametrize(("call", "made"), [("past", 1), ("add_case", 5)])
def test_a_history_that_fails_leaves_the_runs_on_disk_and_no_verdict(
    plan: CasePlan, store: ResultStore, memory: MemoryDouble, measure: Measure, call: str, made: int
) -> None:
    memory.fails = (call,)
    with pytest.raises(HistoryError, match="disk full"):
        measure(plan, by=confirming)
    found = store.results(plan.case.id)
    assert [run.verdict for run in found] == [None] * made


@pytest.mark.parametrize("made", [0, 1, 2, 5])
def test_an_interrupted_confirmation_goes_on_where_it_was(
    plan: CasePlan, make_run: MakeRun, runner: FakeRunner, store: ResultStore, measure: Measure, made: int
) -> None:
    finish(store, *made_runs(plan, make_run, made))
    result = measure(plan, by=confirming, resume=True)
    assert runner.made == [*SCREENED, *PAIRS][made:]
    assert (result.resumed, len(result.runs)) == (made, 5)


@pytest.mark.parametrize("reference", [{**GOOD, "commit": "other"}, {**GOOD, "interpreter": "/x/bin/python"}, {}])
@pytest.mark.parametrize(("made", "kept"), [(2, 1), (3, 1), (5, 1)])
def test_runs_of_another_reference_build_are_made_again_with_their_pairs(
    plan: CasePlan, make_run: MakeRun, store: ResultStore, reference: dict[str, str], made: int, kept: int
) -> None:
    finish(store, *made_runs(plan, make_run, made))
    assert len(reusable_runs(replace(plan, reference=reference), store, False)) == kept


def test_a_pair_is_made_again_whole_where_its_other_half_is(
    plan: CasePlan, make_run: MakeRun, store: ResultStore
) -> None:
    order = [(NEW_RUN, SCREEN), (NEW_RUN, CONFIRM), (GOOD_RUN, CONFIRM)]
    finish(store, *(make_run(plan, at, **roles(plan, *each)) for at, each in enumerate(order)))
    assert len(reusable_runs(plan, store, False)) == 3
    assert len(reusable_runs(replace(plan, reference={**GOOD, "version": "3.4"}), store, False)) == 1


def test_a_half_pair_whose_other_half_crashed_is_kept(plan: CasePlan, make_run: MakeRun, store: ResultStore) -> None:
    *runs, last = made_runs(plan, make_run, 5)
    finish(store, *runs, replace(last, failure="exit 137", figures={}))
    assert len(reusable_runs(plan, store, False)) == 4


def test_the_reference_is_never_taken_for_the_build_under_test(
    plan: CasePlan, make_run: MakeRun, store: ResultStore
) -> None:
    finish(store, make_run(plan, **{**roles(plan, NEW_RUN, SCREEN), "build": dict(GOOD)}))
    assert reusable_runs(plan, store, False) == ()


@pytest.mark.parametrize(("invalid", "kept"), [((0,), 3), ((1,), 3), ((2,), 2), ((1, 2), 1), ((0, 1, 2), 0)])
def test_an_invalid_run_counts_against_the_night_where_a_usable_one_follows(
    plan: CasePlan, make_run: MakeRun, store: ResultStore, invalid: tuple[int, ...], kept: int
) -> None:
    told = {at: {"invalid": "throttled"} if at in invalid else {} for at in range(3)}
    finish(store, *(make_run(plan, at, **values) for at, values in told.items()))
    assert len(reusable_runs(plan, store, False)) == kept


def test_a_suspicion_goes_on_from_tonights_runs_and_replaces_the_night(
    plan: CasePlan, runner: FakeRunner, memory: MemoryDouble, measure: Measure
) -> None:
    seen: list[str] = []

    def judge(evidence: Evidence) -> Verdict | NeedRuns:
        seen.append(evidence.suspicion)
        return confirming(evidence)

    measure(plan, by=settled)
    result = measure(plan, by=judge, suspicion="all amp cases fell together")
    assert runner.made == [*SCREENED, *PAIRS]
    assert set(seen) == {"all amp cases fell together"}
    assert [night.status for night in memory.nights] == ["PASS", "REGRESSION"]
    assert {(night.session, night.target, night.case_id) for night in memory.nights} == {("s", "cpu", plan.case.id)}
    assert (len(result.runs), result.resumed) == (5, 0)


# --- the night


def test_a_night_holds_the_verdict_and_what_it_rests_on(
    plan: CasePlan,
    make_run: MakeRun,
    runner: FakeRunner,
    store: ResultStore,
    memory: MemoryDouble,
    measure: Measure,
) -> None:
    runner.answers = [{"samples_per_s": rate} for rate in (100.0, 90.0, 80.0, 70.0, 60.0)]
    result = measure(plan, by=confirming)
    (night,) = memory.nights
    assert (night.session, night.case_id, night.target) == ("s", plan.case.id, "cpu")
    assert (night.created, night.status, night.code) == ("2026-11-21T03:04:05+00:00", "REGRESSION", "confirmed")
    assert night.log_rates == (math.log(100.0),)
    assert night.stall_share == result.runs[0].stall_share
    assert night.run_uuids == tuple(run.uuid for run in result.runs)
    assert (night.standing, night.build) == (STANDING, NEW)
    assert night.segment == segment_of(make_run(plan).environment, plan.settings, plan.case.id)
    assert night.cards == 2
    assert read_night(store.folder / plan.case.id / "night.json") == night
    assert night.properties == {
        "framework": "paddle",
        "model": "vgg16",
        "precision": "fp32",
        "cards": "2",
        "nodes": "1",
        "execution": "static",
    }


@pytest.mark.parametrize(("mark", "at"), [(CONTENDED, 0), (MACHINE_SHARED, 4)])
def test_a_night_with_a_marked_run_teaches_nothing(
    plan: CasePlan, runner: FakeRunner, memory: MemoryDouble, measure: Measure, mark: str, at: int
) -> None:
    runner.answers = [{"marks": (mark,)} if number == at else {} for number in range(5)]
    result = measure(plan, by=confirming)
    (night,) = memory.nights
    assert result.verdict.status is Status.REGRESSION
    assert night.standing is not None
    assert (night.log_rates, night.stall_share) == ((), None)
    assert (night.standing.accepted, night.standing.new_segment) == (False, False)


def test_a_night_with_changed_settings_teaches_nothing(
    make_plan: MakePlan, memory: MemoryDouble, measure: Measure
) -> None:
    measure(make_plan(overrides={"learning_rate": 0.2}), by=settled)
    (night,) = memory.nights
    assert night.standing is not None
    assert (night.log_rates, night.standing.accepted) == ((), False)


@pytest.mark.parametrize("problem", ["failure", "refusal"])
def test_a_night_without_a_usable_run_is_kept_too(
    plan: CasePlan, runner: FakeRunner, memory: MemoryDouble, measure: Measure, problem: str
) -> None:
    runner.answers = [{problem: "why", "figures": {}}]
    result = measure(replace(plan, environment={"host_id": "h7"}))
    (night,) = memory.nights
    assert night.host == "h7"
    assert (night.status, night.segment, night.log_rates) == (result.verdict.status.value, {}, ())
    assert night.run_uuids == (result.runs[0].uuid,)


def test_a_run_without_the_median_step_has_no_log_rate(
    plan: CasePlan, runner: FakeRunner, memory: MemoryDouble, measure: Measure
) -> None:
    runner.answers = [{"figures": {plan.rule: 100.0, MEDIAN_STEP: "no steps"}}]
    measure(plan, by=settled)
    assert memory.nights[0].log_rates == ()
