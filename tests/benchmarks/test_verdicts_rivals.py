"""The other tools' rules say what the tools would say."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.verdict_rivals import (
    RIVALS,
    Seen,
    asv_regressions,
    asv_steps,
    mann_whitney_p,
    otava_steps,
)
from benchmarks.verdict_worlds import DrawnRun
from helpers.history.trend import ChangePoint

BY_NAME = {rival.name: rival for rival in RIVALS}


def runs(*rates: float, mean_is_lower_by: float = 0.0) -> tuple[DrawnRun, ...]:
    return tuple(DrawnRun(math.log(rate), math.log(rate) - mean_is_lower_by) for rate in rates)


def says(name: str, tonight: Sequence[DrawnRun], first: Sequence[DrawnRun], published: float | None = None) -> bool:
    return BY_NAME[name].alarm(Seen(tuple(first), tuple(tonight), published))


@pytest.mark.parametrize(("rate", "alarm"), [(94.9, True), (95.1, False)])
def test_five_percent_is_under_the_recorded_median_or_the_published_figure(rate: float, alarm: bool) -> None:
    first = runs(*[100.0] * 4, 500.0, 1.0, 100.0)
    assert says("-5% of own reference", runs(rate), first) is alarm
    assert says("-5% of published (other stack)", runs(rate), runs(1.0), math.log(100)) is alarm


def test_nothing_published_is_no_alarm() -> None:
    assert not says("-5% of published (other stack)", runs(1.0), runs(100.0))


@pytest.mark.parametrize(("rate", "alarm"), [(97.9, True), (98.1, False)])
def test_the_median_of_seven_forgives_three_bad_runs(rate: float, alarm: bool) -> None:
    tonight = runs(rate, rate, rate, rate, 1.0 if not alarm else 100.0, 100.0, 100.0)
    assert says("median of 7, -2%", tonight, runs(*[100.0] * 7)) is alarm


@pytest.mark.parametrize(("seconds", "alarm"), [(1.051, True), (1.049, False)])
def test_pytest_benchmark_holds_mean_seconds_against_one_saved_run(seconds: float, alarm: bool) -> None:
    first = runs(100.0, 500.0, 500.0)
    assert says("pytest-benchmark mean:5%", runs(100.0 / seconds), first) is alarm
    assert says("pytest-benchmark mean:5%", runs(100.0, mean_is_lower_by=math.log(seconds)), first) is alarm


def test_the_rank_test_needs_every_run_but_two_to_be_slower() -> None:
    first = runs(100, 101, 102, 103, 104)
    assert says("Mann-Whitney 5v5", runs(95, 96, 97, 98, 99), first)
    assert not says("Mann-Whitney 5v5", runs(95, 96, 97, 101.5, 103.5), first)
    assert not says("Mann-Whitney 5v5", runs(105, 106, 107, 108, 109), first)


def test_the_rank_test_is_exact() -> None:
    # Tables: U = 0 and U = 2 of 5 and 5.
    assert mann_whitney_p([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert mann_whitney_p([1, 2, 3, 4, 7.5], [6, 7, 8, 9, 10]) == pytest.approx(0.0317, abs=1e-4)
    assert mann_whitney_p([1, 1, 1], [1, 1, 1]) == 1.0


def noisy(*levels: tuple[float, int]) -> list[float]:
    """Seconds about the levels, each so many nights, with a spread of 0.5%."""
    generator = np.random.default_rng(5)
    return [level * math.exp(generator.normal(0, 0.005)) for level, nights in levels for _ in range(nights)]


def test_asv_reports_a_step_beyond_its_threshold_where_it_is() -> None:
    assert asv_regressions(noisy((1.0, 30), (1.1, 10))) == (29,)
    assert asv_regressions(noisy((1.0, 30), (1.03, 10))) == ()
    assert asv_regressions(noisy((1.1, 30), (1.0, 10))) == ()
    assert asv_regressions([1.0]) == ()


def test_asv_forgets_one_fast_night_between_equal_levels() -> None:
    assert asv_regressions(noisy((1.0, 15), (0.8, 1), (1.0, 15))) == ()
    assert asv_regressions(noisy((1.0, 15), (0.8, 4), (1.0, 15))) == (18,)


def test_asv_names_the_first_slower_night_of_log_rates() -> None:
    log_rates = [-math.log(seconds) for seconds in noisy((1.0, 30), (1.1, 10))]
    assert asv_steps([log_rates, log_rates[:20]]) == [frozenset({30}), frozenset()]


def test_otavas_steps_are_those_towards_slower() -> None:
    asked: list[Sequence[Sequence[float]]] = []

    def detect(series: Sequence[Sequence[float]]) -> tuple[tuple[ChangePoint, ...], ...]:
        asked.append(series)
        return ((ChangePoint(3, 100.0, 90.0, 1e-9), ChangePoint(5, 90.0, 100.0, 1e-9)), ())

    assert otava_steps(detect, [[0.0, math.log(2)], [0.0]]) == [frozenset({3}), frozenset()]
    assert [[pytest.approx(value) for value in each] for each in asked[0]] == [[1.0, 2.0], [1.0]]
