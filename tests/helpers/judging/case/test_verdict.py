"""Statuses in their order, and an answer's ratio."""

from __future__ import annotations

import pytest

from helpers.judging.case.verdict import Reason, Status, SubVerdict


def test_the_order_of_badness_is_the_house_plans_table() -> None:
    assert [status.value for status in sorted(Status, key=lambda status: status.badness)] == [
        "INFRA_ERROR", "INVALID", "REGRESSION", "SLOWER", "BELOW_PUBLISHED", "INCOMPARABLE", "INCONCLUSIVE",
        "NO_BASELINE", "IMPROVEMENT", "PASS", "not run",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "reference", "ratio"), [(95.0, 100.0, 0.95), (None, 100.0, None), (95.0, None, None)]
)
def test_an_answers_ratio_needs_both_figures(
    measured: float | None, reference: float | None, ratio: float | None
) -> None:
    answer = SubVerdict(Status.PASS, Reason("a", "b"), "rule", measured, reference)
    assert answer.ratio == ratio
