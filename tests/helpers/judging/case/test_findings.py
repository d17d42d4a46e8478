"""What a verdict is made of: a code and figures for each thing that was found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.judging.case.evidence import Budget, Build, ProgramEvidence, RunEvidence, Stage
from helpers.judging.case.verdict import Status
from helpers.judging.finding import Code
from helpers.judging.rules.own import WALL_CLOCK
from tests.helpers.judging.case import evidences, plain_evidence
from tests.helpers.judging.case.evidences import CENTRE, GOOD, codes
from tests.helpers.judging.case.plain_evidence import pairs, published, recorded, run, verdict


def test_the_worse_answer_comes_first_and_the_other_after_it() -> None:
    answer = verdict(run(94.0), *pairs(94.0), published=(published(),), reference_build="good")
    assert [each.code for each in answer.reason.findings] == [Code.REGRESSION, Code.BESIDE_PUBLISHED]


def test_a_regression_has_the_figures_that_it_rests_on() -> None:
    answer = evidences.verdict(evidences.run(CENTRE - 0.03), *evidences.pairs(*[-0.03] * 4), reference_build=GOOD)
    paired, suspected = answer.reason.findings[0].details
    assert (paired.code, suspected.code) == (Code.PAIRED, Code.SUSPECTED)
    assert (paired.figures["pairs"], paired.figures["threshold"], paired.figures["tolerance"]) == (4, 1200, 0.005)
    assert (suspected.figures["nights"], suspected.figures["dates"]) == (20, ("2024-05-01", "2024-05-20"))


@pytest.mark.parametrize(("cases", "threshold"), [(1, 1200), (60, 1200), (61, 1220), (120, 2400)])
def test_more_cases_than_sixty_raise_the_bar(cases: int, threshold: float) -> None:
    runs = evidences.run(CENTRE - 0.03), *evidences.pairs(-0.1, -0.1)
    answer = evidences.verdict(*runs, reference_build=GOOD, cases_tonight=cases)
    assert answer.reason.findings[0].details[0].figures["threshold"] == pytest.approx(threshold)


def test_builds_of_different_programs_are_told_first() -> None:
    runs = [
        replace(each, program="PIR" if each.build is Build.CANDIDATE else "old") for each in (run(96.0), *pairs(96.0))
    ]
    first = verdict(*runs, reference_build="good").reason.findings[0]
    assert (first.code, first.figures["new"], first.figures["good"]) == (Code.PROGRAMS_APART, ("PIR",), ("old",))
    alike = [replace(each, program="old") for each in runs]
    assert Code.PROGRAMS_APART not in codes(verdict(*alike, reference_build="good"))


def test_a_program_and_the_operators_that_it_lost_are_told() -> None:
    program = ProgramEvidence("old", is_published=True, differences=("fused_bn_add_activation 0, published 16",))
    answer = verdict(run(), published=(published(110.0),), program=program)
    assert answer.status is Status.BELOW_PUBLISHED
    assert {Code.PROGRAM, Code.OTHER_OPERATORS} <= codes(answer)


def test_runs_that_were_made_again_are_counted() -> None:
    answer = verdict(run(1.0, invalid="throttled"), run(), planned_runs=1, budget=Budget())
    (last,) = (each for each in answer.reason.findings if each.code is Code.DISCARDED)
    assert (last.figures["runs"], last.figures["last"]) == (1, "throttled")


def test_a_rule_without_the_waits_for_data_has_the_wall_clock_beside_it() -> None:
    def found(rule: str) -> set[Code]:
        made = RunEvidence({**run().figures, rule: 100.0, WALL_CLOCK: 61.5}, log_rate=CENTRE)
        return codes(verdict(*[made] * 7, published=(published(rule=rule),)))

    assert Code.WITH_WAITS in found("fleetx-20-100-median7")
    assert Code.WITH_WAITS not in found("dlperf-log")


def test_changed_settings_that_matter_are_named_and_neutral_ones_noted() -> None:
    answer = verdict(run(), published=(published(),), overrides=("layout", "rate"), neutral={"rate": "a factor"})
    (published_answer,) = answer.published
    assert published_answer.reason.findings[0].figures["settings"] == "layout"
    neutral = verdict(run(), published=(published(),), overrides=("rate",), neutral={"rate": "a factor"})
    assert Code.NEUTRAL_SETTINGS in codes(neutral)


@pytest.mark.parametrize(
    ("overrides", "to_record", "code"),
    [((), True, Code.SESSION_RECORDS), ((), False, Code.RECORD), (("layout",), False, Code.RECORD_WITHOUT_SET)],
)
def test_where_nothing_is_recorded_the_remedy_fits(overrides: tuple[str, ...], to_record: bool, code: Code) -> None:
    answer = verdict(run(), recorded=None, to_record=to_record, overrides=overrides)
    assert (answer.status, code in codes(answer)) == (Status.NO_BASELINE, True)


def test_another_segment_names_its_differences() -> None:
    answer = verdict(run(), recorded=recorded(differences=("driver 535, not 550",)))
    assert answer.reason.findings[0].figures["differences"] == ("driver 535, not 550",)


def test_a_failure_says_in_which_build_it_was() -> None:
    for build, role in ((Build.REFERENCE, "reference"), (Build.CANDIDATE, "candidate")):
        answer = verdict(run(), run(failure="exit 1", build=build, stage=Stage.CONFIRM), reference_build="good")
        assert (answer.reason.findings[0].figures["why"], answer.reason.findings[0].figures["role"]) == ("exit 1", role)


def test_a_request_for_a_pair_says_why_and_what_the_pairs_show_so_far() -> None:
    slow = evidences.run(CENTRE - 0.03)
    first = evidences.asked(slow, reference_build=GOOD)
    assert codes(first) == {Code.NEXT_PAIR, Code.DROP_SUSPECTED}
    third = evidences.asked(slow, *evidences.pairs(-0.01, -0.012), reference_build=GOOD)
    assert codes(third) == {Code.NEXT_PAIR, Code.DROP_SUSPECTED, Code.PAIRS_SO_FAR}
    half = evidences.asked(slow, *evidences.pairs(-0.01, -0.012), evidences.good(), reference_build=GOOD)
    assert half.why.code is Code.HALF_PAIR


def test_the_whole_pairs_of_an_invalid_night_are_shown() -> None:
    broken = [plain_evidence.run(1.0, invalid="contended")] * 3
    answer = verdict(run(88.0), *pairs(88.0), *broken, reference_build="good", budget=Budget(repeats=2))
    assert answer.status is Status.INVALID
    shown = next(each for each in answer.reason.findings if each.code is Code.NOT_JUDGED)
    pair = shown.details[-1]
    assert (pair.code, pair.figures["pairs"], pair.figures["slower"]) == (Code.PAIRS_SHOWN, 3, 3)
