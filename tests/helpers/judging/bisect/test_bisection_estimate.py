"""How many runs a search for the first bad build is said to take before it begins."""

from __future__ import annotations

import pytest

from helpers.judging.bisect.estimate import estimate, usual_runs

pytestmark = pytest.mark.slow

QUIET = 0.002


def test_more_builds_smaller_drops_and_noise_take_more_runs() -> None:
    runs = usual_runs(16, 500, 0.05, QUIET)
    more_builds, smaller_drop, more_noise = (
        usual_runs(64, 500, 0.05, QUIET), usual_runs(16, 500, 0.01, QUIET), usual_runs(16, 500, 0.05, 5 * QUIET),
    )  # fmt: skip
    assert runs is not None
    assert 2 < runs < min(more_builds or 0, smaller_drop or 0, more_noise or 0)


def test_a_budget_that_is_too_small_for_most_searches_gives_no_number() -> None:
    assert usual_runs(64, 6, 0.05, 0.02) is None


def test_there_is_an_estimate_for_each_drop() -> None:
    assert estimate(16, 500, QUIET) == {drop: usual_runs(16, 500, drop, QUIET) for drop in (0.05, 0.02)}
