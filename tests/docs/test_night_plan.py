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
def test_every_case_is_measured_within_its_nights_and_the_others_are_named(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    change(folder / "perf.yaml", BUDGET)
    made = [
        ["perf_tests", f"--runs-dir={folder / 'runs'}", f"--session={name}", f"--results={folder / name}.json"]
        for name in NIGHTS
    ]
    ended = played(folder, made)
    assert [code for code, _ in ended] == [0] * 4, ended[0][1]
    measured = []
    for name, (_, printed) in zip(NIGHTS, ended, strict=True):
        found = json.loads((folder / f"{name}.json").read_text())
        tonight = {each["case_id"] for each in found["night_plan"]["cases"] if each["tonight"]}
        later = {each["case_id"] for each in found["night_plan"]["cases"] if not each["tonight"]}
        assert {each["case_id"] for each in found["cases"]} == tonight
        assert len(tonight) == len(later) == 2
        # Each is named in the header and at the end.
        assert all(printed.count(f"not tonight: {each} [cpu]: ") == 2 for each in later)
        measured.append(tonight)
    assert measured[0] | measured[1] == measured[2] | measured[3] and len(measured[0] | measured[1]) == 4
    assert not measured[0] & measured[1]
