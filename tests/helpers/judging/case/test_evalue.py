"""The e-value against its definition worked out in closed form, and its promise: alarms at most as often as it says."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.case.evalue import Direction, evalue, noise_factor, odds_against
from helpers.trainers.contract.errors import SuiteError
from tests.for_each import for_each

pytestmark = pytest.mark.slow

FACTORS = np.geomspace(0.5, 11, 16)
FACTOR_WEIGHTS = np.exp(-0.5 * np.log(FACTORS) ** 2)
DROPS = np.geomspace(0.004, 0.20, 48)
DROP_WIDTHS = 0.6 * DROPS * (DROPS[1] / DROPS[0] - 1)


def in_closed_form(x: np.ndarray, sigma: float, tau: float, direction: Direction) -> float:
    """Logarithm of the e-value: with every run either of the narrow or of the wide part, all integrals are Gaussian."""
    before, after = [], []
    for factor, weight in zip(FACTORS, FACTOR_WEIGHTS, strict=True):
        for wide in itertools.product((False, True), repeat=len(x)):
            widths = sigma * factor * np.where(wide, 4.0, 1.0)
            share = math.log(weight) + sum(math.log(0.07 if each else 0.93) for each in wide)
            before.append(share + log_density(x, widths, 0.0, tau))
            changed = log_density(x, widths, direction.value * DROPS, np.hypot(tau, DROP_WIDTHS))
            after.append(share - math.log(len(DROPS)) + changed)
    return log_sum(after) - log_sum(before)


def log_density(x: np.ndarray, widths: np.ndarray, centres: np.ndarray | float, taus: np.ndarray | float) -> np.ndarray:
    """Of runs of these widths about an offset N(centre, tau^2) that they share, by centre."""
    weights, distances = widths**-2, np.subtract.outer(np.atleast_1d(centres), x)
    common = (taus * (distances @ weights)) ** 2 / (1 + taus**2 * weights.sum())
    log_determinant = 2 * np.log(widths).sum() + np.log1p(taus**2 * weights.sum())
    density: np.ndarray = -0.5 * (log_determinant + distances**2 @ weights - common)
    return density


def log_sum(values: list[np.ndarray] | list[float]) -> float:
    return float(np.logaddexp.reduce(np.ravel(values)))


WIDTHS = [(0.0001, 0.0007), (0.0005, 0.0003), (0.003, 0.02), (0.003, 0.0008), (0.012, 0.005), (0.04, 0.0007)]


@for_each(("sigma", "tau"), WIDTHS)
@for_each("direction", Direction)
@for_each("x", [(0.0,), (-0.004,), (-0.03, -0.002), (-0.01, -0.012, -0.011), (0.05, 0.048, 0.0)])
def test_is_the_ratio_of_marginal_likelihoods(
    sigma: float, tau: float, direction: Direction, x: tuple[float, ...]
) -> None:
    expected = in_closed_form(np.array(x), sigma, tau, direction)
    assert math.log(evalue(x, sigma, tau, direction)) == pytest.approx(expected, abs=0.03, rel=0.005)


@pytest.mark.parametrize(("sigma", "tau"), WIDTHS[1:])
def test_many_runs_are_integrated_as_well_as_few(sigma: float, tau: float) -> None:
    """Sixteen runs on an even grid a hundred times as fine."""
    x = -0.006 + min(sigma, 0.015) * np.random.default_rng(3).normal(size=16) * np.where(np.arange(16) % 7 == 0, 4, 1)
    reach = max(0.25, 6 * tau)
    offsets = np.linspace(-reach, reach, 20_001)
    sums = []
    for change in (np.zeros(1), -DROPS):
        widths = np.hypot(tau, DROP_WIDTHS if len(change) > 1 else 0.0) * np.ones(len(change))
        terms = [
            -0.5 * ((offsets - at) / width) ** 2 - math.log(width) for at, width in zip(change, widths, strict=True)
        ]
        prior = np.logaddexp.reduce(terms) - math.log(len(terms))
        fits = []
        for factor, weight in zip(FACTORS, FACTOR_WEIGHTS, strict=True):
            scale, fit = sigma * factor, np.full(len(offsets), math.log(weight))
            for value in x:
                z = ((value - offsets) / scale) ** 2
                fit += np.logaddexp(math.log(0.93) - z / 2, math.log(0.07 / 4) - z / 32) - math.log(scale)
            fits.append(fit.max() + math.log(np.exp(fit + prior - fit.max()).sum()))
        sums.append(log_sum(fits))
    assert math.log(evalue(x, sigma, tau)) == pytest.approx(sums[1] - sums[0], abs=0.02, rel=0.005)


@pytest.mark.parametrize(
    ("sigma", "tau", "learned_too_small"),
    [(0.003, 3e-4, 1), (0.0005, 3e-4, 4), (0.003, 3e-4, 4), (0.01, 3e-4, 4), (0.004, 0.003, 4)],
)
def test_without_a_change_one_in_twenty_looks_at_most_ever_reaches_twenty(
    sigma: float, tau: float, learned_too_small: int
) -> None:
    """Looked at again and again, also where sigma was learned four times too small (docs/verdicts.md, "Evidence")."""
    rng = np.random.default_rng(20)
    reached, series = 0, 120
    for _ in range(series):
        wide = np.where(rng.random(8) < 0.07, 4, 1)
        x = tau * rng.normal() + learned_too_small * sigma * wide * rng.normal(size=8)
        for direction in Direction:
            reached += max(evalue(x[:n], sigma, tau, direction) for n in (1, 2, 3, 5, 8)) >= 20
    assert reached <= 0.05 * 2 * series


@given(st.floats(0, 0.15), st.floats(1e-4, 0.05), st.integers(1, 4), st.floats(3e-4, 0.02), st.floats(3e-4, 0.02))
def test_slower_runs_are_more_evidence(slower: float, more: float, n: int, sigma: float, tau: float) -> None:
    near, far = (evalue([-gap] * n, sigma, tau) for gap in (slower, slower + more))
    assert far > 0.98 * near


@given(st.lists(st.floats(-0.1, 0.1), min_size=1, max_size=4), st.floats(2e-4, 0.02), st.floats(3e-4, 0.02))
def test_a_gain_is_a_drop_in_the_mirror(x: list[float], sigma: float, tau: float) -> None:
    mirrored = [-value for value in x]
    assert evalue(x, sigma, tau) == pytest.approx(evalue(mirrored, sigma, tau, Direction.GAIN), rel=1e-6)


def test_what_no_float_holds_is_the_largest_told() -> None:
    assert 1e200 < evalue([-0.2] * 16, 1e-4, 3e-4) < math.inf
    assert 0 < evalue([0.2] * 16, 1e-4, 3e-4) < 1e-6


@pytest.mark.parametrize(
    ("x", "sigma", "tau"),
    [
        ([math.nan], 0.01, 0.01),
        ([0.0], 0.0, 0.01),
        ([0.0], 0.01, -0.01),
        ([0.0], math.inf, 0.01),
        ([math.inf], 0.1, 0.1),
    ],
)
def test_what_no_measurement_gives_is_refused(x: list[float], sigma: float, tau: float) -> None:
    with pytest.raises(SuiteError, match="e-value"):
        evalue(x, sigma, tau)


# --- evidence against a drop of a size


def test_odds_against_a_drop_are_one_halfway_and_mirror_each_other() -> None:
    sigma, tau = 0.004, 0.0003
    half = [-0.01, -0.0101, -0.0099]
    assert odds_against(half, sigma, tau, 0.02) == pytest.approx(1.0, rel=0.02)
    assert odds_against([0.0] * 3, sigma, tau, 0.02) == pytest.approx(1 / odds_against([-0.02] * 3, sigma, tau, 0.02))
    assert odds_against([0.0] * 6, sigma, tau, 0.02) > odds_against([0.0] * 3, sigma, tau, 0.02) > 20
    assert odds_against([0.0] * 3, sigma, tau, 0.05) > odds_against([0.0] * 3, sigma, tau, 0.02)


def test_a_drop_that_is_there_is_seldom_ruled_out_however_often_one_looks() -> None:
    """Ville: twenty to one in one of twenty at most, also where sigma was learned three times too small."""
    generator, sigma, ruled_out = np.random.default_rng(3), 0.004, 0
    for _ in range(300):
        x = generator.normal(-0.02, 3 * sigma, 8)
        ruled_out += any(odds_against(x[:n], sigma, 3e-4, 0.02) >= 20 for n in range(2, 9))
    assert ruled_out <= 0.05 * 300


def test_the_noise_factor_is_what_the_runs_show_and_unity_for_one() -> None:
    rng = np.random.default_rng(1)
    for factor in (1.0, 3.0, 8.0):
        found = [noise_factor((5 + factor * rng.normal(0, 0.01, size=12)).tolist(), 0.01) for _ in range(40)]
        assert statistics.median(found) == pytest.approx(factor, rel=0.2)
    assert noise_factor([4.0], 0.01) == 1.0
