"""The command: its table, its JSON, its goals and its exit status."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import verdict_real, verdicts
from benchmarks.verdict_replay import DROPS_PERCENT, FIRST_NIGHTS, PROCEDURE, Score, Scores
from benchmarks.verdict_report import alarms_interval, goals_text, missed, poisson_95, scores_json, share_95, table_text
from benchmarks.verdicts import FULL, QUICK, futures_of, main


def score(alarms: int = 0, runs: int = 6000 * 2, found: float = 0.96, nights: int = 100) -> Score:
    drops = Counter(dict.fromkeys(DROPS_PERCENT, 100))
    first = Counter({percent: round(found * 100) for percent in DROPS_PERCENT})
    made = Score(nights=nights, alarms=alarms, case_nights=6000, runs=runs, slow_nights=4, slow_alarms=2)
    made.injected, made.first_night, made.three_nights = drops, first, Counter(first)
    made.by_world = [(alarms, nights // 2), (0, nights // 2)]
    return made


def scores(**values: float) -> Scores:
    return {"fixed": score(alarms=30, runs=6000, found=0.0), PROCEDURE: score(**values), FIRST_NIGHTS: score(alarms=9)}  # type: ignore[arg-type]


# --- futures


@pytest.mark.parametrize("size", [QUICK, FULL])
def test_drops_are_of_every_size_and_of_other_cases_each_time(size: verdicts.Size) -> None:
    futures = futures_of(1, 0, size)
    dropped = [future for future in futures if future.drops]
    assert len(dropped) == size.dropped
    for future in dropped:
        assert Counter(future.drops.values()) == Counter(dict.fromkeys(DROPS_PERCENT, 3))
    assert len({frozenset(future.drops) for future in dropped}) == size.dropped
    assert len({future.branch for future in futures}) == len(futures)
    assert sum(future.slow for future in futures) == size.slow
    assert futures_of(1, 0, size) == futures
    assert futures_of(1, 1, size) != futures


def test_the_full_replay_has_a_thousand_quiet_nights() -> None:
    assert FULL.worlds * FULL.quiet * 3 >= 1000


# --- what is printed


def test_the_table_has_the_procedure_last_and_the_first_nights_not_at_all() -> None:
    lines = table_text(scores()).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| fixed | 1 | 0.3 (")
    assert lines[3].startswith(f"| {PROCEDURE} | 2 | 0 (0 to 0.037; 100) | 0.5 (4) | .96 .96 .96 .96 .96 .96 |")


def test_a_share_is_all_or_none_only_when_it_is() -> None:
    some = score()
    some.first_night = Counter(dict(zip(DROPS_PERCENT, (0, 1, 50, 99, 999, 1000), strict=True)))
    some.injected = Counter(dict.fromkeys(DROPS_PERCENT, 1000))
    assert "| 0 .01 .05 .10 .99 1 |" in table_text({PROCEDURE: some})


@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.39), (1000, 938.0, 1062.0)]
)
def test_the_interval_of_a_count_is_garwoods(count: int, low: float, high: float) -> None:
    assert poisson_95(count) == pytest.approx((low, high), rel=2e-3)


def test_a_rule_that_is_wrong_in_one_world_only_has_a_wide_interval() -> None:
    alike, apart = Score(nights=100, alarms=100), Score(nights=100, alarms=100)
    alike.by_world, apart.by_world = [(50, 50), (50, 50)], [(100, 50), (0, 50)]
    assert alarms_interval(alike)[1] == pytest.approx(1.22, abs=0.01)
    assert alarms_interval(apart)[1] > 2


def test_the_json_has_the_keys_that_the_issue_names() -> None:
    record = json.loads(json.dumps(scores_json(scores(), {"seed": 3})))
    assert set(record) == {"_about", "fixed", PROCEDURE}
    mine = record[PROCEDURE]
    assert mine["false_alarms_per_night"] == 0
    assert mine["runs_per_case"] == 2
    assert mine["power_first_night"] == {"0.5": 0.96, "1": 0.96, "2": 0.96, "3": 0.96, "5": 0.96, "10": 0.96}
    assert set(mine["power_three_nights"]) == {"0.5", "1", "2", "3", "5", "10"}
    assert record["_about"]["seed"] == 3


# --- goals


def test_goals_that_are_reached() -> None:
    assert not missed(scores())
    assert "NOT" not in goals_text(scores())


@pytest.mark.parametrize(
    ("values", "goal"),
    [
        ({"alarms": 6}, "false alarms"),
        ({"runs": 13300}, "runs a case"),
        ({"found": 0.7}, "2% drops found on the first"),
        ({"found": 0.89}, "3% drops found on the first"),
        ({"found": 0.94}, "3% drops found within three"),
        ({"nights": 0}, "false alarms"),
    ],
)
def test_goals_that_are_not(values: dict[str, float], goal: str) -> None:
    assert missed(scores(**values))
    assert [line for line in goals_text(scores(**values)).splitlines() if line.startswith("NOT") and goal in line]


def test_few_nights_miss_a_goal_only_when_they_rule_it_out() -> None:
    # 72 of 100 may be 75% by chance, 60 may not.
    near, far = scores(), scores()
    near[PROCEDURE].first_night[2], far[PROCEDURE].first_night[2] = 72, 60
    assert (missed(near), missed(near, clearly=True)) == (True, False)
    assert (missed(far), missed(far, clearly=True)) == (True, True)
    assert "0.72 (95% 0.625 to 0.799), at least 0.75, as few nights may be by chance" in goals_text(near)
    assert "chance" not in goals_text(far)
    assert missed({PROCEDURE: Score()}, clearly=True)
    assert missed(scores(runs=13300), clearly=True)


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert share_95(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert share_95(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)


def test_nothing_replayed_reaches_no_goal() -> None:
    assert goals_text({PROCEDURE: Score()}).count("NOT reached") == 5
    record = scores_json({PROCEDURE: Score()}, {})[PROCEDURE]
    assert record["runs_per_case"] is record["false_alarms_per_night"] is record["power_first_night"]["2"] is None


# --- the command


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The command without its replays: one world's scores, and whether SQLite agreed."""
    said: dict[str, object] = {"scores": scores(), "same": True}
    monkeypatch.setattr(verdicts, "replay_world", lambda world, **_: said["scores"])
    monkeypatch.setattr(verdicts, "through_history", lambda _: ("told", said["same"]))
    return said


def test_reached_goals_exit_with_0(
    canned: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "v.json"
    assert main(["--quick", "--worlds", "1", "--seed", "5", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "seed 5" in printed
    assert printed.count("reached    ") == 5
    assert "real series left out: no --series FOLDER" in printed
    assert json.loads(file.read_text())["_about"]["seed"] == 5


def test_a_missed_goal_exits_with_1(canned: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    canned["scores"] = scores()
    canned["scores"][PROCEDURE].first_night[2] = 72  # type: ignore[index]
    assert main(["--worlds", "1"]) == 1
    assert main(["--quick", "--worlds", "1"]) == 0
    canned["scores"][PROCEDURE].first_night[2] = 50  # type: ignore[index]
    assert main(["--quick", "--worlds", "1"]) == 1
    assert "NOT reached" in capsys.readouterr().out


def test_other_verdicts_with_sqlite_exit_with_1(canned: dict[str, object]) -> None:
    canned["same"] = False
    assert main(["--quick", "--worlds", "1"]) == 1


def test_an_absent_folder_of_series_is_said(tmp_path: Path) -> None:
    told = verdict_real.real_series_text(tmp_path / "none", 1, verdict_real.QUICK, None, lambda *_: [])
    assert told == f"real series left out: no folder {tmp_path / 'none'}"
