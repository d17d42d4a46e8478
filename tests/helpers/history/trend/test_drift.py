"""A slope is told from steps and from noise, with what it adds up to."""

from __future__ import annotations

import math
import random

import pytest

from helpers.history.trend.drift import find_drift, pieces, slope_within


def noisy(level: list[float], sigma: float = 0.003, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [100 * value * math.exp(chance.gauss(0, sigma)) for value in level]


SLOPE = [0.999**night for night in range(60)]
STEP = [1.0] * 40 + [0.98] * 20


@pytest.mark.parametrize("seed", range(5))
def test_a_slope_is_found_with_what_it_adds_up_to(seed: int) -> None:
    drift = find_drift(noisy(SLOPE, seed=seed), [], 0, 0.005)
    assert drift is not None
    assert drift.effect == pytest.approx(0.999**59 - 1, abs=0.006)
    assert drift.low < drift.effect < drift.high < 0
    assert (drift.nights, drift.first, drift.explains_steps) == (60, 0, False)
    assert drift.a_night == pytest.approx(-0.001, rel=0.1)


def test_a_slope_upwards_has_the_other_sign() -> None:
    drift = find_drift(noisy([1 / value for value in SLOPE]), [], 0, 0.005)
    assert drift is not None
    assert 0 < drift.low < drift.effect < drift.high


def test_steps_that_a_slope_was_cut_into_are_the_slopes() -> None:
    drift = find_drift(noisy(SLOPE), [6, 15, 23, 35, 42, 48, 57], 0, 0.005)
    assert drift is not None
    assert drift.explains_steps
    assert drift.effect == pytest.approx(0.999**59 - 1, abs=0.006)


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_no_drift(seed: int) -> None:
    assert find_drift(noisy(STEP, seed=seed), [40], 0, 0.005) is None


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_drift(seed: int) -> None:
    assert find_drift(noisy([1.0] * 60, seed=seed), [], 0, 0.005) is None


def test_a_slope_beside_a_step_is_told_without_the_step() -> None:
    both = [slope * step for slope, step in zip(SLOPE, [1.0] * 30 + [0.8] * 30, strict=True)]
    drift = find_drift(noisy(both), [30], 0, 0.005)
    assert drift is not None
    assert not drift.explains_steps
    assert drift.effect == pytest.approx(0.999**59 - 1, abs=0.015)


def test_a_drift_below_what_counts_is_none() -> None:
    values = noisy(SLOPE, sigma=0.0001)
    assert find_drift(values, [], 0, 0.05) is not None
    assert find_drift(values, [], 0, 0.06) is None


def test_only_the_nights_against_the_present_reference_count() -> None:
    values = noisy([*[1.3 - 0.01 * night for night in range(30)], *[1.0] * 30])
    assert find_drift(values, [], 0, 0.005) is not None
    assert find_drift(values, [], 30, 0.005) is None
    assert find_drift(values, [12], 30, 0.005) is None


def test_too_few_nights_are_no_drift() -> None:
    values = [100 * 0.99**night for night in range(10)]
    assert find_drift(values, [], 0, 0.005) is not None
    assert find_drift(values[:-1], [], 0, 0.005) is None


def test_one_bad_night_moves_the_slope_hardly() -> None:
    values = noisy(SLOPE)
    calm = find_drift(values, [], 0, 0.005)
    values[30] *= 0.3
    shaken = find_drift(values, [], 0, 0.005)
    assert calm is not None
    assert shaken is not None
    assert shaken.effect == pytest.approx(calm.effect, abs=0.002)


def test_sens_interval_of_a_known_series() -> None:
    # 10 points: 45 pairs, variance of Kendall's S 125, so ranks (45 ± 1.96 sqrt(125)) / 2 = 11.5 to 33.5.
    values = [0.0, 1.2, 1.8, 3.3, 3.9, 5.2, 5.8, 7.1, 8.2, 8.8]
    slopes = sorted((values[j] - values[i]) / (j - i) for j in range(10) for i in range(j))
    found = slope_within([values])
    assert found is not None
    assert (found.slope, found.low, found.high) == (slopes[22], slopes[11], slopes[34])
    assert found.sure


def test_the_pieces_hold_every_night_once() -> None:
    assert pieces([0.0, 1.0, 2.0, 3.0], [1, 3]) == [[0.0], [1.0, 2.0], [3.0]]
    assert slope_within([[0.0], [1.0], [2.0]]) is None
