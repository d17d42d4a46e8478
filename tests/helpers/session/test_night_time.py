"""The time of a planned night: when a case is not reached, and how many pairs it may take."""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import replace

import pytest

from helpers.judging.evidence import Build, Compared, Past, Stage
from helpers.judging.night_layout import lay_out
from helpers.judging.night_plan import CaseNeed, NightLimits
from helpers.judging.verdict import Status
from helpers.machine.wall_clock import utc_now
from helpers.plan.case_plan import CasePlan
from helpers.plan.night_budget import NightBudget
from helpers.session.night_time import LEAST_PAIRS, OUT_OF_TIME, CaseTime, NightTime, out_of_time
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import SuiteError
from tests.helpers.judging.evidences import CENTRE, nights
from tests.helpers.session.workshop import DALI, SYNTHETIC, Bench, Builds, case_of, record

BEGINS = datetime.datetime(2026, 11, 23, 2, tzinfo=datetime.UTC)


def night(minutes: float = 60.0, search: float = 6.0, used_seconds: float = 0.0, sigma: float = 0.001) -> NightTime:
    needs = [
        CaseNeed(case_id, "cpu", 60.0, "its last runs", sigma, sigma, pairs=40, waited=waited)
        for case_id, waited in ((SYNTHETIC, 3), (DALI, 2))
    ]
    return NightTime.of(lay_out(needs, NightLimits(minutes, search)), BEGINS, used_seconds)


def after(minutes: float) -> datetime.datetime:
    return BEGINS + datetime.timedelta(minutes=minutes)


def plan_of(bench: Bench, case_id: str = SYNTHETIC) -> CasePlan:
    return CasePlan(case_of(bench.suite(), case_id))


def test_a_case_is_not_reached_once_its_runs_do_not_fit_before_what_is_kept() -> None:
    time = night()
    key = ("cpu", SYNTHETIC)
    assert time.why_not(key, after(53)) == ""
    assert time.why_not(key, after(53.5)) == (
        "not reached: the night's 60 min (budgets.night_minutes) have 0.5 min left for cases, and it takes 1.0 min"
    )
    assert time.seconds_left(after(53), searching=True) == 7 * 60
    assert time.why_not(("cpu", "a case of no plan"), after(500)) == ""


def test_a_session_that_goes_on_has_what_the_first_part_left() -> None:
    assert night(used_seconds=600).ends == after(50)


def test_pairs_are_as_many_as_there_is_time_for(bench: Bench) -> None:
    plan, time = plan_of(bench), night()
    assert time.within(plan, BEGINS).budget.pairs == 26
    assert time.within(plan, after(40)).budget.pairs == 6
    assert time.within(plan, after(53)).budget.pairs == LEAST_PAIRS
    few = replace(plan, budget=replace(plan.budget, pairs=4))
    assert time.within(few, BEGINS).budget.pairs == 4
    other = plan_of(bench, "paddle-vgg16-fp32-bs1-1x1-dali-dynamic")
    assert time.within(other, BEGINS) is other


def test_a_noisy_case_is_measured_in_pairs(bench: Bench) -> None:
    planned = night(120.0, sigma=0.012).within(plan_of(bench), BEGINS)
    assert planned.in_pairs
    assert planned.planned_runs >= 1


def test_pairs_that_nothing_asks_for_do_not_cost_a_later_case_its_runs(bench: Bench) -> None:
    time, plan = night(120.0, sigma=0.012), plan_of(bench)
    first, later = time.cases["cpu", SYNTHETIC], time.cases["cpu", DALI]
    # And not the time that is kept to confirm what may look slow there.
    assert later.kept_seconds > LEAST_PAIRS * later.run_seconds
    least = (first.runs + later.runs + 2 * LEAST_PAIRS) * first.run_seconds + later.kept_seconds
    just = time.ends - datetime.timedelta(seconds=math.ceil(time.search_seconds + least))
    assert list(time.cases) == [("cpu", SYNTHETIC), ("cpu", DALI)]
    assert time.within(plan, just).in_pairs
    assert not time.within(plan, just + datetime.timedelta(seconds=1)).in_pairs
    # What looks slow is confirmed all the same.
    assert time.within(plan, just + datetime.timedelta(seconds=1)).budget.pairs >= LEAST_PAIRS


def two_cases(first: CaseTime, later: CaseTime, minutes: float = 27.0) -> NightTime:
    ends = BEGINS + datetime.timedelta(minutes=minutes)
    return NightTime(ends, 0.0, minutes, 2, {("cpu", SYNTHETIC): first, ("cpu", DALI): later})


def test_a_long_later_case_keeps_its_time_from_pairs_that_nothing_asks_for(bench: Bench) -> None:
    time = two_cases(CaseTime(1, True, 60.0), CaseTime(20, False, 60.0))
    planned = time.within(plan_of(bench), BEGINS)
    assert (planned.in_pairs, planned.unasked_pairs) == (True, LEAST_PAIRS)
    # A drop that is suspected is settled with all the time there is.
    assert planned.budget.pairs == 13
    shorter = two_cases(CaseTime(1, True, 60.0), CaseTime(10, False, 60.0))
    assert shorter.within(plan_of(bench), BEGINS).unasked_pairs == 8


def test_runs_that_are_made_take_no_more_time_and_count_as_they_are(bench: Bench) -> None:
    plan, runner = plan_of(bench), bench.runner
    screened = runner.result(plan)
    pairs = [
        runner.result(plan, number, role=build.value, stage=Stage.CONFIRM.value)
        for number, build in enumerate((Build.CANDIDATE, Build.REFERENCE) * 5, start=1)
    ]
    time = two_cases(CaseTime(1, True, 60.0), CaseTime(20, False, 60.0))
    over = time.within(plan, after(500), (screened, *pairs))
    assert (over.in_pairs, over.budget.pairs, over.unasked_pairs) == (True, 5, 5)
    few = replace(plan, budget=replace(plan.budget, pairs=4))
    assert time.within(few, BEGINS, (screened, *pairs)).budget.pairs == 5
    # 27 minutes are left, and none of them is for the run that is there.
    alone = two_cases(CaseTime(1, True, 60.0), CaseTime(0, False, 60.0), minutes=28.0)
    assert alone.within(plan, BEGINS).budget.pairs == 13
    assert alone.within(plan, BEGINS, (screened,)).budget.pairs == 14
    assert not time.within(plan, after(500), (screened,)).in_pairs


def in_pairs(bench: Bench, ends: datetime.datetime, resume: bool = False) -> Suite:
    """A session with a good build, whose night compares the case in pairs and ends then."""
    suite = bench.suite(reference_env=bench.good_python, resume=resume)
    time = NightTime(ends, 0.0, 60.0, 1, {("cpu", SYNTHETIC): CaseTime(1, True, 60.0)})
    suite.options = replace(suite.options, night=time.to_record())
    return suite


def test_a_regression_that_pairs_confirmed_stays_one_when_no_time_is_left(bench: Bench) -> None:
    """Its own run shows nothing: only the pairs do."""
    record(bench, SYNTHETIC)
    hour = datetime.timedelta(hours=1)
    first = in_pairs(bench, utc_now() + hour)
    plan = first._planner.plan(case_of(first, SYNTHETIC))
    assert isinstance(plan, CasePlan)
    alike = Compared(plan.reference_id, (CENTRE,) * 8, (CENTRE,) * 8)
    bench.memory.known = Past(nights(), compared=(alike,) * 3)
    bench.runner.answers = [{}]
    bench.runner.usual = {"samples_per_s": 85.0}
    found = first.measure(case_of(first, SYNTHETIC))
    made = len(bench.runner.asked)
    assert found.status is Status.REGRESSION and made > 2
    again = in_pairs(bench, utc_now() - hour)
    assert again.judge_again(case_of(again, SYNTHETIC)).status is Status.REGRESSION
    resumed = in_pairs(bench, utc_now() - hour, resume=True)
    assert resumed.measure(case_of(resumed, SYNTHETIC)).status is Status.REGRESSION
    assert len(bench.runner.asked) == made


def test_workers_get_the_same_time() -> None:
    time = night()
    assert NightTime.from_record(json.loads(json.dumps(time.to_record()))) == time
    assert list(time.cases) == [("cpu", SYNTHETIC), ("cpu", DALI)]


def test_a_night_without_a_limit_has_no_time() -> None:
    with pytest.raises(SuiteError, match="no limit"):
        NightTime.of(lay_out([], NightLimits()), BEGINS)


def test_a_case_without_time_is_not_run_and_has_a_code_of_its_own(bench: Bench) -> None:
    verdict = out_of_time(plan_of(bench), "not reached").verdict
    assert (verdict.status, verdict.reason.code) == (Status.NOT_RUN, OUT_OF_TIME)


def limited(bench: Bench, minutes: float) -> Suite:
    """A suite whose perf.yaml limits the night. Nobody knows how long a run takes, so it is taken for 5 minutes."""
    suite = bench.suite()
    suite.config = replace(suite.config, night=NightBudget.of(minutes))
    return suite


def test_a_suite_measures_what_it_laid_out_and_counts_it(bench: Bench) -> None:
    suite = limited(bench, 20)
    here, _ = suite.selection_here()
    plan = suite.lay_out_night(here)
    assert plan is not None
    assert 0 < len(plan.tonight) < len(here)
    assert len(plan.tonight) + len(plan.later) == len(here)
    assert suite.night is not None
    assert list(suite.night.cases) == [each.key for each in plan.tonight]
    suite.expect([case for case in suite.cases if case.key in suite.night.cases])
    assert suite._cases_tonight == plan.counted


def test_a_suite_does_not_begin_a_case_when_the_time_is_over(bench: Bench) -> None:
    suite = limited(bench, 20)
    plan = suite.lay_out_night(suite.selection_here()[0])
    assert plan is not None
    assert suite.night is not None
    suite.options = replace(
        suite.options, night=replace(suite.night, ends=BEGINS - datetime.timedelta(days=400)).to_record()
    )
    outcome = suite.measure(case_of(suite, plan.tonight[0].need.case_id))
    assert (outcome.status, outcome.verdict.reason.code) == (Status.NOT_RUN, OUT_OF_TIME)
    assert bench.runner.asked == []


def test_a_night_that_holds_no_case_is_refused_with_the_minutes_that_it_needs(bench: Bench) -> None:
    suite = limited(bench, 2)
    with pytest.raises(SuiteError, match=r"budgets.night_minutes': got '2', expected 10 or more"):
        suite.lay_out_night(suite.selection_here()[0])


def test_a_session_that_records_baselines_measures_everything(bench: Bench) -> None:
    suite = limited(bench, 20)
    suite.options = replace(suite.options, to_record=True)
    assert suite.lay_out_night(suite.selection_here()[0]) is None
    assert suite.night is None


def test_a_night_that_goes_on_follows_its_plan_with_the_time_that_is_left(bench: Bench) -> None:
    """What a resumed gate does: the first part measures one case and is interrupted."""
    first = limited(bench, 30)
    here, _ = first.selection_here()
    plan = first.lay_out_night(here)
    assert plan is not None and first.night is not None and len(plan.tonight) > 1
    begun, *others = [case_of(first, each.need.case_id) for each in plan.tonight]
    bench.runner.usual = {"wall_seconds": 240.0}
    assert first.measure(begun).verdict.reason.code != OUT_OF_TIME
    made = len(bench.runner.asked)

    suite = limited(bench, 30)
    suite.options = replace(suite.options, resume=True)
    before = utc_now()
    again = suite.lay_out_night(here)
    assert again is not None and suite.night is not None
    # The same cases, also the one that is measured: this session is no earlier night.
    assert [each.key for each in again.tonight] == [each.key for each in plan.tonight]
    assert suite.night.cases == first.night.cases
    left = datetime.timedelta(minutes=30, seconds=-240 * made)
    assert before + left <= suite.night.ends <= utc_now() + left
    # What was measured is not measured again.
    suite.measure(begun)
    assert len(bench.runner.asked) == made
    # Each of the others takes as long as is left of the night, until nothing is.
    codes = [suite.measure(each).verdict.reason.code for each in others]
    assert codes[0] != OUT_OF_TIME and len(bench.runner.asked) > made


def test_a_night_that_was_used_up_begins_no_case_when_it_goes_on(bench: Bench) -> None:
    first = limited(bench, 30)
    plan = first.lay_out_night(first.selection_here()[0])
    assert plan is not None
    begun, other, *_ = [case_of(first, each.need.case_id) for each in plan.tonight]
    bench.runner.usual = {"wall_seconds": 1700.0}
    first.measure(begun)
    made = len(bench.runner.asked)
    suite = limited(bench, 30)
    suite.options = replace(suite.options, resume=True)
    assert suite.lay_out_night(suite.selection_here()[0]) is not None
    outcome = suite.measure(other)
    assert (outcome.status, outcome.verdict.reason.code) == (Status.NOT_RUN, OUT_OF_TIME)
    assert len(bench.runner.asked) == made
    # The case that has its verdict keeps it.
    assert suite.measure(begun).status is not Status.NOT_RUN


def test_runs_of_another_build_do_not_reach_a_case_once_the_night_is_over(bench: Bench, builds: Builds) -> None:
    first = limited(bench, 30)
    plan = first.lay_out_night(first.selection_here()[0])
    assert plan is not None
    begun = case_of(first, plan.tonight[0].need.case_id)
    bench.runner.usual = {"wall_seconds": 1800.0}
    first.measure(begun)
    made = len(bench.runner.asked)
    suite = limited(bench, 30)
    suite.options = replace(suite.options, resume=True)
    suite.lay_out_night(suite.selection_here()[0])
    builds.digests["/opt/python"] = "built anew"
    outcome = suite.measure(begun)
    assert (outcome.status, outcome.verdict.reason.code) == (Status.NOT_RUN, OUT_OF_TIME)
    assert len(bench.runner.asked) == made
