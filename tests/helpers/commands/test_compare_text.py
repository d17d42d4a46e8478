"""What compare prints: every number of the answer, within the width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.commands.compare import exit_status, render_comparisons
from helpers.judging.case.compare import CaseComparison
from helpers.judging.case.compare_sides import Side
from helpers.judging.case.verdict import Reason, Status
from helpers.judging.statistics import EffectSize

ANSWER = CaseComparison(
    "paddle-vgg16-fp32-bs8-1x2-dali-static", "cpu", Status.REGRESSION, Reason("slower", "because " * 30),
    Side(100.0, 8, 7), Side(95.0, 4, 3), "median-step", 0.005, "pairs", 4,
    EffectSize(-0.05, -0.06, -0.04), 333.0, 0.01, 200.0,
)  # fmt: skip
OPEN = CaseComparison("c", "cpu", Status.INCOMPARABLE, Reason("x", "y"), Side(), Side(), "median-step", 0.005)


@pytest.mark.parametrize("width", [100, 120])
def test_a_comparison_has_both_sides_effect_interval_basis_evidence_and_status(width: int) -> None:
    text = render_comparisons([ANSWER, OPEN], ["A: x", "B: y"], width)
    for part in ("100 (n=8/7)", "95 (n=4/3)", "-5.00%", "-6.00% … -4.00%", "4 pairs", "333", "REGRESSION", "A: x"):
        assert part in text
    reasons = [line for line in text.splitlines() if "because" in line]
    assert len(reasons) > 1 and max(map(len, reasons)) <= width


@pytest.mark.parametrize("status", [each for each in Status if each not in (Status.PASS, Status.IMPROVEMENT)])
def test_as_a_gate_nothing_but_a_green_status_passes(status: Status) -> None:
    green, other = (replace(ANSWER, status=each) for each in (Status.PASS, status))
    assert exit_status([green], gate=True) == 0
    assert exit_status([green, other], gate=True) != 0
