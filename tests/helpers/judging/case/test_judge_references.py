"""Judging against references: the published band, the worse of both answers, and what cannot be compared."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.case.evidence import Budget, ProgramEvidence, RunEvidence
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import NeedRuns, Status
from helpers.judging.finding import Code
from helpers.trainers.contract.errors import SuiteError
from tests.for_each import for_each
from tests.helpers.judging.case.evidences import codes
from tests.helpers.judging.case.plain_evidence import (
    OTHER_RULE,
    RULE,
    evidence,
    pairs,
    published,
    recorded,
    run,
    verdict,
)

# --- bands


@for_each("reference", [100.0, 393.561, 10936.815, 0.37, 3.1])
@for_each("tolerance", [0.005, 0.03, 0.05, 0.07, 0.1])
def test_a_figure_at_the_edge_of_a_band_is_inside_it(reference: float, tolerance: float) -> None:
    low, high = reference * (1 - tolerance), reference * (1 + tolerance)
    table = {"published": (published(reference, tolerance=tolerance),), "recorded": None}
    assert verdict(run(low), **table).published[0].status is Status.PASS
    assert verdict(run(low * (1 - 1e-6)), **table).published[0].status is Status.BELOW_PUBLISHED
    assert verdict(run(low * (1 + 1e-6)), **table).published[0].status is Status.PASS
    assert verdict(run(high * 2), **table).published[0].status is Status.PASS


@pytest.mark.parametrize("field", ["samples_per_s", "tolerance"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_reference_that_would_pass_everything_cannot_be_made(field: str, value: float) -> None:
    for reference in (published(), recorded()):
        with pytest.raises(SuiteError) as caught:
            replace(reference, **{field: value})
        assert caught.value.field == field


# --- both answers


@pytest.mark.parametrize("replicate", [math.nan, 0.0, -1.0])
def test_a_recorded_replicate_that_is_no_rate_cannot_be_made(replicate: float) -> None:
    with pytest.raises(SuiteError) as caught:
        recorded(replicates=(100.0, replicate))
    assert caught.value.field == "replicates"


@pytest.mark.parametrize(
    ("required", "status"), [(None, Status.PASS), (False, Status.PASS), (True, Status.NO_BASELINE)]
)
def test_within_the_published_band_a_case_passes_unless_a_recorded_figure_is_required(
    required: bool | None, status: Status
) -> None:
    answer = verdict(run(), published=(published(),), recorded=None, recorded_required=required)
    assert answer.status is status
    assert Code.RECORD in codes(answer)
    assert answer.recorded is not None
    assert answer.recorded.status is Status.NO_BASELINE


@pytest.mark.parametrize("required", [None, False, True])
def test_without_a_published_figure_that_decides_nothing_recorded_is_no_pass(required: bool | None) -> None:
    for shown in ((), (published(gates=False),)):
        answer = verdict(run(), published=shown, recorded=None, recorded_required=required)
        assert answer.status is Status.NO_BASELINE


@pytest.mark.parametrize("required", [None, False, True])
def test_a_required_published_figure_hides_no_recorded_drop(required: bool | None) -> None:
    answer = verdict(
        run(94.0), *pairs(94.0), published=(published(80.0),), reference_build="good", recorded_required=required
    )
    assert answer.status is Status.REGRESSION


def test_a_program_that_is_not_the_published_one_is_shown_beside_the_figure_and_not_judged_by_it() -> None:
    program = ProgramEvidence("PIR", is_published=False)
    answer = verdict(run(), published=(published(110.0),), program=program)
    (shown,) = answer.published
    # The recorded figure alone decides, and without one nothing passes.
    assert answer.status is Status.PASS
    assert (shown.status, shown.reason.code, shown.sets_status) == (Status.INCOMPARABLE, "other-program", False)
    assert verdict(run(), published=(published(),), recorded=None, program=program).status is Status.NO_BASELINE


def test_a_figure_that_is_only_shown_never_sets_the_status() -> None:
    answer = verdict(run(), published=(published(1000.0, gates=False),))
    assert answer.status is Status.PASS
    assert (answer.published[0].status, answer.published[0].sets_status) == (Status.BELOW_PUBLISHED, False)


@pytest.mark.parametrize("samples_per_s", [10.0, 100.0, 1000.0])
def test_a_recorded_figure_that_is_only_shown_counts_as_none(samples_per_s: float) -> None:
    shown = recorded(samples_per_s, gates=False)
    answer = verdict(run(), recorded=shown, published=(published(),))
    assert answer.status is Status.PASS
    assert verdict(run(), recorded=shown, published=(published(),), recorded_required=True).status is Status.NO_BASELINE
    assert answer.recorded is not None
    assert (answer.recorded.reference, answer.recorded.sets_status) == (samples_per_s, False)


def test_a_drop_asks_for_a_reference_build_unless_the_figure_is_only_shown() -> None:
    assert {Code.NOT_CONFIRMED, Code.ONLY_SHOWN} & codes(verdict(run(97.0))) == {Code.NOT_CONFIRMED}
    shown = codes(verdict(run(97.0), recorded=recorded(gates=False)))
    assert {Code.NOT_CONFIRMED, Code.ONLY_SHOWN} & shown == {Code.ONLY_SHOWN}


def test_the_run_that_slower_needs_next_has_its_number() -> None:
    asked = judge(evidence(run(80.0), budget=Budget(screen_runs=6)))
    assert isinstance(asked, NeedRuns)
    assert (asked.why.code, asked.why.figures["run"], asked.why.figures["most"]) == (Code.RUN_FOR_SLOWER, 2, 3)


# --- what cannot be compared


def test_overridden_settings_make_both_answers_incomparable() -> None:
    answer = verdict(run(1.0), published=(published(),), overrides=("learning_rate",))
    assert answer.recorded is not None
    assert {answer.status, answer.published[0].status, answer.recorded.status} == {Status.INCOMPARABLE}


@pytest.mark.parametrize(("samples_per_s", "status"), [(99.0, Status.PASS), (90.0, Status.BELOW_PUBLISHED)])
def test_neutral_overrides_are_still_held_against_the_published_figure(samples_per_s: float, status: Status) -> None:
    neutral = {"learning_rate": "a factor of the update"}
    answer = verdict(run(samples_per_s), published=(published(),), overrides=("learning_rate",), neutral=neutral)
    assert answer.published[0].status is status


def test_neutral_overrides_leave_the_recorded_figure_incomparable() -> None:
    answer = verdict(run(), overrides=("learning_rate",), neutral={"learning_rate": "a factor of the update"})
    assert answer.recorded is not None
    assert (answer.recorded.status, answer.recorded.reason.code) == (Status.INCOMPARABLE, "overridden")
    assert answer.standing is None


@pytest.mark.parametrize("samples_per_s", [1.0, 100.0, 1000.0])
def test_another_segment_is_incomparable_and_says_in_what(samples_per_s: float) -> None:
    answer = verdict(run(samples_per_s), recorded=recorded(differences=("driver 535, not 550",)))
    assert answer.status is Status.INCOMPARABLE


def test_what_was_recorded_by_another_rule_is_incomparable_and_says_the_remedy() -> None:
    answer = verdict(run(), recorded=recorded(rule=RULE))
    assert (answer.status, answer.reason.code, answer.standing) == (Status.INCOMPARABLE, "other-rule", None)


def test_another_segment_does_not_touch_the_published_answer() -> None:
    answer = verdict(run(90.0), published=(published(),), recorded=recorded(differences=("driver",)))
    assert answer.status is Status.BELOW_PUBLISHED


@pytest.mark.parametrize("figure", ["needs 310 steps", float("nan"), float("inf"), 0.0, -3.0, None, True])
def test_a_published_rule_without_a_figure_is_inconclusive(figure: Any) -> None:
    answer = verdict(
        RunEvidence({**run().figures, OTHER_RULE: figure}, log_rate=math.log(100.0)), published=(published(),)
    )
    assert answer.status is Status.INCONCLUSIVE


def test_a_recorded_rule_without_a_figure_is_inconclusive() -> None:
    assert verdict(run(), recorded=recorded(rule="dlperf-log")).status is Status.INCONCLUSIVE


def test_a_publishers_median_needs_the_publishers_runs() -> None:
    table = (published(rule="fleetx-20-100-median7"),)
    made = RunEvidence({**run().figures, "fleetx-20-100-median7": 100.0}, log_rate=math.log(100.0))
    assert verdict(*[made] * 6, published=table).status is Status.INCONCLUSIVE
    assert verdict(*[made] * 7, published=table).status is Status.PASS


@pytest.mark.parametrize("figure", ["window missing", float("nan"), float("-inf"), 0.0, -1.0, None, True])
def test_a_run_without_a_figure_by_its_own_rule_was_not_measured(figure: Any) -> None:
    answer = verdict(run(), RunEvidence({RULE: figure, OTHER_RULE: 100.0}), recorded=None)
    assert (answer.status, answer.reason.code) == (Status.INFRA_ERROR, "no-figure")
