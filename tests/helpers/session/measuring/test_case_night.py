"""What a night leaves in the history, and when it teaches nothing."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.history import default_url, open_history
from helpers.history.results import CONTENDED, MACHINE_SHARED
from helpers.history.run_folders import ResultStore, read_night
from helpers.history.session_file import SessionRecord
from helpers.judging.case.evidence import Evidence
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.plan.case_plan import CasePlan
from helpers.plan.overrides import segment_of
from helpers.session.measuring.case_loop import MeasureRequest, measure_case
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session.measuring.loop_double import MakePlan, MakeRun, Measure, confirming, settled
from tests.helpers.session_double import NEW, STANDING, FakeRunner


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
