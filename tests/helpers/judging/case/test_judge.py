"""Judging: every status, which runs are asked for and used, and that nothing missing is ever green."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.case.evidence import (
    Budget,
    Build,
    Evidence,
    Past,
    PublishedReference,
    RecordedReference,
    RunEvidence,
    Stage,
    invalid_in_a_row,
)
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import NeedRuns, Status
from helpers.judging.rules.own import MEDIAN_STEP
from tests.helpers.judging.case.evidences import GROUP
from tests.helpers.judging.case.plain_evidence import (
    KNOWN,
    OTHER_RULE,
    RULE,
    evidence,
    pairs,
    published,
    recorded,
    run,
    verdict,
)

GREEN = (Status.PASS, Status.IMPROVEMENT)


# --- every status


@pytest.mark.parametrize(
    ("status", "runs", "values"),
    [
        (Status.INFRA_ERROR, (run(failure="killed"),), {}),
        (Status.INVALID, (run(invalid="contended"),), {}),
        (Status.REGRESSION, (run(96.0), *pairs(96.0)), {"reference_build": "good"}),
        (Status.BELOW_PUBLISHED, (run(),), {"published": (published(110.0),)}),
        (Status.INCOMPARABLE, (run(),), {"recorded": recorded(differences=("driver 1, not 2",))}),
        (Status.INCONCLUSIVE, (run(),), {"published": (published(rule="ngc-tf-mean"),)}),
        (Status.NO_BASELINE, (run(),), {"recorded": None}),
        (Status.IMPROVEMENT, (run(105.0), *pairs(105.0)), {"reference_build": "good"}),
        (Status.PASS, (run(),), {"published": (published(),)}),
        (Status.NOT_RUN, (run(refusal="no float16 here"),), {}),
    ],
)
def test_each_status_is_reached(status: Status, runs: tuple[RunEvidence, ...], values: dict[str, Any]) -> None:
    answer = verdict(*runs, **values)
    assert answer.status is status
    assert answer.reason.code


# --- runs


@pytest.mark.parametrize("made", [0, 1, 2])
def test_asks_for_the_runs_its_protocol_plans(made: int) -> None:
    answer = judge(evidence(*[run()] * made, planned_runs=3))
    assert isinstance(answer, NeedRuns)
    assert answer.order == (Build.CANDIDATE,) * (3 - made)


def test_a_plan_of_no_runs_still_needs_one() -> None:
    assert isinstance(judge(evidence(planned_runs=0)), NeedRuns)


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (run(failure="exit 137"), Status.INFRA_ERROR),
        (run(refusal="no AMP"), Status.INFRA_ERROR),
        (RunEvidence({}), Status.INFRA_ERROR),
    ],
)
def test_one_failed_run_ends_the_case(last: RunEvidence, status: Status) -> None:
    assert verdict(run(), last, planned_runs=7, budget=Budget()).status is status


@pytest.mark.parametrize("repeats", [0, 1, 2])
def test_invalid_runs_are_made_again_within_the_budget(repeats: int) -> None:
    budget = Budget(repeats=repeats)
    invalid = [run(1.0, invalid=f"throttled {at}") for at in range(repeats + 1)]
    for made in range(repeats + 1):
        request = judge(evidence(*invalid[:made], planned_runs=1, budget=budget))
        assert isinstance(request, NeedRuns)
        assert request.order == (Build.CANDIDATE,)
    answer = verdict(*invalid, budget=budget)
    assert (answer.status, answer.reason.code) == (Status.INVALID, "run-invalid")


def test_an_invalid_run_is_told_and_used_for_nothing() -> None:
    answer = verdict(run(1.0, invalid="throttled"), run(), planned_runs=1, budget=Budget())
    assert answer.status is Status.PASS
    assert answer.measured is not None
    assert (answer.measured.n, answer.measured.centre) == (1, 100.0)


def test_a_row_of_invalid_runs_ends_a_case_and_as_many_among_usable_ones_do_not() -> None:
    broken = run(build=Build.REFERENCE, stage=Stage.CONFIRM, invalid="contended")
    pair = (run(96.0, stage=Stage.CONFIRM), run(100.0, build=Build.REFERENCE, stage=Stage.CONFIRM))
    budget = Budget(repeats=1)
    row = (run(96.0), broken, run(96.0, stage=Stage.CONFIRM, invalid="throttled"))
    assert verdict(*row, budget=budget, reference_build="good").status is Status.INVALID
    # Also where usable ones follow: a session that goes on does not forget them.
    assert verdict(*row, *pair, budget=budget, reference_build="good").status is Status.INVALID
    apart = (run(96.0), broken, *pair, broken, *pair)
    answer = judge(evidence(*apart, budget=budget, reference_build="good"))
    assert isinstance(answer, NeedRuns) or answer.status is not Status.INVALID


@pytest.mark.parametrize("stage", list(Stage))
def test_a_build_that_refuses_what_it_ran_before_is_no_skip(stage: Stage) -> None:
    answer = verdict(run(), run(refusal="no AMP", stage=stage))
    assert (answer.status, answer.reason.code) == (Status.INFRA_ERROR, "refused-later")


def test_a_reference_build_that_refuses_the_case_is_no_skip() -> None:
    refused = run(refusal="no bfloat16", build=Build.REFERENCE, stage=Stage.CONFIRM)
    answer = verdict(run(), refused, reference_build="good 1.2")
    assert (answer.status, answer.reason.code) == (Status.INFRA_ERROR, "reference-refused")


@pytest.mark.parametrize("log_rate", [None, math.nan])
def test_a_run_of_a_confirmation_without_a_figure_is_never_green_even_if_only_published_figures_decide(
    log_rate: float | None,
) -> None:
    slow = replace(run(stage=Stage.CONFIRM), log_rate=log_rate)
    answer = verdict(run(), slow, recorded=None, published=(published(),))
    assert (answer.status, answer.reason.code) == (Status.INFRA_ERROR, "no-figure")


def test_runs_of_a_confirmation_are_no_replicates_of_the_protocol() -> None:
    slow = pairs(10.0, count=1)
    assert isinstance(judge(evidence(run(), *slow, planned_runs=2)), NeedRuns)
    answer = verdict(run(), *slow, planned_runs=1, published=(published(),))
    assert answer.status is Status.PASS
    assert answer.published[0].measured == 100.0
    assert answer.measured is not None
    assert (answer.measured.n, answer.measured.centre) == (1, 100.0)


def test_the_figure_is_the_median_over_runs() -> None:
    answer = verdict(run(100.0), run(104.0), run(10.0))
    assert answer.measured is not None
    assert answer.measured.centre == 100.0
    assert answer.recorded is not None
    assert (answer.recorded.measured, answer.recorded.ratio) == (100.0, 1.0)


# --- purity


FIGURES = st.one_of(
    st.floats(1, 200), st.sampled_from([0.0, -1.0, float("nan"), float("inf")]), st.just("no such rule"), st.none()
)
PROBLEMS = st.none() | st.just("why")
RUNS = st.builds(
    RunEvidence,
    st.fixed_dictionaries({}, optional={RULE: FIGURES, OTHER_RULE: FIGURES, MEDIAN_STEP: FIGURES}),
    build=st.sampled_from([Build.CANDIDATE, Build.CANDIDATE, Build.REFERENCE]),
    stage=st.sampled_from(Stage),
    log_rate=st.none() | st.floats(4, 5) | st.just(math.nan),
    loss=st.none() | st.floats(1, 7),
    stall_share=st.none() | st.floats(0, 0.5),
    failure=st.none() | PROBLEMS,
    invalid=st.none() | PROBLEMS,
    refusal=st.none() | PROBLEMS,
)
# Half of the evidence has no other runs, or hardly any case would be green and the property would hold of nothing.
GOOD_RUNS = st.builds(
    RunEvidence,
    st.fixed_dictionaries({rule: st.floats(95, 105) for rule in (RULE, OTHER_RULE, MEDIAN_STEP)}),
    stage=st.sampled_from([Stage.SCREEN, Stage.SCREEN, Stage.CONFIRM]),
    log_rate=st.floats(math.log(95), math.log(105)),
)
RATES = st.floats(90, 100) | st.floats(1, 200)
REFERENCES = {"tolerance": st.floats(0, 0.5), "gates": st.just(True) | st.booleans(), "label": st.just("x")}
# A recorded figure decides these, and at most one run has a problem.
RECORDED_DECIDES = st.builds(
    Evidence,
    st.just("a-case"),
    st.just(RULE),
    st.just(1),
    st.tuples(GOOD_RUNS, st.just(()) | st.tuples(GOOD_RUNS) | st.tuples(RUNS)).map(lambda both: (both[0], *both[1])),
    recorded=st.builds(RecordedReference, st.floats(99, 101), rule=st.just(MEDIAN_STEP), **REFERENCES),
    past=st.sampled_from([Past(), Past(KNOWN)]),
)
EVIDENCES = RECORDED_DECIDES | st.builds(
    Evidence,
    st.just("a-case"),
    st.just(RULE),
    st.integers(0, 1),
    st.tuples(st.lists(GOOD_RUNS, min_size=1, max_size=3), st.just([]) | st.lists(RUNS, max_size=2)).map(
        lambda both: (*both[0], *both[1])
    ),
    st.lists(
        st.builds(
            PublishedReference,
            RATES,
            rule=st.sampled_from([RULE, OTHER_RULE]),
            **REFERENCES,
        ),
        min_size=1,
        max_size=2,
    ).map(tuple)
    | st.just(()),
    st.none() | st.builds(RecordedReference, RATES, rule=st.sampled_from([RULE, MEDIAN_STEP]), **REFERENCES),
    st.just(()) | st.sampled_from([(), ("key",)]),
    past=st.sampled_from([Past(), Past(KNOWN)]),
    budget=st.sampled_from([Budget(), Budget(screen_runs=1, first_runs=1), Budget(first_runs=2, repeats=0)]),
    reference_build=st.sampled_from([None, "good"]),
    suspicion=st.sampled_from([None, None, GROUP]),
    recorded_required=st.none() | st.booleans(),
)


@pytest.mark.slow
@given(EVIDENCES)
def test_nothing_failed_or_missing_is_ever_green(given_evidence: Evidence) -> None:
    before = copy.deepcopy(given_evidence)
    answer = judge(given_evidence)
    assert repr(before) == repr(given_evidence)
    if isinstance(answer, NeedRuns):
        assert answer.order
        return
    if answer.status not in GREEN:
        return
    made = given_evidence.runs
    assert all(each.failure is each.refusal is None for each in made)
    assert len(invalid_in_a_row(made)) <= given_evidence.budget.repeats
    usable = [each for each in made if each.invalid is None]
    assert all(
        each.log_rate is not None and math.isfinite(each.log_rate) for each in usable if each.stage is Stage.CONFIRM
    )
    runs = [each for each in usable if each.build is Build.CANDIDATE and each.stage is Stage.SCREEN]
    assert len(runs) >= max(1, given_evidence.planned_runs)
    assert given_evidence.overrides == ()
    gating = [each for each in given_evidence.published if each.gates]
    rules = {RULE, *(each.rule for each in gating)}
    recorded = given_evidence.recorded
    if recorded is not None and recorded.gates:
        assert all(each.log_rate is not None and math.isfinite(each.log_rate) for each in runs)
        rules.add(recorded.rule)
    else:
        # Nothing recorded decides, so a published figure has to (docs/reference.md, "Statuses"), or the nights and
        # pairs beside a reference build (docs/verdicts.md, "The first nights").
        by_nights = given_evidence.reference_build is not None and bool(given_evidence.past.nights)
        assert (gating and not given_evidence.recorded_required) or by_nights
    for each in runs:
        assert all(isinstance(each.figures.get(rule), float) and each.figures[rule] > 0 for rule in rules)  # type: ignore[operator]
