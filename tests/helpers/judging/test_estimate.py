"""How large an effect is, and its interval."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from helpers.judging.evalue import noise_factor
from helpers.judging.statistics import effect_of, hodges_lehmann


def test_two_differences_are_their_mean() -> None:
    assert hodges_lehmann([-0.01, -0.03]) == pytest.approx(-0.02)


def test_one_bad_run_in_five_hardly_moves_the_point() -> None:
    quiet = [-0.01, -0.011, -0.009, -0.0105]
    assert abs(hodges_lehmann([*quiet, -0.4]) - hodges_lehmann(quiet)) < 0.001
    assert abs(statistics.fmean([*quiet, -0.4]) - hodges_lehmann(quiet)) > 0.05


def test_the_effect_is_a_fraction_between_its_bounds() -> None:
    found = effect_of([math.log(0.97)] * 4, 0.002)
    assert found.point == pytest.approx(-0.03)
    assert found.low < found.point < found.high < 0


def test_what_all_runs_share_widens_the_interval_however_many_there_are() -> None:
    alone, shared = (effect_of([0.0] * 9, 0.001, night=night) for night in (0.0, 0.01))
    assert shared.high - shared.low > 5 * (alone.high - alone.low)


def test_a_single_run_never_has_a_narrow_interval() -> None:
    one, three = (effect_of([0.0] * n, 0.01) for n in (1, 3))
    assert one.high > 0.05 > 0.02 > three.high


def test_runs_that_differ_by_57_percent_never_get_two_percent() -> None:
    centre = (math.log(2.652) + math.log(1.691)) / 2
    found = effect_of([math.log(rate) - centre for rate in (2.652, 1.691)], 0.0087, 0.012)
    assert found.low < -0.2 and found.high > 0.2


def test_a_drop_beyond_the_largest_that_the_evidence_knows_keeps_its_size() -> None:
    found = effect_of([math.log(0.66)] * 3, 0.005)
    assert found.point == pytest.approx(-0.34) and found.high < -0.3


@pytest.mark.parametrize("n", [1, 2, 8])
def test_the_interval_holds_the_truth_nineteen_times_in_twenty_however_wrong_sigma_was_learned(n: int) -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(600):
        sigma = 0.005 * math.exp(rng.normal())
        found = effect_of((rng.normal(-0.02, sigma, size=n) + rng.normal(0, 0.002)).tolist(), 0.005, night=0.002)
        held += found.low < math.expm1(-0.02) < found.high
    assert 553 <= held <= 593


def test_the_noise_factor_is_what_the_runs_show_and_unity_for_one() -> None:
    rng = np.random.default_rng(1)
    for factor in (1.0, 3.0, 8.0):
        found = [noise_factor((5 + factor * rng.normal(0, 0.01, size=12)).tolist(), 0.01) for _ in range(40)]
        assert statistics.median(found) == pytest.approx(factor, rel=0.2)
    assert noise_factor([4.0], 0.01) == 1.0
