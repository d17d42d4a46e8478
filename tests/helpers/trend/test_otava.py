"""Otava is asked in its own environment: what it finds, and every way in which it can fail to answer."""

from __future__ import annotations

import ast
import math
import random
from pathlib import Path

import pytest

from helpers.trend.otava import WORKER, ChangePoint, Sensitivity, TrendError, change_points
from helpers.trend.series import Kind, Point, Series
from helpers.trend.trends import find_trends
from tests.test_layers import imports_of, read_tree, within

FLAT = [100.0] * 8


def worker(folder: Path, script: str) -> Path:
    """A program that stands where Otava's Python stands."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def noisy(level: list[float], seed: int, sigma: float = 0.003) -> list[float]:
    chance = random.Random(seed)
    return [100 * value * math.exp(chance.gauss(0, sigma)) for value in level]


def test_the_answers_come_in_the_order_of_the_series(tmp_path: Path) -> None:
    answer = '{"change_points": [[], [{"index": 3, "before": 2.0, "after": 1.0, "p": 0.0}]]}'
    found = change_points([FLAT, FLAT], interpreter=worker(tmp_path, f"cat >/dev/null; echo '{answer}'"))
    assert found == ((), (ChangePoint(3, 2.0, 1.0, 0.0),))


def test_the_question_holds_every_series_and_the_sensitivity(tmp_path: Path) -> None:
    asked = tmp_path / "asked.json"
    program = worker(tmp_path, f'cat > {asked}; echo "$@" >> {asked}; echo \'{{"change_points": [[]]}}\'')
    change_points([[1.0, 2.0]], Sensitivity(window=30, max_p=0.01, min_magnitude=0.02), interpreter=program)
    text = asked.read_text(encoding="utf-8")
    assert text == f'{{"window": 30, "max_p": 0.01, "min_magnitude": 0.02, "series": [[1.0, 2.0]]}}-I {WORKER}\n'


def test_nothing_to_look_at_starts_nothing(tmp_path: Path) -> None:
    assert change_points([], interpreter=tmp_path / "absent") == ()


def test_without_its_environment_the_command_that_makes_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrendError, match="make env-trend"):
        change_points([FLAT], interpreter=tmp_path / "absent")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_what_is_no_rate_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(TrendError, match="series 1"):
        change_points([FLAT, [1.0, value]], interpreter=tmp_path / "absent")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'ModuleNotFoundError: no otava' >&2; exit 1", "ModuleNotFoundError: no otava"),
        ("cat >/dev/null; exit 3", "exit status 3"),
        ("cat >/dev/null; echo nothing", "JSONDecodeError"),
        ("cat >/dev/null; echo '{}'", "KeyError"),
        ("""cat >/dev/null; echo '{"change_points": []}'""", "ValueError"),
        ("""cat >/dev/null; echo '{"change_points": [[{"index": 3}]]}'""", "TypeError"),
        (
            """cat >/dev/null; echo '{"change_points": [[{"index": 8, "before": 1, "after": 1, "p": 0}]]}'""",
            "outside its series",
        ),
        (
            """cat >/dev/null; echo '{"change_points": [[{"index": 3, "before": 1, "after": 1, "p": NaN}]]}'""",
            "no number",
        ),
    ],
)
def test_no_answer_is_an_error_and_never_no_step(tmp_path: Path, script: str, told: str) -> None:
    with pytest.raises(TrendError, match=told) as caught:
        change_points([FLAT], interpreter=worker(tmp_path, script))
    assert "make env-trend" in str(caught.value)


def test_a_worker_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TrendError, match="timed out"):
        change_points([FLAT], interpreter=worker(tmp_path, "exec sleep 60"), timeout_seconds=0.2)


def test_only_the_worker_imports_otava_and_it_imports_nothing_of_the_house() -> None:
    tree = read_tree()
    importing = [
        path for path, text in tree.items() if any(within(name, ("otava",)) for _, name in imports_of(path, text))
    ]
    assert importing == ["helpers/trend/otava_worker.py"]
    text = tree[importing[0]]
    assert {name.split(".")[0] for _, name in imports_of(importing[0], text)} == {
        "__future__", "json", "otava", "sys", "typing", "warnings",
    }  # fmt: skip
    assert ast.parse(text, feature_version=(3, 10)).body


# --- the real Otava


def test_otava_finds_a_step_where_it_is_and_nothing_in_noise(otava: Path) -> None:
    step, flat = noisy([1.0] * 40 + [0.98] * 20, 1), noisy([1.0] * 60, 2)
    found = change_points([step, flat, FLAT, [1.0], []], interpreter=otava)
    assert [len(each) for each in found] == [1, 0, 0, 0, 0]
    (point,) = found[0]
    assert abs(point.index - 40) <= 1
    assert point.after / point.before - 1 == pytest.approx(-0.02, abs=0.003)
    assert point.p < 1e-6


def test_otava_finds_no_step_below_the_magnitude(otava: Path) -> None:
    step = noisy([1.0] * 40 + [0.996] * 40, 3, sigma=0.0005)
    assert change_points([step], interpreter=otava) == ((),)
    assert len(change_points([step], Sensitivity(min_magnitude=0.001), interpreter=otava)[0]) == 1


def test_pieces_without_any_spread_are_a_step(otava: Path) -> None:
    (found,) = change_points([[1.0] * 10 + [2.0] * 10], interpreter=otava)
    assert [(point.index, point.p) for point in found] == [(10, 0.0)]


@pytest.mark.parametrize("slope", [-0.001, 0.001])
def test_a_slope_is_a_drift_and_its_steps_are_not_open(otava: Path, slope: float) -> None:
    values = noisy([(1 + slope) ** night for night in range(60)], 4)
    points = tuple(Point(f"2026-09-01T00:00:{number:02}+00:00", f"s{number}", v) for number, v in enumerate(values))
    series = Series("c", "cpu", "h", Kind.NIGHTS, points)
    (trend,) = find_trends([series], [], lambda several: change_points(several, interpreter=otava))
    assert trend.drift is not None
    assert trend.drift.effect == pytest.approx((1 + slope) ** 59 - 1, abs=0.008)
    assert all(step.part_of_drift for step in trend.steps)
