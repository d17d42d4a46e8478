"""``perfgate plan``: what it shows of the coming nights, and of a night that is too short."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from helpers.commands.main import main
from helpers.trainers.contract import ROOT

pytestmark = pytest.mark.usefixtures("machine")

SHORT = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"


def planned(folder: Path, *options: str, gate: str = "", budget: str = "", explain: str = "") -> tuple[int, str]:
    text = (ROOT / "perf.yaml").read_text(encoding="utf-8").replace("  night_minutes: null\n", budget)
    if gate:
        text = text.replace(
            "machines: {}", f"machines: {{here: {{host: '*', gate: [{{cases: '{gate}', needs: recorded}}]}}}}"
        )
    (folder / "perf.yaml").write_text(f"{text}\n{explain}", encoding="utf-8")
    out = io.StringIO()
    own = [f"--config={folder / 'perf.yaml'}", f"--runs-dir={folder / 'runs'}"]
    code = main(["plan", *own, *options], out=out)
    assert not (folder / "runs").exists(), "it makes no history"
    return code, out.getvalue()


def test_without_a_budget_it_shows_the_night_as_configured(tmp_path: Path) -> None:
    code, text = planned(tmp_path)
    assert code == 0
    assert "the 4 cases that pytest runs here, tonight" in text
    assert "night plan: no limit (budgets.night_minutes): 4 cases, " in text
    (line,) = [line for line in text.splitlines() if line.startswith(SHORT)]
    assert "2 runs   10.0" in line and "never" in line
    assert "nothing recorded (--update-baselines), so it finds no drop" in line
    guess = "of 4 of 4 cases no run is known yet; 5.0 min a run is a guess (limits.start_up_seconds)"
    assert guess in " ".join(text.split())


def test_with_a_budget_it_says_what_is_measured_and_what_waits(tmp_path: Path) -> None:
    code, text = planned(tmp_path, "--nights", "3", budget="  night_minutes: 25\n")
    assert code == 0
    assert "night plan: 2 of 4 cases in 25 min: 20.0 min of runs; kept: 0.0 min to confirm suspects, 2.5 min" in text
    assert text.count("later: due in 6 nights") == 2
    # Without anything recorded no minute finds more than another.
    assert text.count("there is time; nothing recorded") == 2 and "finds most a minute" not in text
    (heading,) = [line for line in text.splitlines() if line.startswith("case ") and "tonight  +1  +2" in line]
    by_night = [line.split()[2:] for line in text.splitlines() if line.startswith("paddle-") and len(line.split()) == 5]
    assert heading and [sum(mark != "." for mark in night) for night in zip(*by_night, strict=True)] == [2, 2, 2]


def test_a_night_that_is_too_short_ends_with_6_and_says_how_long_one_would_have_to_be(tmp_path: Path) -> None:
    code, text = planned(tmp_path, "--minutes", "11", budget="  night_minutes: 25\n  every_nights: 2\n")
    assert code == 6
    assert "11 min a night are too few for every case once in 2 nights, which takes about" in " ".join(text.split())


def test_a_case_that_is_late_on_a_coming_night_is_said_though_only_tonight_is_shown(tmp_path: Path) -> None:
    # Four cases of 10 minutes in three nights would fit 3 · 17 minutes, if a case could be divided.
    short = "  night_minutes: 17\n  search_minutes: 0\n  every_nights: 3\n"
    code, text = planned(tmp_path, budget=short)
    assert code == 6
    assert "[cpu] is due without time: whole cases fit these nights badly" in " ".join(text.split())
    assert "night plan: in 2 nights paddle-" in text
    _, text = planned(tmp_path, "--json", "-", budget=short)
    assert json.loads(text)["enough"] is False
    code, text = planned(tmp_path, budget=short.replace("17", "21"))
    assert (code, "without time" in text) == (0, False)


@pytest.mark.parametrize("budget", ["", "  night_minutes: 600\n"])
def test_other_minutes_are_planned_as_perf_yaml_would_have_them(tmp_path: Path, budget: str) -> None:
    explaining = "explain: {night_minutes: 30}\n"
    _, text = planned(tmp_path, "--minutes", "90", budget=budget, explain=explaining)
    _, same = planned(tmp_path, budget="  night_minutes: 90\n", explain=explaining)
    assert text == same
    assert "30.0 min for bisect and explain" in " ".join(text.split())


def test_given_search_minutes_stay_what_they_are_and_the_night_has_to_be_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = "  night_minutes: 600\n  search_minutes: 20\n"
    _, text = planned(tmp_path, "--minutes", "90", budget=given)
    assert "20.0 min for bisect and explain" in " ".join(text.split())
    code, _ = planned(tmp_path, "--minutes", "20", budget=given)
    assert code == 4
    said = " ".join(capsys.readouterr().err.split())
    assert "--minutes: got '20', expected more than the 20 min that are kept" in said


def test_the_cases_are_those_of_this_machines_gate(tmp_path: Path) -> None:
    _, text = planned(tmp_path, gate="paddle-vgg16-fp32-bs1-1x1-*-dynamic")
    assert "the gate's 2 cases, tonight" not in text or "resnet" not in text
    assert "resnet50" not in text


def test_json_and_markdown_have_the_same_plan(tmp_path: Path) -> None:
    _, text = planned(tmp_path, "--json", "-", "--nights", "2", budget="  night_minutes: 25\n")
    found = json.loads(text)
    assert found["schema_version"] == 1
    tonight, tomorrow = found["nights"]
    assert [each["tonight"] for each in tonight["cases"]] == [True, True, False, False]
    measured, later = ({each["case_id"] for each in night["cases"] if each["tonight"]} for night in (tonight, tomorrow))
    assert not measured & later
    _, page = planned(tmp_path, "--markdown", "-", budget="  night_minutes: 25\n")
    assert page.startswith("# Night plan: the 4 cases")
    assert f"| {SHORT} [cpu] |" in page


@pytest.mark.parametrize("options", [("--minutes", "0"), ("--minutes", "nan"), ("--nights", "0"), ("--nights", "61")])
def test_a_number_out_of_range_is_refused(
    tmp_path: Path, options: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        planned(tmp_path, *options)
    assert ended.value.code == 4
    assert options[1] in capsys.readouterr().err
