"""Judging: what a verdict says of the static programs that ran, and what it refuses to compare."""

from __future__ import annotations

from dataclasses import replace

from helpers.judging.case.evidence import Build, ProgramEvidence
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import Status, Verdict
from helpers.report.reasons import reason_text
from tests.helpers.judging.case.plain_evidence import evidence, pairs, published, run, verdict

LOST = ("fused_bn_add_activation 0, published 16",)
PIR = ProgramEvidence("PIR", is_published=False, differences=LOST)


def test_the_kind_of_program_is_named_in_the_reason() -> None:
    answer = verdict(run(), published=(published(),), program=ProgramEvidence("old", is_published=True))
    assert answer.status is Status.PASS


def test_a_program_that_lost_a_fusion_is_judged_and_named_so() -> None:
    program = ProgramEvidence("old", is_published=True, differences=LOST)
    answer = verdict(run(), published=(published(110.0),), program=program)
    assert answer.status is Status.BELOW_PUBLISHED


def test_a_pir_program_is_shown_beside_the_published_figure_and_not_judged_by_it() -> None:
    answer = verdict(run(), published=(published(110.0),), program=PIR)
    # The recorded figure alone decides.
    assert answer.status is Status.PASS
    assert [(each.status, each.reason.code, each.sets_status) for each in answer.published] == [
        (Status.INCOMPARABLE, "other-program", False)
    ]


def test_a_pir_program_without_a_recorded_figure_never_passes() -> None:
    answer = verdict(run(), published=(published(),), recorded=None, program=PIR)
    assert answer.status is Status.NO_BASELINE


def test_two_builds_with_programs_of_different_kinds_are_told_apart_in_the_first_sentence() -> None:
    runs = [
        replace(each, program="PIR" if each.build is Build.CANDIDATE else "old") for each in (run(96.0), *pairs(96.0))
    ]
    answer = judge(evidence(*runs, reference_build="good"))
    assert isinstance(answer, Verdict)
    assert answer.status is Status.REGRESSION
    told = reason_text(answer.reason).partition("; ")[0]
    assert told == "different programs: PIR with the build under test, old with reference build good"


def test_two_builds_with_programs_of_one_kind_are_compared_without_a_word() -> None:
    runs = [replace(each, program="old") for each in (run(96.0), *pairs(96.0))]
    answer = judge(evidence(*runs, reference_build="good"))
    assert isinstance(answer, Verdict)
