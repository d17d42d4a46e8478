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
from helpers.history import default_url, open_history
from helpers.history.change_points import ChangePoint, Sensitivity, TrendError
from tests.helpers.history.made import BUILD, CASE, OTHER, moment, night, run

GOOD, BAD = "a" * 40, "b" * 40
STEP_AT = 12
Ask = Callable[..., tuple[int, str]]


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


def acknowledge(ask: Ask, at: str = "2024-01-13", case: str = CASE) -> tuple[int, str]:
    return ask("acknowledge", case, "--at", at, "--commit", "abcd1234", "--reason", "safer kernels", "--who", "me")


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


def test_another_night_or_case_leaves_the_step_open(ask: Ask) -> None:
    acknowledge(ask, "2024-01-05")
    acknowledge(ask, GOOD[:8])
    acknowledge(ask, "2024-01-13", OTHER)
    assert "open: 1" in ask("trend")[1]


def test_a_pattern_acknowledges_several_cases_at_once(ask: Ask) -> None:
    assert "the step of 2 cases at 2024-01-13" in acknowledge(ask, "2024-01-13", "paddle-*")[1]
    assert "open: 0" in ask("trend")[1]


@pytest.mark.parametrize(
    ("case", "at", "told"),
    [
        ("paddle-x", "2024-01-13", "a case that the history holds"),
        (CASE, "2024-02-13", "Nearest: 2024-01-18, 2024-01-19, 2024-01-20"),
        (CASE, "2024-13-13", "a day of the calendar"),
        (CASE, "cccc", "a commit that a night of the case measured"),
        (CASE, "aa", "4 or more digits of a commit"),
        (CASE, "yesterday", "a day"),
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
    ("option", "value"), [("--commit", "xyz"), ("--commit", "abc"), ("--reason", " "), ("--at", None)]
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
