"""The verdicts on real training: a slowdown in the trainer is found through pytest, launcher, pairs and history."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.real_training import Night, Nights, judged_right, nights
from helpers.history import default_url, open_history

NIGHT = Night("same", "PASS", 1, 0, 20.0, "no drop")


@pytest.mark.parametrize(
    ("kind", "status", "right"),
    [
        ("same", "PASS", True),
        ("same", "REGRESSION", False),
        ("same", "INCONCLUSIVE", True),
        ("same", "IMPROVEMENT", False),
        ("same", "INVALID", False),
        ("5% slower", "REGRESSION", True),
        ("5% slower", "PASS", False),
        ("5% slower", "INCONCLUSIVE", False),
    ],
)
def test_a_night_of_the_same_build_raises_no_alarm_and_one_of_a_slower_build_does(
    kind: str, status: str, right: bool
) -> None:
    assert judged_right(replace(NIGHT, kind=kind, status=status)) is right


@pytest.mark.training
@pytest.mark.usefixtures("small_images")
def test_a_slowdown_in_the_trainer_is_a_confirmed_regression(tmp_path: Path) -> None:
    # 25%: what a busy machine of 2 cores shows in a few pairs; 5% takes a quiet one (benchmarks.real_training).
    (night,) = nights(Nights(tmp_path), quiet=0, slowed=1, slowdown=0.25)
    assert night.status == "REGRESSION", night.reason
    assert night.effect is not None and -0.35 < night.effect < -0.08
    assert night.pairs >= 2
    with open_history(default_url(tmp_path / "runs")) as history:
        stored = history.results_of(case_id="paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-dynamic")
    confirmed = [each.result for each in stored if each.result.stage == "confirm"]
    slowed = {run.role: "test_slowdown" in run.facts for run in confirmed}
    assert slowed == {"candidate": True, "reference": False}
