"""An interrupted session goes on where it was, and takes up only what is exactly its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.history.results import CONTENDED, SLOWED, RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Evidence
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from helpers.plan.case_plan import CasePlan
from helpers.session.measuring.case_loop import is_of_plan, reusable_runs
from helpers.trainers.contract.errors import HistoryError
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session.measuring.loop_double import (
    CONFIRM,
    GOOD_RUN,
    NEW_RUN,
    PAIRS,
    SCREEN,
    SCREENED,
    MakePlan,
    MakeRun,
    Measure,
    confirming,
    settled,
)
from tests.helpers.session_double import GOOD, FakeRunner, finish, roles


def made_runs(plan: CasePlan, make_run: MakeRun, count: int, **values: Any) -> list[RunResult]:
    """The first ``count`` runs that the confirming judge asks for, as results."""
    wanted = [*SCREENED, *PAIRS][:count]
    return [make_run(plan, at, **{**roles(plan, *each), **values}) for at, each in enumerate(wanted)]


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
