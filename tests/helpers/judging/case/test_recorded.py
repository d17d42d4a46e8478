"""The recorded question while the history is away: never a PASS, and a REGRESSION only by pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.case.evidence import Past, PublishedReference, RunEvidence
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from tests.helpers.judging.case.evidences import CENTRE, GOOD, evidence, pairs, recorded, run

AWAY = Past(unreachable="history postgresql://db unreachable since 01:02:03 UTC (connection refused)")


def away(*runs: RunEvidence, **values: Any) -> Verdict | NeedRuns:
    return judge(replace(evidence(*runs, **values), past=AWAY))


def verdict(*runs: RunEvidence, **values: Any) -> Verdict:
    answer = away(*runs, **values)
    assert isinstance(answer, Verdict), answer
    return answer


@pytest.mark.parametrize("gap", [0.0, -0.003, -0.04, 0.004, 0.2])
@pytest.mark.parametrize("reference", [None, GOOD])
def test_whatever_was_measured_nothing_passes(gap: float, reference: str | None) -> None:
    # Without a suspicion, and with pairs that say the same.
    made = [run(CENTRE + gap), *(pairs(*[0.0] * 20) if reference else ())]
    found = verdict(*made, reference_build=reference)
    assert found.status is Status.INCONCLUSIVE
    assert (found.reason.code, found.standing) == ("history-unreachable", None)


def test_no_more_runs_are_made_than_the_protocol_plans() -> None:
    assert isinstance(away(run()), Verdict)
    more = away(run(), planned_runs=2)
    assert isinstance(more, NeedRuns) and len(more.order) == 1


def test_a_drop_beyond_the_band_in_three_runs_is_slower_than_the_entry_whatever_the_nights_were() -> None:
    slow = run(CENTRE - 0.2)
    more = away(slow)
    assert isinstance(more, NeedRuns) and len(more.order) == 1
    found = verdict(slow, slow, slow)
    assert (found.status, found.reason.code, found.standing) == (Status.SLOWER, "slower-unconfirmed", None)


def test_a_suspected_drop_is_confirmed_by_pairs_all_the_same() -> None:
    slow = run(CENTRE - 0.1)
    assert isinstance(away(slow, reference_build=GOOD), NeedRuns)
    found = verdict(slow, *pairs(*[-0.1] * 10), reference_build=GOOD)
    assert found.status is Status.REGRESSION
    assert found.reason.code == "confirmed-regression"


def test_a_drop_within_the_tolerance_is_no_regression() -> None:
    entry = recorded(tolerance=0.5)
    found = verdict(run(CENTRE - 0.1), *pairs(*[-0.1] * 20), reference_build=GOOD, recorded=entry)
    assert found.status is Status.INCONCLUSIVE


def test_an_entry_that_is_only_shown_asks_for_no_pairs_and_says_no_pass() -> None:
    found = verdict(run(CENTRE - 0.1), reference_build=GOOD, recorded=recorded(gates=False))
    assert found.recorded is not None and found.recorded.status is Status.INCONCLUSIVE
    assert found.status is Status.NO_BASELINE


def test_the_published_question_is_answered_as_ever() -> None:
    below = PublishedReference(200.0, "wall-clock", "table 1", True, 0.05)
    assert verdict(run(), published=(below,)).status is Status.BELOW_PUBLISHED
    reached = PublishedReference(100.0, "wall-clock", "table 1", True, 0.05)
    assert verdict(run(), published=(reached,)).status is Status.INCONCLUSIVE


def test_without_an_entry_there_is_nothing_that_the_history_could_say() -> None:
    assert verdict(run(), recorded=None).status is Status.NO_BASELINE


def test_beside_a_reference_build_without_an_entry_no_figure_is_made_up() -> None:
    """The stand-in for an entry lends its tolerance; it was shown as a recorded figure with the ratio 1."""
    found = verdict(run(), *pairs(*[0.0] * 20), recorded=None, reference_build=GOOD)
    assert found.recorded is not None
    assert (found.recorded.reference, found.recorded.ratio, found.recorded.label) == (None, None, "")
    assert found.status is Status.INCONCLUSIVE
