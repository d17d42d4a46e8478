"""Runs that were made are judged again: as the session that made them did, also where more were wanted then."""

from __future__ import annotations

import pytest

from helpers.judging.case.evidence import Budget, Build, Stage
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from helpers.report.reasons import reason_text
from helpers.session.judged_again import judge_again
from tests.helpers.judging.case.plain_evidence import evidence, pairs, recorded, run

# The nights before were recorded with the good build itself, so nothing asks how they stand against it.
BESIDE = {"reference_build": "good", "reference_id": "good-id", "recorded": recorded(build="good-id")}


def test_pairs_that_the_night_asked_for_are_part_of_the_answer() -> None:
    """Alone the case shows no drop; the night as a whole had it confirmed, and the pairs show one."""
    given = evidence(run(100.0), *pairs(94.0, 4), **BESIDE, budget=Budget(repeats=0, screen_runs=1, pairs=4))
    alone = judge(given)
    assert isinstance(alone, Verdict) and alone.status is Status.PASS
    live = judge(evidence(*given.runs, **BESIDE, budget=given.budget, suspicion="all amp cases fell"))
    again = judge_again(given)
    assert isinstance(live, Verdict)
    assert (again.status, again.standing) == (live.status, live.standing)
    assert again.status is Status.REGRESSION


@pytest.mark.parametrize("rate", [100.0, 94.0])
def test_where_the_case_itself_asked_nothing_is_added(rate: float) -> None:
    given = evidence(run(rate), *(pairs(rate, 4) if rate < 100 else ()), **BESIDE)
    assert judge_again(given) == judge(given)


def test_what_a_session_would_run_more_of_is_inconclusive() -> None:
    given = evidence(run(94.0), *pairs(94.0, 1), **BESIDE, budget=Budget(repeats=0, screen_runs=1, pairs=16))
    assert isinstance(judge(given), NeedRuns)
    again = judge_again(given)
    assert (again.status, again.reason.code) == (Status.INCONCLUSIVE, "no-more-runs")
    assert "3 kept runs do not settle it" in reason_text(again.reason)


@pytest.mark.parametrize(
    ("end", "status"),
    [({"invalid": "throttled"}, Status.INVALID), ({"failure": "rank 0 died", "retriable": True}, Status.INFRA_ERROR)],
)
def test_without_a_usable_run_their_end_is_the_answer(end: dict[str, object], status: Status) -> None:
    lost = run(100.0, build=Build.CANDIDATE, stage=Stage.SCREEN, **end)
    again = judge_again(evidence(lost, planned_runs=3, budget=Budget(repeats=2)))
    assert again.status is status
