"""Steps by Apache Otava, whose silence is an error and never no step; slow drift, with what it adds up to."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.history.trend import (
    Point,
    Sensitivity,
    Series,
    SeriesKind,
    TrendError,
    change_points,
    find_drift,
    find_trends,
    pieces,
    slope_within,
)
from tests.for_each import for_each

FLAT = [100.0] * 8


def noisy(level: list[float], seed: int = 1, sigma: float = 0.003) -> list[float]:
    chance = random.Random(seed)
    return [100 * value * math.exp(chance.gauss(0, sigma)) for value in level]


def point(index: int, p: float = 0.0) -> SimpleNamespace:
    return SimpleNamespace(index=index, stats=SimpleNamespace(mean_1=2.0, mean_2=1.0, pvalue=p))


def answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any]) -> None:
    """Otava answers every series as ``answer`` does."""
    # Here, because each worker imports this file, and most run none of its tests: with scipy.stats it takes a second.
    import otava.analysis

    monkeypatch.setattr(otava.analysis, "compute_change_points", lambda *_, **__: answer())


def test_nothing_to_look_at_has_no_change_points() -> None:
    assert change_points([]) == ()


def test_without_otava_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "otava.analysis", None)
    with pytest.raises(TrendError, match="make env"):
        change_points([FLAT])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_what_is_no_rate_is_refused(value: float) -> None:
    with pytest.raises(TrendError, match="series 1"):
        change_points([FLAT, [1.0, value]])


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: None, "TypeError"),
        (lambda: ([SimpleNamespace(index=3)], None), "AttributeError"),
        (lambda: ([point(8)], None), "outside its series"),
        (lambda: ([point(0)], None), "outside its series"),
        (lambda: ([point(3, p=math.nan)], None), "no number"),
    ],
)
def test_no_answer_is_an_error_and_never_no_step(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any], told: str
) -> None:
    answering(monkeypatch, answer)
    with pytest.raises(TrendError, match=told):
        change_points([FLAT])


def test_otava_is_imported_by_the_first_series_and_not_with_the_suite() -> None:
    code = (
        "import sys, helpers.commands.main, helpers.commands.trend; "
        "helpers.history.trend.change_points([]); assert not {'otava', 'scipy.stats'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_otava_finds_a_step_where_it_is_and_nothing_in_noise() -> None:
    step, flat = noisy([1.0] * 40 + [0.98] * 20, 1), noisy([1.0] * 60, 2)
    found = change_points([step, flat, FLAT, [1.0], []])
    assert [len(each) for each in found] == [1, 0, 0, 0, 0]
    (point,) = found[0]
    assert abs(point.index - 40) <= 1
    assert point.after / point.before - 1 == pytest.approx(-0.02, abs=0.003)
    assert point.p < 1e-6


def test_otava_finds_no_step_below_the_magnitude() -> None:
    step = noisy([1.0] * 40 + [0.996] * 40, 3, sigma=0.0005)
    assert change_points([step]) == ((),)
    assert len(change_points([step], Sensitivity(min_magnitude=0.001))[0]) == 1


def test_pieces_without_any_spread_are_a_step() -> None:
    (found,) = change_points([[1.0] * 10 + [2.0] * 10])
    assert [(point.index, point.p) for point in found] == [(10, 0.0)]


@pytest.mark.parametrize("slope", [-0.001, 0.001])
def test_a_slope_is_a_drift_and_its_steps_are_not_open(slope: float) -> None:
    values = noisy([(1 + slope) ** night for night in range(60)], 4)
    points = tuple(
        Point(f"2026-09-01T00:00:{number:02}+00:00", "2026-09-01", f"s{number}", v) for number, v in enumerate(values)
    )
    series = Series("c", "cpu", "h", SeriesKind.NIGHTS, points)
    (trend,) = find_trends([series], [], change_points)
    assert trend.drift is not None
    assert trend.drift.effect == pytest.approx((1 + slope) ** 59 - 1, abs=0.008)
    assert all(step.part_of_drift for step in trend.steps)


# ---- slow drift

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


@for_each("seed", range(20))
def test_a_step_is_no_drift(seed: int) -> None:
    assert find_drift(noisy(STEP, seed=seed), [40], 0, 0.005) is None


@for_each("seed", range(20))
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
