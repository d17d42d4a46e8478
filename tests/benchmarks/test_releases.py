"""The table of releases: what it says of runs that are given, and in which order the builds run."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import releases
from benchmarks.releases import Speed, table_of, turned

CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"


def test_that_a_difference_is_between_runs_of_one_round() -> None:
    # Both become a third slower from the first to the last round; the older one is 10% slower in each.
    old, new = Speed("old", (9.0, 7.2, 6.3)), Speed("new", (10.0, 8.0, 7.0))
    assert old.beside(new) == pytest.approx((-0.1, -0.1, -0.1))


def test_the_interval_against_students_t() -> None:
    # Log ratios of -0.01, 0 and 0.01: the standard error is 0.01/sqrt(3), the quantile for 2 degrees of freedom 4.303.
    old = Speed("old", tuple(5.0 * math.exp(each) for each in (-0.01, 0.0, 0.01)))
    point, low, high = old.beside(Speed("new", (5.0, 5.0, 5.0)))
    half = 4.3027 * 0.01 / math.sqrt(3)
    assert (point, low, high) == pytest.approx((0.0, math.expm1(-half), math.expm1(half)), abs=1e-6)


def test_the_table_of_releases() -> None:
    speeds = [Speed("a==1", (4.5, 4.5)), Speed("a==2", (), "NOT_RUN: no such wheel"), Speed("a==3", (5.0, 5.0))]
    assert table_of(speeds, CASE) == [
        "| release | images/s | runs | against the newest (95%) |",
        "| --- | ---: | ---: | --- |",
        "| a==1 | 4.5 | 2 | -10.0% (-10.0% to -10.0%) |",
        "| a==2 | - | 0 | NOT_RUN: no such wheel |",
        "| a==3 | 5 | 2 | - |",
    ]


def test_that_each_build_takes_another_place_every_round() -> None:
    builds = ("a", "b", "c")
    assert [tuple(turned(builds, number)) for number in (1, 2, 3, 4)] == [
        ("b", "c", "a"),
        ("b", "a", "c"),
        ("a", "b", "c"),
        ("a", "c", "b"),
    ]


def test_a_measurement_has_a_session_to_go_on_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(releases, "series_of_releases", lambda *_: SimpleNamespace(builds=("a==1",)))
    monkeypatch.setattr(releases.Rounds, "_run", lambda *_: None)
    assert releases.main(["--runs-dir", str(tmp_path)]) == 0
    assert re.search(r"1 releases, 6 rounds, session releases-\d+-\d+-\w+ ", capsys.readouterr().err)
