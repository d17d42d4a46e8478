"""Summaries of runs (centre, spread, interval, what is missing for a better one), and how large a change is."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import strategies as st

from helpers.judging.statistics import (
    effect_of,
    hodges_lehmann,
    mean_interval,
    number,
    student_t_95,
    summarise,
)
from helpers.trainers.contract.errors import SuiteError

RATES = st.floats(1e-3, 1e6)


def test_three_runs_have_the_interval_of_their_median() -> None:
    summary = summarise((99.0, 100.0, 101.0))
    # The simulated quantile of |median - middle| over the runs' standard error is 4.421 (2 million drawn).
    half = 4.421 * statistics.stdev(map(math.log, (99, 100, 101))) / math.sqrt(3)
    assert summary.low == pytest.approx(100 * math.exp(-half), rel=0.0005)
    assert summary.high == pytest.approx(100 * math.exp(half), rel=0.0005)
    assert (summary.centre, summary.n) == (100.0, 3)
    assert summary.spread == pytest.approx(0.01)


def test_two_runs_have_a_wide_interval() -> None:
    summary = summarise((100.0, 102.0))
    half = student_t_95(1) * math.log(102 / 100) / 2
    assert summary.high == pytest.approx(math.sqrt(100 * 102) * math.exp(half))
    assert summary.low is not None


@pytest.mark.slow
@pytest.mark.parametrize("bad_runs", [0.0, 0.07], ids=["normal", "with-bad-runs"])
@pytest.mark.parametrize("n", [3, 5, 10])
def test_the_interval_of_a_summary_holds_the_middle_nineteen_times_in_twenty(n: int, bad_runs: float) -> None:
    """5,000 cases; of some every fourteenth run varies four times as much, as real ones do (docs/verdicts.md)."""
    held = 0
    for rates in np.exp(_log_rates(n, bad_runs)):
        found = summarise(tuple(rates.tolist()))
        assert found.low is not None and found.high is not None
        assert found.low <= found.centre <= found.high
        held += found.low < 1.0 < found.high
    # Bad runs widen it, and it holds the middle more often.
    assert 0.94 < held / 5_000 < (0.98 if bad_runs else 0.96)


def _log_rates(n: int, bad_runs: float) -> np.ndarray:
    """The log rates of n runs of 5,000 cases, about 0."""
    rng = np.random.default_rng(n)
    scale = np.where(rng.random((5_000, n)) < bad_runs, 4.0, 1.0)
    return 0.01 * scale * rng.standard_normal((5_000, n))


def test_one_run_claims_no_spread() -> None:
    summary = summarise((100.0,))
    assert (summary.centre, summary.low, summary.high, summary.spread, summary.n) == (100.0, None, None, None, 1)


def test_the_centre_is_the_median_and_the_spread_the_farthest_run() -> None:
    summary = summarise((100.0, 101.0, 50.0))
    assert (summary.centre, summary.spread) == (100.0, 0.5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_refuses_what_is_no_throughput(value: float) -> None:
    with pytest.raises(SuiteError, match="throughput of a run"):
        summarise((100.0, value))


def test_refuses_no_runs() -> None:
    with pytest.raises(SuiteError, match="no runs"):
        summarise(())


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.7062), (4, 2.7764), (30, 2.0423), (31, 2.0395), (1000, 1.9623)]
)
def test_student_t_is_the_printed_table(degrees: int, quantile: float) -> None:
    assert student_t_95(degrees) == pytest.approx(quantile, abs=1e-4)


@pytest.mark.parametrize("degrees", [0, -1])
def test_student_t_needs_a_degree_of_freedom(degrees: int) -> None:
    with pytest.raises(SuiteError, match="degrees_of_freedom"):
        student_t_95(degrees)


def test_the_interval_of_a_mean_is_student_s() -> None:
    # Standard deviation 0.01 * sqrt(2), t of 1 degree of freedom 12.7062.
    found = mean_interval([0.0, 0.02])
    assert (found.mean, found.low, found.high) == pytest.approx((0.01, 0.01 - 0.127062, 0.01 + 0.127062), rel=1e-5)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(1.2344, "1.234"), (393.561, "393.6"), (10936.815, "10937"), (39972.131, "39972"), (999.96, "1000"), (0.5, "0.5")],
)
def test_rates_are_told_with_four_digits(rate: float, text: str) -> None:
    assert number(rate) == text


# --- how large a change is


def test_one_bad_run_in_five_hardly_moves_the_point() -> None:
    quiet = [-0.01, -0.011, -0.009, -0.0105]
    assert abs(hodges_lehmann([*quiet, -0.4]) - hodges_lehmann(quiet)) < 0.001
    assert abs(statistics.fmean([*quiet, -0.4]) - hodges_lehmann(quiet)) > 0.05


def test_what_all_runs_share_widens_the_interval_however_many_there_are() -> None:
    alone, shared = (effect_of([0.0] * 9, 0.001, night=night) for night in (0.0, 0.01))
    assert shared.high - shared.low > 5 * (alone.high - alone.low)


def test_a_single_run_never_has_a_narrow_interval() -> None:
    one, three = (effect_of([0.0] * n, 0.01) for n in (1, 3))
    assert one.high > 0.05 > 0.02 > three.high


def test_a_drop_beyond_the_largest_that_the_evidence_knows_keeps_its_size() -> None:
    found = effect_of([math.log(0.66)] * 3, 0.005)
    assert found.point == pytest.approx(-0.34) and found.high < -0.3


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 8])
def test_the_interval_holds_the_truth_nineteen_times_in_twenty_however_wrong_sigma_was_learned(n: int) -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(600):
        sigma = 0.005 * math.exp(rng.normal())
        found = effect_of((rng.normal(-0.02, sigma, size=n) + rng.normal(0, 0.002)).tolist(), 0.005, night=0.002)
        held += found.low < math.expm1(-0.02) < found.high
    assert 553 <= held <= 593
