"""What is said of a case that may make no further run: its minutes are used up, or the night is INVALID."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.judging.case.evidence import Budget, PublishedReference, RunEvidence
from helpers.judging.case.judge import judge
from helpers.judging.case.time_limit import judged_in_time
from helpers.judging.case.verdict import Status, Verdict
from helpers.judging.finding import Code, found
from tests.helpers.judging.case.evidences import GOOD, asked, codes, evidence, good, new, pairs, rate_of, run

SLOW = run(rate_of(12.0))
OVER = found(Code.OUT_OF_MINUTES, used=9.0, minutes=10, needed=2.0)


def stopped(*runs: RunEvidence, **values: Any) -> Verdict:
    request = asked(*runs, **values)
    return judged_in_time(evidence(*runs, **values), request, OVER, judge)


def test_without_a_pair_an_open_case_is_inconclusive_and_says_what_is_open_and_what_was_seen() -> None:
    answer = stopped(SLOW, reference_build=GOOD)
    assert (answer.status, answer.reason.code) == (Status.INCONCLUSIVE, "out-of-minutes")
    assert answer.standing is None


@pytest.mark.parametrize("half", [(), (good(),), (new(),)])
def test_whole_pairs_are_judged_as_if_the_budget_had_no_more_of_them(half: tuple[RunEvidence, ...]) -> None:
    made = (SLOW, *pairs(-0.004, -0.006), *half)
    answer = stopped(*made, reference_build=GOOD)
    assert answer.status is Status.INCONCLUSIVE
    assert answer.standing is not None and answer.standing.pair_count == 2


def invalid(*usable: RunEvidence, **values: Any) -> Verdict:
    broken = [run(1.0, invalid="contended: cc1 (pid 4711)")] * 3
    answer = judge(evidence(*usable, *broken, reference_build=GOOD, budget=Budget(repeats=2), **values))
    assert isinstance(answer, Verdict)
    return answer


def test_the_valid_run_of_an_invalid_night_is_compared_and_shown() -> None:
    answer = invalid(SLOW)
    assert (answer.status, answer.reason.code) == (Status.INVALID, "run-invalid")
    assert answer.recorded is not None and answer.recorded.ratio is not None
    assert answer.recorded.ratio == pytest.approx(SLOW.figures["median-step"] / 100.0)
    assert (answer.recorded.status, answer.recorded.sets_status) == (Status.INVALID, False)
    change = answer.recorded.ratio - 1
    assert change < -0.003
    assert {Code.NOT_JUDGED, Code.BESIDE_RECORDED} <= codes(answer)


def test_it_is_shown_against_published_figures_and_in_another_segment() -> None:
    published = PublishedReference(200.0, "wall-clock", "table 1, V100, paddle 2", gates=True, tolerance=0.05)
    answer = invalid(run(), published=(published,))
    assert [(each.status, each.sets_status, each.ratio) for each in answer.published] == [
        (Status.INVALID, False, pytest.approx(0.5))
    ]


def test_without_a_valid_run_nothing_is_compared() -> None:
    answer = invalid()
    assert (answer.recorded, answer.published) == (None, ())
