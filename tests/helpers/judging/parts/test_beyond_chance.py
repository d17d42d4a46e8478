"""Of many parts only those that differ beyond chance are found, with one error rate over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.judging.parts import beyond_chance
from helpers.judging.parts.beyond_chance import (
    ERROR_RATE,
    LEAST_PAIRS,
    MOST_PAIRS,
    SURE_PARTS_ERROR_RATE,
    USUAL_PAIRS,
    adjusted_p_values,
)
from helpers.trainers.contract.errors import SuiteError

pytestmark = pytest.mark.slow

PARTS = 60


def _noise(random: np.random.Generator, pairs: int) -> np.ndarray:
    """Differences of parts that do not differ: heavy tails, and much that all parts of a pair share."""
    shared = random.standard_t(3, size=(1, pairs))
    return (shared + random.standard_t(3, size=(PARTS, pairs))) * np.linspace(0.1, 3.0, PARTS)[:, None]


@pytest.mark.parametrize("pairs", [LEAST_PAIRS, 8])
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


def test_choices_of_signs_that_are_drawn_say_what_all_of_them_say(monkeypatch: pytest.MonkeyPatch) -> None:
    given = _noise(np.random.default_rng(3), 14)
    given[20] += 1.5
    sizes = [20.0] * PARTS
    whole = adjusted_p_values(given.tolist(), sizes)
    monkeypatch.setattr(beyond_chance, "_MOST_PAIRS_TRIED_WHOLE", 13)
    # Three standard errors of a share of 8,192 at most.
    assert adjusted_p_values(given.tolist(), sizes) == pytest.approx(whole, abs=3 * 0.5 / 8192**0.5)


@pytest.mark.parametrize("pairs", [LEAST_PAIRS - 1, MOST_PAIRS + 1])
def test_pairs_that_cannot_show_anything_or_would_take_too_long_are_refused(pairs: int) -> None:
    with pytest.raises(SuiteError, match=f"got {pairs}, expected from 6 to 40"):
        adjusted_p_values([[1.0] * pairs], [1.0])
