"""Judging: every status, the published band, what cannot be compared, and that nothing missing is ever green."""

from __future__ import annotations

import copy
import math
from dataclasses import FrozenInstanceError, replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.evidence import (
    Budget,
    Build,
    Evidence,
    Night,
    Past,
    PublishedReference,
    RecordedReference,
    RunEvidence,
    Stage,
    invalid_in_a_row,
)
from helpers.judging.judge import judge
from helpers.judging.rules import MEDIAN_STEP
from helpers.judging.verdict import NeedRuns, Question, Status, Verdict
from helpers.trainers.contract.errors import SuiteError

RULE, OTHER_RULE = "wall-clock", "paddleclas-trimmed"
GREEN = (Status.PASS, Status.IMPROVEMENT)
KNOWN = tuple(Night((math.log(100.0 + 0.2 * (at % 3 - 1)),)) for at in range(20))


def run(samples_per_s: Any = 100.0, **values: Any) -> RunEvidence:
    rate = math.log(samples_per_s) if isinstance(samples_per_s, float) and 0 < samples_per_s < math.inf else None
    figures = {RULE: samples_per_s, OTHER_RULE: samples_per_s, MEDIAN_STEP: samples_per_s}
    return RunEvidence(figures, **{"log_rate": rate, **values})


def published(samples_per_s: float = 100.0, **values: Any) -> PublishedReference:
    given = {"rule": OTHER_RULE, "label": "table 1, V100", "gates": True, "tolerance": 0.05}
    return PublishedReference(samples_per_s, **{**given, **values})


def recorded(samples_per_s: float = 100.0, **values: Any) -> RecordedReference:
    return RecordedReference(
        samples_per_s, **{"rule": MEDIAN_STEP, "label": "abc, May", "tolerance": 0.005, "build": "g", **values}
    )


def evidence(*runs: RunEvidence, **values: Any) -> Evidence:
    usable = [run for run in runs if run.build is Build.CANDIDATE and run.stage is Stage.SCREEN]
    given = {"planned_runs": len(usable), "runs": runs, "recorded": recorded(), "past": Past(KNOWN)}
    given["reference_id"] = "g"
    return Evidence("a-case", RULE, **{"budget": Budget(repeats=0, screen_runs=1), **given, **values})


def verdict(*runs: RunEvidence, **values: Any) -> Verdict:
    answer = judge(evidence(*runs, **values))
    assert isinstance(answer, Verdict), answer
    return answer


def pairs(candidate: float, count: int = 3, **values: Any) -> tuple[RunEvidence, ...]:
    both = (run(build=Build.REFERENCE, stage=Stage.CONFIRM), run(candidate, stage=Stage.CONFIRM, **values))
    return both * count


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
    assert answer.reason.message


# --- runs


@pytest.mark.parametrize("made", [0, 1, 2])
def test_asks_for_the_runs_its_protocol_plans(made: int) -> None:
    answer = judge(evidence(*[run()] * made, planned_runs=3))
    assert isinstance(answer, NeedRuns)
    assert (answer.build, answer.count) == (Build.CANDIDATE, 3 - made)
    assert answer.order == (Build.CANDIDATE,) * (3 - made)
    assert f"run {made + 1} of the 3" in answer.why


def test_judges_once_the_protocols_runs_are_there() -> None:
    assert verdict(run(), run(), run()).status is Status.PASS


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


def test_a_crash_outranks_a_contended_run() -> None:
    assert verdict(run(invalid="contended"), run(failure="exit 137")).reason.message == "exit 137"


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
    assert f"throttled {repeats}" in answer.reason.message
    assert ("invalid runs in a row" in answer.reason.message) is (repeats > 0)


def test_an_invalid_run_is_told_and_used_for_nothing() -> None:
    answer = verdict(run(1.0, invalid="throttled"), run(), planned_runs=1, budget=Budget())
    assert answer.status is Status.PASS
    assert answer.reason.message.endswith("discarded and made again: 1 (throttled)")
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


def test_a_crash_beside_another_build_says_whose_it_was() -> None:
    reference = run(failure="exit 1", build=Build.REFERENCE, stage=Stage.CONFIRM)
    candidate = run(failure="exit 1", stage=Stage.CONFIRM)
    messages = [verdict(run(), each, reference_build="good 1.2").reason.message for each in (reference, candidate)]
    assert messages == ["reference build good 1.2: exit 1", "build under test: exit 1"]


@pytest.mark.parametrize("stage", list(Stage))
def test_a_build_that_refuses_what_it_ran_before_is_no_skip(stage: Stage) -> None:
    answer = verdict(run(), run(refusal="no AMP", stage=stage))
    assert (answer.status, answer.reason.code) == (Status.INFRA_ERROR, "refused-later")
    assert answer.reason.message == "refused after 1 usable run: no AMP"


def test_a_reference_build_that_refuses_the_case_is_no_skip() -> None:
    refused = run(refusal="no bfloat16", build=Build.REFERENCE, stage=Stage.CONFIRM)
    answer = verdict(run(), refused, reference_build="good 1.2")
    assert (answer.status, answer.reason.code) == (Status.INFRA_ERROR, "reference-refused")
    assert answer.reason.message == "reference build good 1.2 cannot run this: no bfloat16"


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


def test_only_usable_runs_are_summarised() -> None:
    answer = verdict(run(100.0), run(1.0, invalid="contended"))
    assert answer.measured is not None
    assert (answer.measured.n, answer.measured.centre) == (1, 100.0)
    assert verdict(run(failure="exit 1")).measured is None


# --- bands


@pytest.mark.parametrize("reference", [100.0, 393.561, 10936.815, 0.37, 3.1])
@pytest.mark.parametrize("tolerance", [0.005, 0.03, 0.05, 0.07, 0.1])
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
    assert "another segment (driver 535, not 550)" in answer.recorded.reason.message


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
    assert "(setting 0; setting 1; setting 2; setting 3; setting 4; and 4 more)" in answer.reason.message


def test_what_was_recorded_by_another_rule_is_incomparable_and_says_the_remedy() -> None:
    answer = verdict(run(), recorded=recorded(rule=RULE), record_command="pytest --update-baselines -k x")
    assert (answer.status, answer.reason.code, answer.standing) == (Status.INCOMPARABLE, "other-rule", None)
    assert "recorded by wall-clock, judged by median-step: pytest --update-baselines -k x" in answer.reason.message


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


@pytest.mark.parametrize("figure", ["window missing", float("nan"), float("-inf"), 0.0, -1.0, None, True])
def test_a_run_without_a_figure_by_its_own_rule_was_not_measured(figure: Any) -> None:
    answer = verdict(run(), RunEvidence({RULE: figure, OTHER_RULE: 100.0}), recorded=None)
    assert (answer.status, answer.reason.code) == (Status.INFRA_ERROR, "no-figure")


# --- purity


def test_judging_changes_nothing_and_answers_the_same_again() -> None:
    figures = MappingProxyType(dict(run().figures))
    given = evidence(RunEvidence(figures, log_rate=math.log(100.0)), published=(published(),))
    before = repr(given)
    assert judge(given) == judge(given)
    assert repr(given) == before
    with pytest.raises(FrozenInstanceError):
        given.planned_runs = 3  # type: ignore[misc]


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
REFERENCES = {"tolerance": st.floats(0, 0.5), "gates": st.booleans(), "label": st.just("x")}
EVIDENCES = st.builds(
    Evidence,
    st.just("a-case"),
    st.just(RULE),
    st.integers(0, 3),
    st.lists(RUNS, max_size=4).map(tuple),
    st.lists(
        st.builds(
            PublishedReference,
            st.floats(1, 200),
            rule=st.sampled_from([RULE, OTHER_RULE]),
            **REFERENCES,
        ),
        max_size=3,
    ).map(tuple),
    st.none()
    | st.builds(RecordedReference, st.floats(1, 200), rule=st.sampled_from([RULE, MEDIAN_STEP]), **REFERENCES),
    st.sampled_from([(), ("key",)]),
    past=st.sampled_from([Past(), Past(KNOWN)]),
    budget=st.sampled_from([Budget(), Budget(first_runs=2, repeats=0)]),
    reference_build=st.sampled_from([None, "good"]),
    suspicion=st.sampled_from(["", "a group fell"]),
)


@given(EVIDENCES)
def test_nothing_failed_or_missing_is_ever_green(given_evidence: Evidence) -> None:
    before = copy.deepcopy(given_evidence)
    answer = judge(given_evidence)
    assert repr(before) == repr(given_evidence)
    if isinstance(answer, NeedRuns):
        assert answer.count == len(answer.order) > 0
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
    assert all(each.log_rate is not None and math.isfinite(each.log_rate) for each in runs)
    assert given_evidence.overrides == ()
    assert given_evidence.recorded is not None
    assert given_evidence.recorded.gates
    gating = [each for each in given_evidence.published if each.gates]
    assert all(each.runs <= len(runs) for each in gating)
    rules = {RULE, given_evidence.recorded.rule, *(each.rule for each in gating)}
    for each in runs:
        assert all(isinstance(each.figures.get(rule), float) and each.figures[rule] > 0 for rule in rules)  # type: ignore[operator]
