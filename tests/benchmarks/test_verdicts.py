"""The command: its table, its JSON, its goals and its exit status."""

from __future__ import annotations

import importlib.util
import json
import math
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import goals, verdict_real, verdicts
from benchmarks.goals import share_95
from benchmarks.verdict_lives import OF_SLOW_DAY, PERIODS
from benchmarks.verdict_replay import DROPS_PERCENT, FIRST_NIGHTS, LOST, LOST_FIRST, PROCEDURE, Score, Scores
from benchmarks.verdict_report import (
    alarms_interval,
    goals_of,
    goals_of_lives,
    lives_text,
    more_text,
    poisson_95,
    scores_json,
    table_text,
    total_of,
)
from benchmarks.verdict_worlds import CASES, LOSSES_PERCENT
from benchmarks.verdicts import FULL, FULL_BEHIND, QUICK, QUICK_BEHIND, futures_of, main

GOALS = 17
LIVES_GOALS = 10


def goals_text(found: Scores) -> str:
    return "\n".join(goal.text for goal in goals_of(found))


def missed(found: Scores, clearly: bool = False) -> bool:
    return goals.missed(goals_of(found), clearly)


def score(alarms: int = 0, runs: int = 6000 * 2, found: float = 0.96, nights: int = 100) -> Score:
    drops = Counter(dict.fromkeys(DROPS_PERCENT, 100))
    first = Counter({percent: round(found * 100) for percent in DROPS_PERCENT})
    made = Score(nights=nights, alarms=alarms, case_nights=6000, runs=runs, slow_nights=4, slow_alarms=2)
    made.injected, made.first_night, made.three_nights = drops, first, Counter(first)
    made.injected_on, made.found_on = Counter({(2, 32): 100}), Counter({(2, 32): round(found * 100)})
    made.by_world = [(alarms, 0, nights // 2), (0, 0, nights // 2)]
    return made


def lives(**values: int) -> Scores:
    found = {}
    for period in PERIODS:
        made = Score(nights=100, case_nights=6000, runs=12000, losses=10, losses_at_once=9, losses_in_three=10)
        made.injected, made.first_night = Counter({1.0: 10, 2.0: 10, 3.0: 10}), Counter({1.0: 5, 2.0: 9, 3.0: 10})
        made.injected_on, made.found_on = Counter({(2.0, 32): 10}), Counter({(2.0, 32): 7})
        made.by_world = [(0, 0, 50), (0, 0, 50)]
        found[period.name] = made
    vars(found[PERIODS[2].name]).update(values)
    slow_day = f"{OF_SLOW_DAY}, night 1"
    found[slow_day] = Score()
    found[slow_day].injected, found[slow_day].first_night = Counter({4.8: 3}), Counter({4.8: 3})
    return found


def scores(**values: float) -> Scores:
    return {
        "fixed": score(alarms=30, runs=6000, found=0.0),
        PROCEDURE: score(**values),  # type: ignore[arg-type]
        FIRST_NIGHTS: score(alarms=9),
        LOST: score(),
        LOST_FIRST: score(),
    }


# --- futures


@pytest.mark.parametrize(
    ("size", "percents"),
    [(QUICK, DROPS_PERCENT), (FULL, DROPS_PERCENT), (QUICK_BEHIND, LOSSES_PERCENT), (FULL_BEHIND, LOSSES_PERCENT)],
)
def test_drops_are_of_every_size_and_of_other_cases_each_time(size: verdicts.Size, percents: tuple[float, ...]) -> None:
    futures = futures_of(1, 0, size, percents)
    dropped = [future for future in futures if future.drops and not future.noisy]
    assert len(dropped) == size.dropped
    for future in dropped:
        assert Counter(future.drops.values()) == Counter(dict.fromkeys(percents, 3))
    assert len({frozenset(future.drops) for future in dropped}) == size.dropped
    assert len({future.branch for future in futures}) == len(futures)
    assert sum(future.slow for future in futures) == size.slow
    assert futures_of(1, 0, size, percents) == futures
    assert futures_of(1, 1, size, percents) != futures


def test_noisy_futures_slow_down_a_few_cases_on_32_cards_by_2_percent() -> None:
    noisy = [future for future in futures_of(1, 0, FULL) if future.noisy]
    assert len(noisy) == FULL.noisy
    for future in noisy:
        assert {CASES[case].cards for case in future.drops} == {32}
        assert set(future.drops.values()) == {2}
        assert len(future.drops) == 3
        assert len(future.nights) == 1
    assert len({frozenset(future.drops) for future in noisy}) > 1


def test_the_full_replay_has_a_thousand_quiet_nights() -> None:
    assert FULL.worlds * FULL.quiet * 3 >= 1000
    assert FULL_BEHIND.worlds * FULL_BEHIND.quiet * 3 >= 1000


# --- what is printed


def test_the_table_has_the_procedure_last_and_the_first_nights_not_at_all() -> None:
    lines = table_text(scores()).splitlines()
    assert len(lines) == 5
    assert lines[2].startswith("| fixed | 1 | 0.3 (")
    assert lines[3].startswith(f"| {PROCEDURE} | 2 | 0 (0 to 0.037; 100) | 0.5 (4) | .96 .96 .96 .96 .96 .96 |")
    assert lines[4].startswith(f"| {LOST} | 2 |")


def test_what_the_table_has_no_column_for_is_told_of_both_kinds_of_machine() -> None:
    told = scores()
    told[LOST].called_faster = 7
    told[LOST].passed[2] = 25
    ordinary, lost = more_text(told).split("gains lost again: ")
    assert "2% on 32 cards .96 (100)" in ordinary
    assert "answered by IMPROVEMENT: 0" in ordinary
    assert "drops that passed on the first night: 0 0 .25 0 0 0; answered by IMPROVEMENT: 7" in lost


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
    alike.by_world, apart.by_world = [(50, 0, 50), (50, 0, 50)], [(100, 0, 50), (0, 0, 50)]
    assert alarms_interval(alike)[1] == pytest.approx(1.22, abs=0.01)
    assert alarms_interval(apart)[1] > 2


def test_the_json_has_the_keys_that_the_issue_names() -> None:
    record = json.loads(json.dumps(scores_json(scores(), {"seed": 3}, goals_of(scores()))))
    assert set(record) == {"_about", "fixed", PROCEDURE, LOST}
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
        ({"alarms": 1}, "false alarms"),
        ({"runs": 13300}, "runs a case"),
        ({"found": 0.7}, "2% drops found on the first"),
        ({"found": 0.89}, "3% drops found on the first"),
        ({"found": 0.94}, "3% drops found within three"),
        ({"found": 0.59}, "2% drops on 32 cards"),
        ({"nights": 0}, "false alarms"),
        ({"nights": 0}, "INCONCLUSIVE"),
    ],
)
def test_goals_that_are_not(values: dict[str, float], goal: str) -> None:
    assert missed(scores(**values))
    assert [line for line in goals_text(scores(**values)).splitlines() if line.startswith("NOT") and goal in line]


def test_undecided_cases_miss_their_goal() -> None:
    unsure = scores()
    unsure[PROCEDURE].unsure = 26
    assert missed(unsure)
    assert "NOT reached  INCONCLUSIVE a night: 0.26" in goals_text(unsure)
    unsure[PROCEDURE].unsure = 25
    assert not missed(unsure)


def test_each_goal_is_of_both_kinds_of_machine() -> None:
    for rule, prefix in ((LOST, "gains lost again: "), (PROCEDURE, "")):
        found = scores()
        found[rule].first_night[3] = 80
        assert f"NOT reached  {prefix}3% drops found on the first night" in goals_text(found)
        assert missed(found)
    for rule in (FIRST_NIGHTS, LOST_FIRST):
        dear = scores()
        dear[rule].runs = 18001
        assert missed(dear)
        assert "in its first 15 nights: 3, at most 3" in goals_text(dear)


def test_a_loss_that_is_called_an_improvement_misses_a_goal() -> None:
    wrong = scores()
    wrong[LOST].called_faster = 1
    assert missed(wrong, clearly=True)


def test_few_nights_miss_a_goal_only_when_they_rule_it_out() -> None:
    # 72 of 100 may be 75% by chance, 60 may not.
    near, far = scores(), scores()
    near[PROCEDURE].first_night[2], far[PROCEDURE].first_night[2] = 72, 60
    assert (missed(near), missed(near, clearly=True)) == (True, False)
    assert (missed(far), missed(far, clearly=True)) == (True, True)
    assert "0.72 (95% 0.621 to 0.805), at least 0.75, which may be chance" in goals_text(near)
    assert "chance" not in goals_text(far)
    assert missed({PROCEDURE: Score()}, clearly=True)
    assert missed(scores(runs=13300), clearly=True)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"), [(98, 100, 0.9296, 0.9976), (0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0)]
)
def test_the_interval_of_a_share_is_clopper_and_pearsons(count: int, of: int, low: float, high: float) -> None:
    assert share_95(count, of) == pytest.approx((low, high), abs=1e-4)


def test_a_share_of_nothing_has_no_interval() -> None:
    assert all(map(math.isnan, share_95(0, 0)))


def test_nothing_replayed_reaches_no_goal() -> None:
    assert goals_text({PROCEDURE: Score()}).count("NOT reached") == GOALS
    record = scores_json({PROCEDURE: Score()}, {}, ())[PROCEDURE]
    assert record["runs_per_case"] is record["false_alarms_per_night"] is record["power_first_night"]["2"] is None


# --- lives of 120 nights


def test_lives_are_told_part_by_part_and_as_a_whole() -> None:
    told = lives_text(lives(unjudged=60, better=1)).splitlines()
    assert len(told) == 2 + len(PERIODS) + 1 + 2
    assert told[4].startswith(
        f"| {PERIODS[2].name} | 2 | 0 (0 to 0.037; 100) | 0 (0 to 0.037) | 0.6 | 0.01 | 9, 10 of 10 |"
    )
    assert told[7].startswith("| **all 120 nights** | 2 | 0 (0 to 0.0074; 500) |")
    assert told[7].endswith("| 25/50 45/50 50/50 | 35/50 |")
    assert told[9] == f"{OF_SLOW_DAY}, night 1: found at once 3 of 3"


def test_worlds_of_all_parts_are_added_world_by_world() -> None:
    found = lives()
    found[PERIODS[0].name].by_world, found[PERIODS[1].name].by_world = (
        [(1, 0, 50), (0, 2, 50)],
        [(0, 4, 50), (3, 0, 50)],
    )
    assert total_of(found).by_world == [(1, 4, 250), (3, 2, 250)]


@pytest.mark.parametrize(
    ("values", "goal"),
    [
        ({}, ""),
        ({"alarms": 3}, "false alarms"),
        ({"unsure": 51}, "INCONCLUSIVE"),
        ({"runs": 40000}, "runs a case"),
        ({"unjudged": 1}, "not judged"),
        ({"better": 1}, "without a gain"),
        ({"called_faster": 1}, "called an improvement"),
        ({"losses_in_three": 0}, "own losses"),
    ],
)
def test_a_life_with_a_wrong_verdict_misses_a_goal(values: dict[str, int], goal: str) -> None:
    found = goals_of_lives(lives(**values))
    assert len(found) == LIVES_GOALS
    missed_ones = [each.name for each in found if not each.reached]
    assert len(missed_ones) == bool(goal)
    assert all(goal in name for name in missed_ones)


def test_losses_of_a_slow_day_that_pass_miss_a_goal() -> None:
    found = lives()
    found[f"{OF_SLOW_DAY}, night 1"].first_night.clear()
    assert [each.name for each in goals_of_lives(found) if not each.reached] == [
        "120 nights: losses of entries of a slow day found on the first night"
    ]


# --- the command


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The command without its replays: one world's scores, and whether SQLite agreed."""
    ordinary = {rule: each for rule, each in scores().items() if rule not in (LOST, LOST_FIRST)}
    said: dict[str, object] = {"scores": ordinary, "same": True, "behind": True}
    monkeypatch.setattr(verdicts, "replay_world", lambda world, **_: said["scores"])
    monkeypatch.setattr(verdicts, "replay_behind", lambda world, **_: {LOST: score(), LOST_FIRST: score()})
    monkeypatch.setattr(verdicts, "live", lambda world, **_: lives())
    monkeypatch.setattr(verdicts, "through_history", lambda _, **how: ("told", said["behind" if how else "same"]))
    return said


def test_reached_goals_exit_with_0(
    canned: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "v.json"
    assert main(["--quick", "--worlds", "1", "--seed", "5", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "seed 5" in printed
    assert printed.count("reached    ") == GOALS + LIVES_GOALS
    assert "real series left out: no --series FOLDER" in printed
    assert json.loads(file.read_text())["_about"]["seed"] == 5


def test_a_missed_goal_exits_with_1(canned: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    canned["scores"][PROCEDURE].first_night[2] = 72  # type: ignore[index]
    assert main(["--worlds", "1"]) == 1
    assert main(["--quick", "--worlds", "1"]) == 0
    canned["scores"][PROCEDURE].first_night[2] = 50  # type: ignore[index]
    assert main(["--quick", "--worlds", "1"]) == 1
    assert "NOT reached" in capsys.readouterr().out


def test_rivals_that_are_not_installed_are_left_out_by_name(
    canned: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["--quick", "--worlds", "1"]) == 0
    assert "left out, not installed here: asv 5%, Otava" in capsys.readouterr().out


@pytest.mark.parametrize("which", ["same", "behind"])
def test_other_verdicts_with_sqlite_exit_with_1(canned: dict[str, object], which: str) -> None:
    canned[which] = False
    assert main(["--quick", "--worlds", "1"]) == 1


def test_an_absent_folder_of_series_is_said(tmp_path: Path) -> None:
    told = verdict_real.real_series_text(tmp_path / "none", 1, verdict_real.QUICK, lambda *_: [])
    assert told == f"real series left out: no folder {tmp_path / 'none'}"
