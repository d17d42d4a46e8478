"""What compare and calibrate print: every number of the answer, within the width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.commands.calibrate_text import render_noise, tolerance_lines
from helpers.commands.compare import comparison_record, comparison_summary, render_comparisons
from helpers.judging.calibrate import CaseNoise, Deviation
from helpers.judging.compare import CaseComparison
from helpers.judging.compare_sides import Side
from helpers.judging.statistics import Effect
from helpers.judging.verdict import Reason, Status

ANSWER = CaseComparison(
    "paddle-vgg16-fp32-bs8-1x2-dali-static", "cpu", Status.REGRESSION, Reason("slower", "because " * 30),
    Side(100.0, 8, 7), Side(95.0, 4, 3), "median-step", 0.005, "pairs", 4, -0.05, -0.06, -0.04, 333.0, 0.01, 200.0,
)  # fmt: skip
OPEN = CaseComparison("c", "cpu", Status.INCOMPARABLE, Reason("x", "y"), Side(), Side(), "median-step", 0.005)
NOISE = CaseNoise(
    "c", "cpu", (4.6, 4.61, 4.59), Deviation(0.01, 0.006, 0.02, 9), None, 1, 0.005, 0.007, ((2, 0.5), (16, 0.021)),
    0.03, 1200.0,
)  # fmt: skip


def test_a_narrow_terminal_goes_without_what_the_reason_repeats_and_no_line_is_cut() -> None:
    wide = replace(ANSWER, a=Side(1234.5, 571, 428), b=Side(1172.2, 284, 412), reason=Reason("slower", "because"))
    text = render_comparisons([wide], [], 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "REGRESSION" in text and "-6.00% … -4.00%" in text and "4 pairs" not in text
    assert "4 pairs" in render_comparisons([wide], [], 100)


@pytest.mark.parametrize("width", [100, 120])
def test_a_comparison_has_both_sides_effect_interval_basis_evidence_and_status(width: int) -> None:
    text = render_comparisons([ANSWER, OPEN], ["A: x", "B: y"], width)
    for part in ("100 (n=8/7)", "95 (n=4/3)", "-5.00%", "-6.00% … -4.00%", "4 pairs", "333", "REGRESSION", "A: x"):
        assert part in text
    reasons = [line for line in text.splitlines() if "because" in line]
    assert len(reasons) > 1 and max(map(len, reasons)) <= width


def test_the_sum_counts_what_was_compared_worst_first() -> None:
    assert comparison_summary([OPEN, ANSWER]) == "1 of 2 cases compared: 1 REGRESSION, 1 INCOMPARABLE"
    assert comparison_summary([]) == "0 of 0 cases compared: none"


def test_a_record_is_plain_values() -> None:
    record = comparison_record(ANSWER)
    assert (record["status"], record["reason"]["code"], record["a"]["runs"]) == ("REGRESSION", "slower", 8)


def test_noise_is_told_with_intervals_degrees_drops_and_tolerance() -> None:
    text = " ".join(render_noise(NOISE, 100).split())
    for part in (
        "3 runs, 98.49 … 100.5 images/s, median 99.48",
        "1.00% [0.60%, 2.00%], 9 degrees of freedom",
        "not known: one night so far",
        "at evidence 1200",
        "up to 2: none below 45%, 16: 2.1%",
        "screens first: 3.0%",
        "tolerance: 0.5% in use, 0.7% recommended",
    ):
        assert part in text


def test_nights_effect_and_warnings_are_told_where_there_are_any() -> None:
    noise = replace(
        NOISE, night=Deviation(0.004, 0.0, 0.01, 1), nights=2, effect=Effect(-0.03, -0.04, -0.02), warnings=("look",)
    )
    text = render_noise(noise, 100)
    assert "0.40% [0.00%, 1.00%], 1 degree of freedom, 2 nights" in text
    assert "which does NOT include no difference" in text
    assert text.splitlines()[-1] == "  WARNING: look"


def test_lines_for_perf_yaml_are_of_the_cases_that_need_them() -> None:
    assert tolerance_lines([replace(NOISE, recommended=0.005)]) == ""
    text = tolerance_lines([NOISE, replace(NOISE, case_id="d", recommended=0.005)])
    assert text.splitlines()[1:] == ["tolerances:", "  cases:", '    - pattern: "c"', "      recorded: 0.007"]
