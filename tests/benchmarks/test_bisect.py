"""The builds that are searched, the other tools' rules, the tables, the goals and the exit status."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks import bisect
from benchmarks.bisect import (
    Kind,
    Tally,
    goals_of,
    kinds,
    main,
    others_text,
    search_job,
    table_text,
)
from benchmarks.bisect_rules import OWN, RULES, Found, git_bayesect, git_bisect, own
from benchmarks.bisect_world import BUILDS, Builds, drawn
from helpers.trainers.contract.errors import ConfigError

QUIET = Kind(1, (5.0,))


def builds(*drops: float, failing: float = 0.0, number: int = 3, cards: int = 1) -> Builds:
    return drawn(11, number, cards, drops or (5.0,), failing)


# --- the builds


def test_a_pair_is_the_same_whoever_asks_for_it_and_when() -> None:
    one, other = builds(), builds()
    assert one.pair(40, 3) == [other.pair(12, 0), other.pair(40, 3)][1]
    assert one.pair(40, 3) != one.pair(40, 2)


def test_builds_from_the_change_on_are_slower_by_its_size() -> None:
    some = builds(5.0, number=4)
    for build in range(BUILDS):
        slower = math.log(0.95) if build >= some.first_bad else 0.0
        assert some.difference(build, 0) == pytest.approx(slower, abs=0.03)


def test_the_first_bad_build_is_the_one_with_the_largest_drop() -> None:
    some = builds(2.0, 4.0)
    assert sorted(some.drops_percent.values()) == [2.0, 4.0]
    assert some.drops_percent[some.first_bad] == 4.0


def test_the_ends_never_fail_and_a_tenth_of_the_others_does() -> None:
    failing = [builds(failing=0.1, number=number).failing for number in range(50)]
    assert all(0 not in each and BUILDS - 1 not in each for each in failing)
    assert 4 < sum(map(len, failing)) / len(failing) < 8


def test_the_noise_is_learned_from_the_nights_before() -> None:
    assert 0.001 < builds(cards=1).sigma < 0.004
    assert 0.006 < builds(cards=32).sigma < 0.03


# --- the rules


@pytest.mark.parametrize("rule", [OWN, "git bisect, half", "median of 3, half", "git_bayesect, half"])
def test_a_large_drop_on_one_card_is_found_by_every_rule(rule: str) -> None:
    found = RULES[rule](builds())
    assert found.claimed
    assert found.right
    assert found.builds == 1


def test_a_threshold_of_5_percent_sees_no_drop_of_2() -> None:
    some = builds(2.0)
    assert some.first_bad < BUILDS - 1
    assert not git_bisect(some, 1, 5.0).right
    assert git_bisect(some, 1, 5.0).runs == 12
    assert git_bisect(some, 3, 5.0).runs == 36
    assert git_bisect(some, 1, None).runs == 12 + 6
    never = git_bayesect(some, 5.0)
    assert not never.claimed
    assert never.runs == 400


@pytest.mark.parametrize("rule", [OWN, "git bisect, half", "git_bayesect, half"])
def test_every_rule_steps_around_builds_that_fail(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    some = builds(failing=0.5)
    measured: list[int] = []
    pair = Builds.pair

    def counted(self: Builds, build: int, repeat: int) -> tuple[float, float]:
        measured.append(build)
        return pair(self, build, repeat)

    monkeypatch.setattr(Builds, "pair", counted)
    RULES[rule](some)
    assert measured
    assert not some.failing & set(measured)


@pytest.mark.parametrize("number", range(4))
def test_builds_that_fail_around_the_change_make_the_answer_a_range(number: int) -> None:
    some = builds(failing=0.5, number=number)
    first = max(build for build in range(some.first_bad) if build not in some.failing) + 1
    last = min(build for build in range(some.first_bad, BUILDS) if build not in some.failing)
    found = own(some)
    assert (found.claimed, found.right, found.builds) == (True, True, last - first + 1)


# --- the tables and the goals


def tally(right: int, wrong: int, open_ends: int = 0, kind: Kind = QUIET, rule: str = OWN) -> Tally:
    good, bad = Found(True, True, 1, 30, expected_runs=30), Found(True, False, 1, 50, expected_runs=25)
    spent = Found(False, True, 7, 400, expected_runs=300)
    return Tally(kind, rule, (good,) * right + (bad,) * wrong + (spent,) * open_ends)


def every(right: int, wrong: int, open_ends: int = 0) -> list[Tally]:
    return [
        tally(right, wrong, open_ends, kind, rule) for kind in kinds() for rule in (RULES if kind.plain else (OWN,))
    ]


def test_a_row_has_claims_the_right_ones_and_runs() -> None:
    lines = table_text(every(90, 2, 8), 0.1).splitlines()
    assert len(lines) == 2 + 12 + 1
    assert lines[2].startswith("| 1 | 1% | 92%, 97.8%, 30 (30) |")
    assert lines[-1].startswith("| all |  | 92%, 97.8%, 30 (30) |")


def test_a_rule_without_claims_has_none_to_be_right() -> None:
    assert "| 0%, -, - |" in table_text(every(0, 0, 5), 0.0)


def test_what_the_tables_leave_out_is_told() -> None:
    told = others_text(every(98, 2, 10))
    assert "one build named at 99%: 2400, right 2352 (98.00%, 95% 97.3" in told
    assert "a range where the budget was spent: 240, right 240 (100.00%, 95% 98.4" in told
    assert "sigma 4 times what it is, 2% on 32 cards: 91%, 98.0%, 30 (30)" in told
    assert "4% and 2% on 8 cards: 91%, 98.0%, 30 (30) of the larger; 0 of 100 say that more is left" in told


def test_goals_are_reached_and_missed() -> None:
    assert all(goal.reached for goal in goals_of(every(99, 1)))
    right = goals_of(every(90, 10))
    assert [goal.reached for goal in right] == [False] * 4 + [True]
    assert right[0].ruled_out
    assert "NOT reached  right claims, 0% of builds fail: 1080 of 1200, 90.00%" in right[0].text
    few = goals_of([tally(12, 1, 3, kind, OWN) for kind in kinds() if kind.drops_percent == (4.0, 2.0)])[3]
    assert not few.reached
    assert not few.ruled_out
    assert goals_of(every(0, 0, 5))[0].ruled_out


# --- the command


def test_all_rules_are_asked_about_the_same_builds() -> None:
    found = search_job((3, QUIET, [0, 4]), seed=5)
    assert [each.number for each in found] == [0, 4]
    assert all(set(each.found) == set(RULES) for each in found)
    (other,) = search_job((3, Kind(1, (5.0,), sigma_factor=4.0), [0]), seed=5)
    assert set(other.found) == {OWN}


@pytest.mark.parametrize(
    ("options", "made", "status"),
    [([], (99, 1), 0), ([], (90, 10), 1), (["--quick"], (8, 0), 0), (["--quick"], (60, 40), 1)],
)
def test_the_exit_status_says_whether_a_goal_is_missed(
    options: list[str],
    made: tuple[int, int],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bisect, "_searched", lambda *told: every(*made))
    assert main(options) == status
    assert "10% of the builds fail" in capsys.readouterr().out


def test_quick_misses_a_goal_only_where_its_whole_interval_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # One wrong claim of 37 with two changes may be chance.
    some = [
        tally(12, int(not each.plain and len(each.drops_percent) > 1 and each.cards == 1), 0, each, OWN)
        for each in kinds()
    ]
    some += [tally(12, 0, 0, each, rule) for each in kinds() if each.plain for rule in RULES if rule != OWN]
    monkeypatch.setattr(bisect, "_searched", lambda *told: some)
    assert main([]) == 1
    assert main(["--quick"]) == 0


@pytest.mark.slow
def test_the_command_searches_prints_keeps_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bisect, "CARDS", (1,))
    monkeypatch.setattr(bisect, "DROPS_PERCENT", (5.0,))
    made: list[tuple[Kind, list[int]]] = []

    def counted(job: tuple[int, Kind, list[int]], *, seed: int) -> list[bisect.Search]:
        made.append(job[1:])
        return search_job(job, seed=seed)

    monkeypatch.setattr(bisect, "search_job", counted)
    kept = tmp_path / "searches.jsonl"
    command = ["--seed", "8", "--processes", "1", "--keep", str(kept)]
    assert main([*command, "--searches", "2"]) == 0
    out = capsys.readouterr().out
    assert "seed 8: 2 searches of each kind, 64 builds, at most 400 runs" in out
    assert out.count("\nreached ") == 5
    header, *lines = kept.read_text().splitlines()
    assert len(lines) == 2 * len(kinds()) == 2 * len(made)
    first = json.loads(lines[0])
    assert first["kind"] == {"cards": 1, "drops_percent": [5.0], "failing_share": 0.0, "sigma_factor": 1.0}
    assert set(first["found"]) == set(RULES)

    # Ended while it wrote the last search, it makes that one again and nothing else, and says the same.
    kept.write_text("\n".join([header, *lines])[:-20])
    made.clear()
    assert main([*command, "--searches", "2"]) == 0
    assert made == [(kinds()[-1], [1])]
    assert [line for line in capsys.readouterr().out.splitlines() if not line.endswith(" s")] == [
        line for line in out.splitlines() if not line.endswith(" s")
    ]
    assert sorted(kept.read_text().splitlines()) == sorted([header, *lines])
    # Fewer are the first of them.
    made.clear()
    assert main([*command, "--searches", "1"]) == 0
    assert not made


def test_searches_of_another_seed_are_no_part_of_it(tmp_path: Path) -> None:
    kept = tmp_path / "searches.jsonl"
    assert bisect.kept_searches(kept, 8) == []
    with pytest.raises(ConfigError, match="another seed makes other searches: name another file"):
        bisect.kept_searches(kept, 9)
    kept.write_text(kept.read_text().replace('"code": "', '"code": "0'))
    with pytest.raises(ConfigError, match="Other code"):
        bisect.kept_searches(kept, 8)
