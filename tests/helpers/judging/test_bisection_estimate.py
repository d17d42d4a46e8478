"""How many runs a search for the first bad build is said to take before it begins."""

from __future__ import annotations

import pytest

from helpers.judging.bisection_estimate import estimate, usual_runs

QUIET = 0.002


@pytest.mark.slow
def test_more_builds_smaller_drops_and_noise_take_more_runs() -> None:
    runs = usual_runs(16, 500, 0.05, QUIET)
    more_builds, smaller_drop, more_noise = (
        usual_runs(64, 500, 0.05, QUIET), usual_runs(16, 500, 0.01, QUIET), usual_runs(16, 500, 0.05, 5 * QUIET),
    )  # fmt: skip
    assert runs is not None
    assert 2 < runs < min(more_builds or 0, smaller_drop or 0, more_noise or 0)


def test_a_budget_that_is_too_small_for_most_searches_gives_no_number() -> None:
    assert usual_runs(64, 6, 0.05, 0.02) is None


def test_the_sentence_has_a_number_for_each_drop_and_the_noise() -> None:
    runs = [usual_runs(16, 500, drop, QUIET) for drop in (0.05, 0.02)]
    assert estimate(16, 500, QUIET) == (
        f"about {runs[0]} runs for a drop of 5%, about {runs[1]} runs for a drop of 2%, where runs scatter by 0.20%"
    )
    assert estimate(64, 6, 0.02) == "more than 6 for 5%, more than 6 for 2%, where runs scatter by 2.00%"
