"""Nights of limited time, of the real suite with a stand-in for the trainer: docs/night-plan.md says what they do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.conftest import change
from tests.docs.stand_in import checkout, played

NIGHTS = [f"2026112{day}-020000-{day}{day}{day}{day}" for day in range(4)]
# Nobody knows how long a stand-in's run takes, so each counts as 5 minutes, and a case has two runs.
BUDGET = "budgets: {night_minutes: 23, every_nights: 4}"


@pytest.mark.slow
def test_what_the_plan_leaves_for_another_night_is_named_and_measured_if_time_is_left(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    change(folder / "perf.yaml", BUDGET)
    made = [
        ["perf_tests", f"--runs-dir={folder / 'runs'}", f"--session={name}", f"--results={folder / name}.json"]
        for name in NIGHTS
    ]
    ended = played(folder, made)
    assert [code for code, _ in ended] == [0] * 4, ended[0][1]
    for name, (_, printed) in zip(NIGHTS, ended, strict=True):
        found = json.loads((folder / f"{name}.json").read_text())
        why = {each["case_id"]: each["why"] for each in found["night_plan"]["cases"]}
        later = {each for each, reason in why.items() if reason == "time was left"}
        # The stand-in takes no time, so nothing waits in the end.
        assert {each["case_id"] for each in found["cases"]} == why.keys()
        assert (len(why), len(later)) == (4, 2)
        # Each is named in the header, and no longer at the end.
        assert all(printed.count(f"not tonight: {each} [cpu]: ") == 1 for each in later)
