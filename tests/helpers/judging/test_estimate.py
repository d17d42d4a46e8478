"""How large an effect is, and its interval."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from helpers.judging.estimate import effect_of, hodges_lehmann


def test_two_differences_are_their_mean() -> None:
    assert hodges_lehmann([-0.01, -0.03]) == pytest.approx(-0.02)


def test_one_bad_run_in_five_hardly_moves_the_point() -> None:
    quiet = [-0.01, -0.011, -0.009, -0.0105]
    assert abs(hodges_lehmann([*quiet, -0.4]) - hodges_lehmann(quiet)) < 0.001
    assert abs(statistics.fmean([*quiet, -0.4]) - hodges_lehmann(quiet)) > 0.05


def test_the_effect_is_a_fraction_between_its_bounds() -> None:
    found = effect_of([math.log(0.97)] * 4, 0.002, 20)
    assert found.point == pytest.approx(-0.03)
    assert found.low < found.point < found.high < 0


def test_what_all_runs_share_widens_the_interval_however_many_there_are() -> None:
    alone, shared = (effect_of([0.0] * 9, 0.001, 20, night=night) for night in (0.0, 0.01))
    assert shared.high - shared.low > 5 * (alone.high - alone.low)


def test_an_unsure_sigma_widens_the_interval() -> None:
    assert effect_of([0.0], 0.01, 2).low < effect_of([0.0], 0.01, 30).low


@pytest.mark.parametrize("n", [1, 2, 8])
def test_the_interval_holds_the_truth_nineteen_times_in_twenty(n: int) -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        found = effect_of(rng.normal(-0.02, 0.005, size=n).tolist(), 0.005, 30)
        held += found.low < math.expm1(-0.02) < found.high
    assert 930 <= held <= 980
