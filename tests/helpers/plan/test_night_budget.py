"""``budgets.night_minutes`` and what stands beside it."""

from __future__ import annotations

import pytest

from helpers.plan.matrix import read_budgets
from helpers.plan.night_budget import NIGHT_KEYS, NightBudget, read_night_budget
from helpers.plan.yaml_file import YamlValue
from helpers.trainers.contract.errors import ConfigError

WEIGHTS = [{"pattern": "*", "weight": 2}, {"pattern": "paddle-*", "target": "cpu", "weight": 0.5}]


def section(**keys: object) -> YamlValue:
    return YamlValue("perf.yaml", "budgets", keys)


def test_without_minutes_there_is_no_limit() -> None:
    for given in (None, section(), section(pairs=8), section(night_minutes=None, weights=[])):
        assert read_night_budget(given) is None


def test_a_tenth_is_kept_for_the_search_unless_the_file_says_otherwise() -> None:
    assert read_night_budget(section(night_minutes=60)) == NightBudget(60.0, 6.0, 7)
    assert read_night_budget(section(night_minutes=60, search_minutes=0)) == NightBudget(60.0, 0.0, 7)
    assert read_night_budget(section(night_minutes=60, search_minutes=20, every_nights=3)) == NightBudget(60.0, 20.0, 3)


def test_what_a_session_explains_in_is_kept_too() -> None:
    assert read_night_budget(section(night_minutes=60), 20) == NightBudget(60.0, 20.0, 7)
    assert read_night_budget(section(night_minutes=60, search_minutes=3), 20) == NightBudget(60.0, 3.0, 7)
    with pytest.raises(ConfigError, match=r"more than explain.night_minutes, which are 60"):
        read_night_budget(section(night_minutes=60), 60)


def test_of_several_weights_the_last_that_matches_counts() -> None:
    found = read_night_budget(section(night_minutes=60, weights=WEIGHTS))
    assert found is not None
    assert [found.weight_of(case, target) for case, target in (("paddle-a", "cpu"), ("paddle-a", "v100"))] == [0.5, 2.0]
    assert NightBudget(60, 6).weight_of("paddle-a", "cpu") == 1.0


def test_the_runs_of_a_case_are_read_beside_them() -> None:
    assert read_budgets(section(night_minutes=60, pairs=8), NIGHT_KEYS).of("any").pairs == 8


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"night_minutes": 0}, "field 'budgets.night_minutes': got 0, expected a number above 0"),
        ({"night_minutes": "long"}, "field 'budgets.night_minutes': got 'long'"),
        (
            {"night_minutes": 60, "search_minutes": 60},
            "field 'budgets.search_minutes': got 60, expected a number above 0 and below 60",
        ),
        (
            {"night_minutes": 60, "every_nights": 0},
            "field 'budgets.every_nights': got 0, expected a whole number from 1",
        ),
        ({"night_minutes": 60, "weights": [{"pattern": "*"}]}, r"budgets.weights\[0\].weight"),
        ({"night_minutes": 60, "weights": [{"pattern": "*", "weight": 0}]}, r"budgets.weights\[0\].weight': got 0"),
        ({"every_nights": 3}, "field 'budgets.every_nights': got 3, expected no every_nights without night_minutes"),
        ({"night_minute": 60}, "night_minutes"),
    ],
)
def test_a_mistake_is_named_with_its_field(keys: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_night_budget(section(**keys))
