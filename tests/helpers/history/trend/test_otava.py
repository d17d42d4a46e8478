"""What Apache Otava finds, and that whatever keeps it from answering is an error and never no step."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import otava.analysis
import pytest

from helpers.history.trend.otava import Sensitivity, TrendError, change_points
from helpers.history.trend.series import Kind, Point, Series
from helpers.history.trend.trends import find_trends

FLAT = [100.0] * 8


def noisy(level: list[float], seed: int, sigma: float = 0.003) -> list[float]:
    chance = random.Random(seed)
    return [100 * value * math.exp(chance.gauss(0, sigma)) for value in level]


def point(index: int, p: float = 0.0) -> SimpleNamespace:
    return SimpleNamespace(index=index, stats=SimpleNamespace(mean_1=2.0, mean_2=1.0, pvalue=p))


def answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any]) -> None:
    """Otava answers every series as ``answer`` does."""
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
        "helpers.history.trend.otava.change_points([]); assert not {'otava', 'scipy.stats'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])


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
    points = tuple(Point(f"2026-09-01T00:00:{number:02}+00:00", f"s{number}", v) for number, v in enumerate(values))
    series = Series("c", "cpu", "h", Kind.NIGHTS, points)
    (trend,) = find_trends([series], [], change_points)
    assert trend.drift is not None
    assert trend.drift.effect == pytest.approx((1 + slope) ** 59 - 1, abs=0.008)
    assert all(step.part_of_drift for step in trend.steps)
