"""Judging against references: the published band, the worse of both answers, and what cannot be compared."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.evidence import (
    RunEvidence,
)
from helpers.judging.rules import WALL_CLOCK
from helpers.judging.verdict import Question, Status
from helpers.trainers.contract.errors import SuiteError
from tests.for_each import for_each
from tests.helpers.judging.plain_evidence import (
    OTHER_RULE,
    RULE,
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


def test_the_case_has_the_worse_of_both_answers_and_tells_both() -> None:
    answer = verdict(run(94.0), *pairs(94.0), published=(published(),), reference_build="good")
    assert answer.status is Status.REGRESSION
    assert answer.published[0].status is Status.BELOW_PUBLISHED
    assert answer.reason.code == "confirmed-regression"
    assert answer.reason.message.index("interleaved pairs") < answer.reason.message.index("published")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            (),
            "nothing recorded for this case on this machine; this session records it, or says under Baselines why not",
        ),
        (
            ("layout",),
            "settings changed (layout), so this is not recorded; without --set, record it: pytest perf_tests",
        ),
    ],
)
def test_a_session_that_records_says_so_instead_of_naming_its_own_command(
    overrides: tuple[str, ...], told: str
) -> None:
    answer = verdict(run(), recorded=None, to_record=True, overrides=overrides)
    assert answer.status is Status.NO_BASELINE
    assert told in answer.reason.message


@pytest.mark.parametrize(
    ("required", "status", "told"),
    [
        (None, Status.PASS, "recorded: none; record it: pytest --update-baselines -k x"),
        (False, Status.PASS, "recorded: none; record it: pytest --update-baselines -k x"),
        (True, Status.NO_BASELINE, "nothing recorded for this case on this machine; record it: pytest --update"),
    ],
)
def test_within_the_published_band_a_case_passes_unless_a_recorded_figure_is_required(
    required: bool | None, status: Status, told: str
) -> None:
    command = "pytest --update-baselines -k x"
    wanted = {"recorded_required": required, "record_command": command}
    answer = verdict(run(), published=(published(),), recorded=None, **wanted)
    assert answer.status is status
    assert told in answer.reason.message
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


def test_below_the_published_band_nothing_recorded_is_told_too() -> None:
    answer = verdict(run(94.0), published=(published(),), recorded=None)
    assert answer.status is Status.BELOW_PUBLISHED
    assert "recorded: none; record it" in answer.reason.message


def test_several_published_figures_each_answer() -> None:
    answer = verdict(run(), published=(published(90.0), published(100.0), published(120.0, label="table 2")))
    assert [each.status for each in answer.published] == [Status.PASS, Status.PASS, Status.BELOW_PUBLISHED]
    assert answer.status is Status.BELOW_PUBLISHED
    assert "table 2" in answer.reason.message


def test_a_figure_that_is_only_shown_never_sets_the_status() -> None:
    answer = verdict(run(), published=(published(1000.0, gates=False),))
    assert answer.status is Status.PASS
    assert (answer.published[0].status, answer.published[0].sets_status) == (Status.BELOW_PUBLISHED, False)
    assert "1000" not in answer.reason.message


@pytest.mark.parametrize("samples_per_s", [10.0, 100.0, 1000.0])
def test_a_recorded_figure_that_is_only_shown_counts_as_none(samples_per_s: float) -> None:
    shown = recorded(samples_per_s, gates=False)
    answer = verdict(run(), recorded=shown, published=(published(),))
    assert answer.status is Status.PASS
    assert "the recorded figure is only shown" in answer.reason.message
    assert verdict(run(), recorded=shown, published=(published(),), recorded_required=True).status is Status.NO_BASELINE
    assert answer.recorded is not None
    assert (answer.recorded.reference, answer.recorded.sets_status) == (samples_per_s, False)


def test_reasons_hold_the_numbers_they_rest_on() -> None:
    message = verdict(run(10_000.0), published=(published(39972.131),), recorded=None).reason.message
    for number in ("10000 images/s", "-75.0%", "39972", "band -5.0%", "n=1", OTHER_RULE):
        assert number in message
    assert "e+" not in message


def test_each_answer_says_which_question_it_answers() -> None:
    answer = verdict(run(), published=(published(),))
    assert answer.recorded is not None
    assert (answer.published[0].question, answer.recorded.question) == (Question.PUBLISHED, Question.RECORDED)


# --- what cannot be compared


def test_overridden_settings_make_both_answers_incomparable() -> None:
    answer = verdict(run(1.0), published=(published(),), overrides=("learning_rate",))
    assert answer.recorded is not None
    assert {answer.status, answer.published[0].status, answer.recorded.status} == {Status.INCOMPARABLE}
    assert "learning_rate" in answer.published[0].reason.message
    assert "learning_rate" in answer.recorded.reason.message


@pytest.mark.parametrize(("samples_per_s", "status"), [(99.0, Status.PASS), (90.0, Status.BELOW_PUBLISHED)])
def test_neutral_overrides_are_still_held_against_the_published_figure(samples_per_s: float, status: Status) -> None:
    neutral = {"learning_rate": "a factor of the update"}
    answer = verdict(run(samples_per_s), published=(published(),), overrides=("learning_rate",), neutral=neutral)
    assert answer.published[0].status is status
    assert "learning_rate: a factor of the update" in answer.published[0].reason.message


def test_one_override_that_may_matter_is_enough_and_is_the_one_that_is_named() -> None:
    answer = verdict(
        run(), published=(published(),), overrides=("layout", "learning_rate"), neutral={"learning_rate": "a factor"}
    )
    assert answer.published[0].status is Status.INCOMPARABLE
    assert "settings changed (layout):" in answer.published[0].reason.message


def test_a_reason_without_its_override_makes_nothing_comparable() -> None:
    answer = verdict(run(), published=(published(),), overrides=("layout",), neutral={"learning_rate": "a factor"})
    assert answer.published[0].status is Status.INCOMPARABLE


def test_neutral_overrides_leave_the_recorded_figure_incomparable() -> None:
    answer = verdict(run(), overrides=("learning_rate",), neutral={"learning_rate": "a factor of the update"})
    assert answer.recorded is not None
    assert (answer.recorded.status, answer.recorded.reason.code) == (Status.INCOMPARABLE, "overridden")
    told = "settings changed (learning_rate); a recorded figure is only for the case as it stands"
    assert answer.recorded.reason.message.startswith(f"{told}: 100 images/s is +0.0% against the recorded 100")
    assert answer.standing is None


def test_changed_settings_and_another_segment_are_both_told() -> None:
    answer = verdict(run(), recorded=recorded(differences=("driver 535, not 550",)), overrides=("layout",))
    assert answer.recorded is not None
    assert answer.recorded.reason.code == "overridden"
    assert "(layout)" in answer.recorded.reason.message
    assert "since then changed: driver 535, not 550" in answer.recorded.reason.message


def test_nobody_is_told_to_record_a_case_with_changed_settings() -> None:
    answer = verdict(run(), recorded=None, overrides=("layout",), record_command="pytest --update-baselines -k x")
    assert answer.status is Status.NO_BASELINE
    told = "settings changed (layout), so this is not recorded; without --set, record it: pytest --update-baselines"
    assert told in answer.reason.message


@pytest.mark.parametrize("samples_per_s", [1.0, 100.0, 1000.0])
def test_another_segment_is_incomparable_and_says_in_what(samples_per_s: float) -> None:
    answer = verdict(run(samples_per_s), recorded=recorded(differences=("driver 535, not 550",)))
    assert answer.status is Status.INCOMPARABLE
    assert "driver 535, not 550" in answer.reason.message


def test_of_many_differences_the_first_are_told_and_the_rest_counted() -> None:
    answer = verdict(run(), recorded=recorded(differences=tuple(f"setting {number}" for number in range(9))))
    assert "setting 0; setting 1; setting 2; setting 3; setting 4; and 4 more" in answer.reason.message


def test_what_was_recorded_by_another_rule_is_incomparable_and_says_the_remedy() -> None:
    answer = verdict(run(), recorded=recorded(rule=RULE), record_command="pytest --update-baselines -k x")
    assert (answer.status, answer.reason.code, answer.standing) == (Status.INCOMPARABLE, "other-rule", None)
    assert "recorded by wall-clock, judged by median-step" in answer.reason.message
    assert "record again: pytest --update-baselines -k x" in answer.reason.message


def test_another_segment_does_not_touch_the_published_answer() -> None:
    answer = verdict(run(90.0), published=(published(),), recorded=recorded(differences=("driver",)))
    assert answer.status is Status.BELOW_PUBLISHED


@pytest.mark.parametrize("figure", ["needs 310 steps", float("nan"), float("inf"), 0.0, -3.0, None, True])
def test_a_published_rule_without_a_figure_is_inconclusive(figure: Any) -> None:
    answer = verdict(
        RunEvidence({**run().figures, OTHER_RULE: figure}, log_rate=math.log(100.0)), published=(published(),)
    )
    assert answer.status is Status.INCONCLUSIVE
    assert (str(figure) if isinstance(figure, str) else OTHER_RULE) in answer.reason.message


def test_a_recorded_rule_without_a_figure_is_inconclusive() -> None:
    assert verdict(run(), recorded=recorded(rule="dlperf-log")).status is Status.INCONCLUSIVE


def test_a_publishers_median_needs_the_publishers_runs() -> None:
    table = (published(rule="fleetx-20-100-median7"),)
    made = RunEvidence({**run().figures, "fleetx-20-100-median7": 100.0}, log_rate=math.log(100.0))
    answer = verdict(*[made] * 6, published=table)
    assert (answer.status, "median of 7 runs, 6 were made" in answer.reason.message) == (Status.INCONCLUSIVE, True)
    assert verdict(*[made] * 7, published=table).status is Status.PASS


@pytest.mark.parametrize(("rule", "beside"), [("fleetx-20-100-median7", True), ("dlperf-log", False)])
def test_a_figure_without_the_waits_for_data_has_the_wall_clock_s_beside_it(rule: str, beside: bool) -> None:
    made = RunEvidence({**run().figures, rule: 100.0, WALL_CLOCK: 61.5}, log_rate=math.log(100.0))
    (answer,) = verdict(*[made] * 7, published=(published(rule=rule),)).published
    honest = "; the rule leaves out the waits for data, with them it is 61.5 by wall-clock"
    assert (honest in answer.reason.message, answer.status) == (beside, Status.PASS)


@pytest.mark.parametrize("figure", ["window missing", float("nan"), float("-inf"), 0.0, -1.0, None, True])
def test_a_run_without_a_figure_by_its_own_rule_was_not_measured(figure: Any) -> None:
    answer = verdict(run(), RunEvidence({RULE: figure, OTHER_RULE: 100.0}), recorded=None)
    assert (answer.status, answer.reason.code) == (Status.INFRA_ERROR, "no-figure")
