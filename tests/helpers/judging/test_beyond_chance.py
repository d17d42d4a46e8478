"""Of many parts only those that differ beyond chance are found, with one error rate over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.judging import beyond_chance
from helpers.judging.beyond_chance import (
    ERROR_RATE,
    LEAST_PAIRS,
    MOST_PAIRS,
    USUAL_PAIRS,
    adjusted_p_values,
    difference_beside,
)
from helpers.judging.shared_speed import SURE_PARTS_ERROR_RATE
from helpers.trainers.contract.errors import SuiteError

PARTS = 60


def _noise(random: np.random.Generator, pairs: int) -> np.ndarray:
    """Differences of parts that do not differ: heavy tails, and much that all parts of a pair share."""
    shared = random.standard_t(3, size=(1, pairs))
    return (shared + random.standard_t(3, size=(PARTS, pairs))) * np.linspace(0.1, 3.0, PARTS)[:, None]


@pytest.mark.parametrize("pairs", [LEAST_PAIRS, 8, 24])
def test_of_parts_that_do_not_differ_one_is_named_as_rarely_as_the_error_rate_says(pairs: int) -> None:
    random, sessions = np.random.default_rng(7), 400
    sizes = list(np.linspace(0.1, 3.0, PARTS) * 20)
    smallest = [min(adjusted_p_values(_noise(random, pairs).tolist(), sizes)) for _ in range(sessions)]
    for rate in (ERROR_RATE, SURE_PARTS_ERROR_RATE):
        wrong = sum(each <= rate for each in smallest)
        # Three standard errors above the rate.
        assert wrong / sessions <= rate + 3 * (rate * (1 - rate) / sessions) ** 0.5


def test_the_usual_pairs_are_the_fewest_with_which_a_part_may_be_surely_named() -> None:
    def least(pairs: int) -> float:
        return adjusted_p_values([[1.0] * pairs], [1.0])[0]

    assert least(USUAL_PAIRS) <= SURE_PARTS_ERROR_RATE < least(USUAL_PAIRS - 1)


def test_a_part_that_differs_is_found_and_the_others_are_not_named_with_it() -> None:
    random = np.random.default_rng(11)
    sizes = list(np.linspace(0.1, 3.0, PARTS) * 20)
    given = _noise(random, LEAST_PAIRS)
    given[20] += 100.0
    found = adjusted_p_values(given.tolist(), sizes)
    assert [place for place, p_value in enumerate(found) if p_value <= ERROR_RATE] == [20]


def test_a_part_with_equal_differences_by_chance_is_not_the_clearest() -> None:
    random = np.random.default_rng(5)
    given = _noise(random, LEAST_PAIRS)
    given[3] = 1e-6
    assert adjusted_p_values(given.tolist(), [20.0] * PARTS)[3] > ERROR_RATE


def test_parts_without_any_difference_are_not_named() -> None:
    assert adjusted_p_values([[0.0] * 6, [0.0] * 6], [1.0, 1.0]) == [1.0, 1.0]


def test_choices_of_signs_that_are_drawn_say_what_all_of_them_say(monkeypatch: pytest.MonkeyPatch) -> None:
    given = _noise(np.random.default_rng(3), 14)
    given[20] += 1.5
    sizes = [20.0] * PARTS
    whole = adjusted_p_values(given.tolist(), sizes)
    monkeypatch.setattr(beyond_chance, "_MOST_PAIRS_TRIED_WHOLE", 13)
    # Three standard errors of a share of 8,192 at most.
    assert adjusted_p_values(given.tolist(), sizes) == pytest.approx(whole, abs=3 * 0.5 / 8192**0.5)


def _dragged(random: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Differences of parts of which the first follows something else, and that."""
    given, beside = random.standard_t(3, size=(PARTS, pairs)), 5 * random.standard_t(3, size=pairs)
    given[0] += 0.6 * beside
    return given, beside


def test_a_part_is_found_beside_what_makes_it_longer_too() -> None:
    found, within = {"alone": 0, "beside": 0}, 0
    for seed in range(20):
        given, beside = _dragged(np.random.default_rng(seed), 14)
        given[0] += 3.0
        found["alone"] += adjusted_p_values(given.tolist(), [20.0] * PARTS)[0] <= ERROR_RATE
        found["beside"] += adjusted_p_values(given.tolist(), [20.0] * PARTS, {0: beside.tolist()})[0] <= ERROR_RATE
        known = difference_beside(given[0].tolist(), beside.tolist())
        within += known.low <= 3.0 <= known.high
    assert found["beside"] >= 15 > 10 >= found["alone"]
    # Of 20 intervals of 95%.
    assert within >= 17


def test_a_part_that_only_follows_what_is_beside_it_is_named_as_rarely_as_the_error_rate_says() -> None:
    random, sessions, wrong = np.random.default_rng(7), 400, 0
    for _ in range(sessions):
        given, beside = _dragged(random, 8)
        wrong += min(adjusted_p_values(given.tolist(), [20.0] * PARTS, {0: beside.tolist()})) <= ERROR_RATE
    assert wrong / sessions <= ERROR_RATE + 3 * (ERROR_RATE * (1 - ERROR_RATE) / sessions) ** 0.5


@pytest.mark.parametrize("others", [0, PARTS - 1])
def test_a_part_is_not_named_for_a_large_difference_of_what_is_beside_it(others: int) -> None:
    """Then its slope is hardly known, and so is what it makes the part longer by."""
    random, sessions, wrong = np.random.default_rng(7), 200, 0
    for _ in range(sessions):
        beside = 20.0 + random.normal(size=8)
        given = random.normal(size=(1 + others, 8))
        given[0] += 0.6 * beside
        wrong += adjusted_p_values(given.tolist(), [20.0] * (1 + others), {0: beside.tolist()})[0] <= ERROR_RATE
    assert wrong / sessions <= ERROR_RATE


def test_what_is_beside_a_part_and_never_differs_changes_nothing() -> None:
    given = _noise(np.random.default_rng(3), 8).tolist()
    alone, beside = (adjusted_p_values(given, [20.0] * PARTS, each) for each in (None, {0: [0.0] * 8}))
    # One degree of freedom less.
    assert beside[0] >= alone[0]
    assert difference_beside(given[0], [0.0] * 8).mean == pytest.approx(np.mean(given[0]))


def test_the_same_differences_have_the_same_answer() -> None:
    given = _noise(np.random.default_rng(3), MOST_PAIRS).tolist()
    assert adjusted_p_values(given, [20.0] * PARTS) == adjusted_p_values(given, [20.0] * PARTS)


@pytest.mark.parametrize("pairs", [LEAST_PAIRS - 1, MOST_PAIRS + 1])
def test_pairs_that_cannot_show_anything_or_would_take_too_long_are_refused(pairs: int) -> None:
    with pytest.raises(SuiteError, match=f"got {pairs}, expected from 6 to 40"):
        adjusted_p_values([[1.0] * pairs], [1.0])
