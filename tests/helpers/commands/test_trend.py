"""``perfgate trend`` and ``perfgate acknowledge`` over a real history in a file."""

from __future__ import annotations

import io
import json
import math
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.commands.trend
from helpers.commands.main import main
from helpers.commands.trend import next_command, render_trends, trends_record
from helpers.history import default_url, open_history
from helpers.history.stored import Acknowledgement
from helpers.history.trend import (
    ChangePoint,
    LevelStep,
    Point,
    Sensitivity,
    Series,
    SeriesKind,
    SlowDrift,
    Trend,
    TrendError,
)
from tests.helpers.history.made import BUILD, CASE, OTHER, moment, night, run

GOOD, BAD = "a" * 40, "b" * 40
STEP_AT = 12
Ask = Callable[..., tuple[int, str]]
OLD, NEW = "a" * 40, "b" * 40
POINTS = tuple(
    Point(
        f"2026-09-{number + 1:02}T02:00:00+00:00", f"2026-09-{number + 1:02}", f"s{number}", 100.0, "paddle 3.3.1", OLD
    )
    for number in range(9)
)
SERIES = Series("paddle-x", "cpu", "h", SeriesKind.NIGHTS, POINTS)
STEP = LevelStep(6, -0.0213, 2e-9, POINTS[5], replace(POINTS[6], commit=NEW))
KNOWN = Acknowledgement("*", "", "", "abcd1234", "safer kernels", "me", "2026-09-20T00:00:00+00:00")
DRIFT = SlowDrift(-0.034, -0.04, -0.028, 9, 0)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a history: 20 nights of two cases, the first 2% slower from night 12 on."""
    folder, chance = tmp_path_factory.mktemp("runs"), random.Random(1)
    with open_history(default_url(folder)) as history:
        for number in range(20):
            for case_id, drop in ((CASE, -0.02), (OTHER, 0.0)):
                rate = 4.5 + chance.gauss(0, 0.001) + (drop if number >= STEP_AT else 0.0)
                build = {**BUILD, "commit": BAD if number >= STEP_AT else GOOD}
                one = run(
                    f"{case_id}{number}", rate, f"s{number}", case_id=case_id, build=build, created=moment(number)
                )
                history.add_result(one)
                told = night(number, rate, case_id=case_id, session=f"s{number}", build=build, run_uuids=(one.uuid,))
                history.add_night(told)
    return folder


@pytest.fixture
def runs_folder(written: Path, tmp_path: Path) -> Path:
    """A copy of its own for each test: writing forty durable nights takes seconds."""
    return Path(shutil.copytree(written, tmp_path / "runs"))


@pytest.fixture
def ask(runs_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Calls perfgate with that history; a step at night 12 of the first case stands where Otava stands."""

    def detect(several: Sequence[Sequence[float]], sensitivity: Sensitivity) -> tuple[tuple[ChangePoint, ...], ...]:
        dropped = [series[-1] < 0.99 * series[0] for series in several]
        return tuple((ChangePoint(STEP_AT, 0.0, 0.0, 1e-9),) if each else () for each in dropped)

    monkeypatch.setattr(helpers.commands.trend, "change_points", detect)

    def call(*argv: str) -> tuple[int, str]:
        out = io.StringIO()
        return main([argv[0], "--runs-dir", str(runs_folder), *argv[1:]], out), out.getvalue()

    return call


def acknowledge(ask: Ask, at: str = "2024-01-13", case: str = CASE, commit: str = "abcd1234") -> tuple[int, str]:
    return ask("acknowledge", case, "--at", at, "--commit", commit, "--reason", "safer kernels", "--who", "me")


def test_the_trend_of_every_case_ends_with_0_whatever_is_found(ask: Ask) -> None:
    status, text = ask("trend")
    told = " ".join(text.split())
    assert status == 0
    assert f"{CASE} [cpu]: nightly medians, 20 nights from 2024-01-01 to 2024-01-20" in told
    assert f"{OTHER} [cpu]" in told
    assert "steps: 1, open: 1" in told
    assert f"git bisect start {BAD[:12]} {GOOD[:12]}" in told


def test_a_case_or_a_pattern_chooses_and_the_last_nights_cut(ask: Ask) -> None:
    assert CASE not in ask("trend", "paddle-resnet50*", "--last", "9")[1]
    assert "9 nights from 2024-01-12" in ask("trend", OTHER, "--last", "9")[1]


def test_the_record_goes_into_a_file_beside_the_text(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "trend.json"
    status, told = ask("trend", CASE, "--json", str(path))
    (trend,) = json.loads(path.read_text(encoding="utf-8"))["trends"]
    assert (status, trend["case_id"]) == (0, CASE)
    assert trend["steps"][0]["open"] is True
    assert trend["steps"][0]["effect"] == pytest.approx(-0.02, abs=0.003)
    assert "OPEN" in told


@pytest.mark.parametrize("words", [("--json", "-"), ("--json",)])
def test_without_a_file_the_record_is_printed_instead_of_the_text(ask: Ask, words: tuple[str, ...]) -> None:
    status, told = ask("trend", CASE, *words)
    assert (status, json.loads(told)["trends"][0]["case_id"]) == (0, CASE)


def test_a_case_that_the_history_does_not_know_is_status_4(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("trend", "paddle-x") == (4, "")
    assert "paddle-x" in capsys.readouterr().err


def test_an_excluded_night_is_left_out(ask: Ask, runs_folder: Path) -> None:
    with open_history(default_url(runs_folder)) as history:
        history.exclude(f"{CASE}3", "me", moment(30), "the door was open")
    assert "19 nights" in ask("trend", CASE)[1]


def test_without_otava_the_status_is_6_with_the_command_that_installs_it(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: object, **__: object) -> None:
        raise TrendError("Apache Otava", remedy="Call: make env")

    monkeypatch.setattr(helpers.commands.trend, "change_points", absent)
    assert ask("trend") == (6, "")
    assert "make env" in capsys.readouterr().err


@pytest.mark.slow
def test_the_real_otava_finds_the_night(runs_folder: Path) -> None:
    out = io.StringIO()
    assert main(["trend", "--runs-dir", str(runs_folder)], out) == 0
    told = " ".join(out.getvalue().split())
    assert "between 2024-01-12 (paddle 3.3.1 @aaaaaaaaaaaa) and 2024-01-13 (paddle 3.3.1 @bbbbbbbbbbbb): OPEN" in told
    assert "series: 2; steps: 1, open: 1; drifts: 0" in told


# --- acknowledge


@pytest.mark.parametrize("at", ["2024-01-13", BAD[:8], "2024-01-12"])
def test_an_acknowledged_step_is_shown_as_known_and_stays(ask: Ask, at: str) -> None:
    status, told = acknowledge(ask, at)
    day = "2024-01-12" if at == "2024-01-12" else "2024-01-13"
    assert (status, told) == (0, f"acknowledged by me: the step of {CASE} at {day}, abcd1234: safer kernels\n")
    found = " ".join(ask("trend")[1].split())
    assert "acknowledged by me on" in found
    assert "abcd1234: safer kernels" in found
    assert "steps: 1, open: 0" in found


def test_a_session_is_its_night_alone_and_not_the_day(runs_folder: Path, ask: Ask) -> None:
    later = f"{moment(STEP_AT)[:10]}T23:59:59+00:00"
    with open_history(default_url(runs_folder)) as history:
        history.add_night(replace(night(STEP_AT, 4.5, session="again"), created=later))
    status, told = acknowledge(ask, f"s{STEP_AT}")
    assert (status, told.split(", ")[0]) == (
        0, f"acknowledged by me: the step of {CASE} at {moment(STEP_AT)}"
    )  # fmt: skip
    with open_history(default_url(runs_folder)) as history:
        (known,) = history.acknowledgements()
    assert known.covers(CASE, moment(STEP_AT)[:10], moment(STEP_AT))
    assert not known.covers(CASE, later[:10], later)
    assert "steps: 1, open: 0" in " ".join(ask("trend")[1].split())


def test_another_night_or_case_leaves_the_step_open(ask: Ask) -> None:
    acknowledge(ask, "2024-01-05")
    acknowledge(ask, GOOD[:8])
    acknowledge(ask, "2024-01-13", OTHER)
    assert "open: 1" in ask("trend")[1]


def test_a_pattern_acknowledges_several_cases_at_once(ask: Ask) -> None:
    assert "the step of 2 cases at 2024-01-13" in acknowledge(ask, "2024-01-13", "paddle-*")[1]
    assert "open: 0" in ask("trend")[1]


def undo(ask: Ask, at: str, case: str = CASE) -> tuple[int, str]:
    return ask("acknowledge", case, "--at", at, "--undo", "--reason", "the driver did it", "--who", "you")


@pytest.mark.parametrize("at", ["2024-01-13", f"s{STEP_AT}", BAD[:8]])
def test_an_acknowledgement_is_taken_back_by_any_name_of_its_night_and_stays_listed(ask: Ask, at: str) -> None:
    acknowledge(ask, "2024-01-13")
    acknowledge(ask, "2024-01-16")
    status, told = undo(ask, at)
    assert status == 0 and told.startswith(f"taken back by you: {CASE} at 2024-01-13, abcd1234: safer kernels (me, ")
    assert told.endswith(": the driver did it\n")
    assert "open: 1" in ask("trend", CASE)[1]
    listed = ask("acknowledge", "--list")[1].splitlines()
    assert listed[0].startswith(f"{CASE} at 2024-01-13, abcd1234: safer kernels (me, ")
    assert "; taken back: the driver did it (you, " in listed[0]
    assert "taken back" not in listed[1]
    assert listed[2] == "1 acknowledged, 2 with those taken back"
    shown = " ".join(ask("history", CASE)[1].split())
    assert "acknowledged by me: abcd1234, safer kernels; taken back by you on" in shown


def test_the_acknowledgement_of_these_nights_alone_is_taken_back_and_what_still_holds_is_said(ask: Ask) -> None:
    acknowledge(ask, "2024-01-13")
    acknowledge(ask, f"s{STEP_AT}")
    status, told = undo(ask, f"s{STEP_AT}")
    back, left = told.splitlines()
    assert status == 0 and back.startswith(f"taken back by you: {CASE} at {moment(STEP_AT)}, ")
    assert left.startswith(f"still acknowledged: {CASE} at 2024-01-13, ")


def test_several_acknowledgements_that_cover_a_night_are_listed_and_one_is_asked_for(
    ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    for commit in ("abcd1234", "beef1234"):
        acknowledge(ask, "2024-01-13", "paddle-*", commit)
    assert undo(ask, f"s{STEP_AT}", "paddle-*") == (4, "")
    said = capsys.readouterr().err
    assert "which 2 acknowledgements of more nights cover" in said and said.count("safer kernels (me, ") == 2
    assert ask("acknowledge", "--list")[1].endswith("2 acknowledged, 2 with those taken back\n")


def test_the_sheet_of_a_case_tells_what_was_acknowledged_and_taken_back(ask: Ask) -> None:
    acknowledge(ask, "2024-01-13", "paddle-*")
    undo(ask, "2024-01-13", "paddle-*")
    sheet = " ".join(ask("show", "paddle-vgg16-fp32-bs1-1x1-dali-dynamic")[1].split())
    assert "acknowledged: paddle-* at 2024-01-13, abcd1234: safer kernels (me, " in sheet
    assert "; taken back: the driver did it (you, " in sheet


def test_what_was_acknowledged_for_other_cases_or_nights_is_not_taken_back(
    ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    acknowledge(ask, "2024-01-13", "paddle-*")
    assert undo(ask, "2024-01-13") == (4, "")
    assert undo(ask, "2024-01-12", "paddle-*") == (4, "")
    assert "perfgate acknowledge --list shows it" in capsys.readouterr().err
    assert "open: 0" in ask("trend")[1]


@pytest.mark.parametrize(
    ("case", "at", "told"),
    [
        ("paddle-x", "2024-01-13", "a case that the history holds"),
        (CASE, "2024-02-13", "Nearest: 2024-01-18, 2024-01-19, 2024-01-20"),
        (CASE, "2024-13-13", "a day of the calendar"),
        (CASE, "cccc", "a commit that a night of the case measured"),
        (CASE, "aa", "4 or more digits of a commit"),
        (CASE, "yesterday", "a session that measured the case"),
    ],
)
def test_what_no_night_has_is_refused_and_nothing_is_stored(
    ask: Ask, runs_folder: Path, capsys: pytest.CaptureFixture[str], case: str, at: str, told: str
) -> None:
    assert acknowledge(ask, at, case) == (4, "")
    assert told in capsys.readouterr().err
    with open_history(default_url(runs_folder)) as history:
        assert history.acknowledgements() == ()


@pytest.mark.parametrize(
    ("option", "value"),
    [("--commit", "xyz"), ("--commit", "abc"), ("--commit", None), ("--reason", " "), ("--at", None)],
)
def test_a_wrong_command_line_is_status_4(ask: Ask, option: str, value: str | None) -> None:
    given = {"--at": "2024-01-13", "--commit": "abcd1234", "--reason": "why", option: value}
    argv = [word for name, text in given.items() if text is not None for word in (name, text)]
    try:
        status = ask("acknowledge", CASE, *argv)[0]
    except SystemExit as ended:
        status = int(str(ended.code))
    assert status == 4


def test_a_commits_first_night_is_meant_on_every_target(runs_folder: Path, ask: Ask) -> None:
    with open_history(default_url(runs_folder)) as history:
        late = replace(night(18, math.log(90), session="v18", build={**BUILD, "commit": BAD}), target="v100")
        history.add_night(late)
    assert "at 2024-01-13 to 2024-01-19" in acknowledge(ask, BAD[:4])[1]


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
    assert "a slope fits these nights better than steps" in told
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
