"""The trend in words: steps with their nights, sizes and what to do, drift with its interval, and the record."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from helpers.commands.trend import next_command, render_trends, trends_record
from helpers.history.change_points import Sensitivity, SlowDrift
from helpers.history.stored import Acknowledgement
from helpers.history.trend import LevelStep, Point, Series, SeriesKind, Trend

OLD, NEW = "a" * 40, "b" * 40
POINTS = tuple(
    Point(f"2026-09-{number + 1:02}T02:00:00+00:00", f"s{number}", 100.0, "paddle 3.3.1", OLD) for number in range(9)
)
SERIES = Series("paddle-x", "cpu", "h", SeriesKind.NIGHTS, POINTS)
STEP = LevelStep(6, -0.0213, 2e-9, POINTS[5], replace(POINTS[6], commit=NEW))
KNOWN = Acknowledgement("*", "", "", "abcd1234", "safer kernels", "me", "2026-09-20T00:00:00+00:00")
DRIFT = SlowDrift(-0.034, -0.04, -0.028, 9, 0)


def text(*trends: Trend, width: int = 300) -> str:
    return render_trends(trends, Sensitivity(), width)


def test_an_open_step_is_told_with_its_nights_its_size_and_the_next_command() -> None:
    assert text(Trend(SERIES, (STEP,))).splitlines() == [
        "paddle-x [cpu]: nightly medians, 9 nights from 2026-09-01 to 2026-09-09",
        "    step -2.13% (p 2e-09) between 2026-09-06 (paddle 3.3.1) and 2026-09-07 (paddle 3.3.1): OPEN",
        f"        next: git bisect start {NEW[:12]} {OLD[:12]} (in the framework's sources), each build judged by "
        f'.venv/bin/python -m pytest perf_tests -k "paddle-x" --reference-env GOOD (GOOD: an environment with '
        f"{OLD[:12]})",
        "",
        "series: 1; steps: 1, open: 1; drifts: 0; never a gate. A step that is known: .venv/bin/perfgate acknowledge "
        "CASE --at NIGHT --commit HASH --reason TEXT",
    ]


def test_a_known_step_says_who_knows_it_and_asks_for_nothing() -> None:
    told = text(Trend(SERIES, (replace(STEP, known=KNOWN),)))
    assert "acknowledged by me on 2026-09-20, abcd1234: safer kernels" in told
    assert "next:" not in told
    assert told.endswith("series: 1; steps: 1, open: 0; drifts: 0; never a gate")


def test_an_open_rise_is_not_bisected() -> None:
    told = text(Trend(SERIES, (replace(STEP, effect=0.02),)))
    assert "step +2.00%" in told
    assert "OPEN" in told
    assert "next:" not in told


def test_a_step_of_a_slope_is_told_as_part_of_it() -> None:
    drift = replace(DRIFT, explains_steps=True)
    told = text(Trend(SERIES, (replace(STEP, part_of_drift=True),), drift))
    assert "part of the drift" in told
    assert "a slope tells these nights better than steps" in told
    assert told.endswith("series: 1; steps: 0, open: 0; drifts: 1; never a gate")


@pytest.mark.parametrize(
    ("kind", "against"), [(SeriesKind.NIGHTS, ""), (SeriesKind.PAIRS, " against the pinned build")]
)
def test_a_drift_is_told_with_its_interval_and_since_when(kind: SeriesKind, against: str) -> None:
    told = text(Trend(replace(SERIES, kind=kind), (), replace(DRIFT, first=2, nights=7)))
    wanted = "drift -3.40% (95%: -4.00% to -2.80%) in 7 nights since 2026-09-03, -0.575% a night"
    assert f"{wanted}{against}: beside the steps, if any" in told


def test_nothing_found_says_what_would_have_been() -> None:
    assert "no step and no drift of 0.5% or more" in text(Trend(SERIES))


@pytest.mark.parametrize(("nights", "told"), [(0, "0 nights\n"), (1, "1 night from 2026-09-01"), (4, "4 nights from")])
def test_too_few_nights_are_told_and_are_not_no_step(nights: int, told: str) -> None:
    found = text(Trend(replace(SERIES, points=POINTS[:nights])))
    assert told in found
    assert "too few nights to find a step in: 5 are needed" in found
    assert "no step" not in found


def test_an_empty_history_is_a_sentence() -> None:
    assert text() == "The history has no nights that a trend could be found in"


def test_the_same_build_on_both_nights_is_no_reason_to_bisect() -> None:
    command = next_command(SERIES, replace(STEP, after=POINTS[6]))
    assert command == ".venv/bin/perfgate compare session:s5 session:s6 (the build is the same: look at the machine)"


def test_builds_without_a_commit_are_held_against_each_other() -> None:
    before, after = (replace(POINTS[5], commit="", build=f"paddle 3.3.{number}") for number in (0, 1))
    command = next_command(SERIES, replace(STEP, before=before, after=after))
    assert command.startswith('.venv/bin/python -m pytest perf_tests -k "paddle-x" --reference-env GOOD')
    assert "an environment with paddle 3.3.0" in command


def test_no_line_is_wider_than_asked_and_a_reason_cannot_forge_one() -> None:
    known = replace(KNOWN, reason="a\nforged\x1b[31m row")
    told = text(Trend(SERIES, (STEP, replace(STEP, known=known)), DRIFT), width=80)
    assert max(map(len, told.splitlines())) <= 80
    assert not any(line.startswith("forged") for line in told.splitlines())
    assert "\x1b" not in told


def test_the_record_is_json_with_everything_in_it() -> None:
    trends = (Trend(SERIES, (STEP, replace(STEP, known=KNOWN)), DRIFT), Trend(replace(SERIES, points=())))
    record = json.loads(json.dumps(trends_record(trends, Sensitivity()), allow_nan=False))
    first, second = record["trends"]
    assert (record["schema_version"], record["sensitivity"]["window"]) == (1, 50)
    assert [step["open"] for step in first["steps"]] == [True, False]
    assert first["steps"][0]["after"]["commit"] == NEW
    assert first["steps"][1]["known"]["reason"] == "safer kernels"
    assert first["drift"]["effect"] == -0.034
    assert (first["kind"], first["case_id"], len(first["points"])) == ("nightly medians", "paddle-x", 9)
    assert (second["too_short"], second["drift"]) == (True, None)
