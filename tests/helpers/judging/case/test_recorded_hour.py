"""The hour in which a case was recorded: one run of the reference build shows whether the machine ran then as it
does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.case.evidence import Build, Compared, Past, RunEvidence, Stage
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from helpers.judging.finding import Code
from tests.helpers.judging.case.evidences import (
    CENTRE,
    GOOD,
    asked,
    codes,
    evidence,
    good,
    nights,
    pairs,
    recorded,
    run,
    verdict,
)

FIRST: dict[str, Any] = {"past": (), "reference_build": GOOD}
# The pairs of a recording with another build, which was 2% faster than the good one.
WITH_PAIRS = Compared(GOOD, (CENTRE, CENTRE + 0.0005, CENTRE - 0.0005), (CENTRE - 0.02,) * 3)
SINCE = Compared(GOOD, (CENTRE,), (CENTRE,), teaches_level=False)


def test_the_first_night_beside_the_good_build_asks_for_one_run_of_it() -> None:
    answer = asked(run(), **FIRST)
    assert (answer.order, answer.stage) == ((Build.REFERENCE,), Stage.CONFIRM)
    passed = verdict(run(), good(CENTRE + 0.0005), **FIRST)
    assert passed.status is Status.PASS
    assert passed.standing is not None and passed.standing.pair_count == 0


@pytest.mark.parametrize("hour", [-0.048, 0.048], ids=["slow", "fast"])
def test_pairs_decide_where_the_machine_ran_otherwise_when_the_case_was_recorded(hour: float) -> None:
    now = CENTRE - hour
    answer = asked(run(), good(now), **FIRST)
    assert answer.order == (Build.CANDIDATE,)
    lost = verdict(run(now - 0.048), *pairs(*[-0.048, -0.0485, -0.0475] * 4, at=now), **FIRST)
    assert lost.status is Status.REGRESSION, lost.reason
    kept = verdict(run(now), *pairs(0.0002, -0.0002, 0.0001, at=now), **FIRST)
    assert kept.status is Status.PASS, kept.reason


def test_the_reason_says_how_the_machine_ran_then() -> None:
    hidden = verdict(run(), *pairs(*[-0.048, -0.0485, -0.0475] * 4, at=CENTRE + 0.048), **FIRST)
    assert hidden.status is Status.REGRESSION
    assert {Code.HOUR_DOUBTED, Code.HOUR_SHIFT} <= codes(hidden)


def with_past(*runs: RunEvidence, compared: tuple[Compared, ...], gained: bool = False, **given: Any) -> Any:
    tonight = evidence(*runs, **{"reference_build": GOOD, **given})
    return judge(replace(tonight, past=replace(tonight.past, compared=compared, gained=gained)))


def test_the_good_build_of_a_recording_with_pairs_has_its_own_figure() -> None:
    given: dict[str, Any] = {"recorded": recorded(build="another"), "past": (), "compared": (WITH_PAIRS,)}
    assert with_past(run(), **given).order == (Build.REFERENCE,)
    assert with_past(run(), good(CENTRE - 0.02), **given).status is Status.PASS
    assert with_past(run(), good(CENTRE + 0.03), **given).order == (Build.CANDIDATE,)


def test_nothing_is_asked_where_other_nights_tell() -> None:
    assert isinstance(with_past(run(), past=nights(15), compared=()), Verdict)
    assert isinstance(with_past(run(), past=nights(3), compared=(SINCE,)), Verdict)
    assert isinstance(with_past(run(), past=nights(3), compared=()), NeedRuns)
    gain = Compared(GOOD, (CENTRE,) * 3, (CENTRE - 0.02,) * 3)
    assert isinstance(with_past(run(), past=nights(1), compared=(gain,), gained=True), Verdict)


def test_nothing_is_asked_without_a_good_build_or_where_the_history_does_not_answer() -> None:
    assert isinstance(judge(evidence(*[run()] * 5, past=())), Verdict)
    away = judge(replace(evidence(run(), **FIRST), past=Past(unreachable="the history does not answer")))
    assert isinstance(away, Verdict) and away.status is Status.INCONCLUSIVE


def test_a_suspicion_asks_for_pairs_at_once() -> None:
    assert set(asked(run(CENTRE - 0.1), **FIRST).order) == set(Build)
