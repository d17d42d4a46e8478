"""Ratios of paired processes, and what they are not made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paired import Ratio, pair_ratio, ratio_of
from helpers.trainers.contract.errors import SuiteError

positive = st.floats(min_value=1e-3, max_value=1e3)


def test_a_round_in_which_one_was_disturbed_does_not_move_its_pair() -> None:
    assert pair_ratio([1.0, 1.0, 9.0], [2.0, 2.0, 2.0]) == pytest.approx(0.5)


def test_the_interval_is_students_over_the_logarithms() -> None:
    # Logarithms 0 and 2d: mean d, standard deviation d * sqrt(2), t of 1 degree of freedom 12.7062.
    found = ratio_of([1.0, math.exp(0.02)])
    assert found.centre == pytest.approx(math.exp(0.01))
    assert found.low == pytest.approx(math.exp(0.01 - 12.7062 * 0.01))
    assert found.high == pytest.approx(math.exp(0.01 + 12.7062 * 0.01))
    assert found.n == 2


@given(st.lists(positive, min_size=2, max_size=8))
def test_the_other_way_round_everything_is_inverted(pairs: list[float]) -> None:
    there, back = ratio_of(pairs), ratio_of([1 / pair for pair in pairs])
    assert back.centre == pytest.approx(1 / there.centre)
    assert back.low == pytest.approx(1 / there.high)
    assert back.high == pytest.approx(1 / there.low)


@given(st.lists(positive, min_size=2, max_size=8))
def test_the_interval_holds_its_centre(pairs: list[float]) -> None:
    found = ratio_of(pairs)
    assert found.low <= found.centre * (1 + 1e-12)
    assert found.centre <= found.high * (1 + 1e-12)


def test_only_a_whole_interval_lies_below_a_limit() -> None:
    assert Ratio(0.97, 0.96, 0.98, 4).lies_below(0.99)
    assert not Ratio(0.97, 0.94, 1.0, 4).lies_below(0.99)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_measure_is_refused_by_name(value: float) -> None:
    with pytest.raises(SuiteError, match="finite number above 0"):
        pair_ratio([1.0, value], [1.0, 1.0])
    with pytest.raises(SuiteError, match="finite number above 0"):
        ratio_of([1.0, value])


def test_one_pair_has_no_interval() -> None:
    with pytest.raises(SuiteError, match="2 or more"):
        ratio_of([1.0])


@pytest.mark.parametrize(("over", "under"), [([], []), ([1.0], [1.0, 1.0])])
def test_rounds_come_in_pairs(over: list[float], under: list[float]) -> None:
    with pytest.raises(SuiteError, match="as many of the one as of the other"):
        pair_ratio(over, under)
