"""The smallest drop a night finds: against nights that are played out, and in what it depends on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from helpers.judging.case.evidence import Build, Night, Past
from helpers.judging.case.judge import judge
from helpers.judging.case.power import LARGEST_REPORTED, Detection, smallest_drop
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from tests.helpers.judging.case.evidences import CENTRE, GOOD, evidence, good, new, run

pytestmark = pytest.mark.slow

HOW = Detection(sigma=0.004, tau=0.002, runs=1, most_runs=3, pairs=16, threshold=200, tolerance=0.005)


def night(rng: np.random.Generator, past: Past, sigma: float, drop: float, good_build: str | None) -> Verdict:
    """One night of a case whose new build is slower by ``drop``, to its verdict."""
    offset, change, runs = CENTRE + 0.4 * sigma * rng.normal(), math.log1p(-drop), []
    while isinstance(answer := judge(replace(evidence(*runs, reference_build=good_build), past=past)), NeedRuns):
        for build in answer.order:
            rate = offset + sigma * rng.normal() + (change if build is Build.CANDIDATE else 0.0)
            make = run if answer.stage.value == "screen" else (new if build is Build.CANDIDATE else good)
            runs.append(make(rate))
    return answer


def before(rng: np.random.Generator, sigma: float) -> Past:
    spread = math.hypot(sigma, 0.4 * sigma)
    own = tuple(Night((CENTRE + spread * rng.normal(),)) for _ in range(40))
    return Past(own, tuple(tuple((CENTRE + spread * rng.normal(size=40)).tolist()) for _ in range(8)))


@pytest.mark.parametrize(("sigma", "good_build"), [(0.0007, GOOD), (0.003, GOOD), (0.003, None), (0.012, None)])
def test_the_drop_that_pass_prints_is_found_four_times_in_five(sigma: float, good_build: str | None) -> None:
    rng = np.random.default_rng(11)
    found, nights = 0, 60
    for _ in range(nights):
        past = before(rng, sigma)
        told = night(rng, past, sigma, 0.0, good_build).standing
        assert told is not None and told.smallest_drop is not None
        answer = night(rng, past, sigma, told.smallest_drop, good_build)
        found += answer.status in ((Status.REGRESSION,) if good_build else (Status.INCONCLUSIVE,))
    # With 1,000 nights: 80% to 90%.
    assert 0.70 <= found / nights <= 0.96


@pytest.mark.parametrize(
    "worse",
    [{"sigma": 0.008}, {"tau": 0.006}, {"threshold": 1e6}, {"tolerance": 0.03}, {"pairs": 3}, {"most_runs": 1}],
)
def test_noise_bars_and_fewer_runs_hide_larger_drops(worse: dict[str, float]) -> None:
    assert smallest_drop(replace(HOW, **worse)) > smallest_drop(HOW)


@pytest.mark.parametrize("better", [{"runs": 5, "most_runs": 5}, {"screened": False}])
def test_more_runs_and_fewer_hurdles_find_smaller_ones(better: dict[str, float]) -> None:
    assert smallest_drop(replace(HOW, **better)) < smallest_drop(HOW)


def test_nothing_within_the_tolerance_is_found() -> None:
    quiet = replace(HOW, sigma=0.0002, tau=0.0007)
    assert 0.05 < smallest_drop(replace(quiet, tolerance=0.05)) < 0.052


def test_where_noise_hides_everything_the_largest_is_told() -> None:
    assert smallest_drop(replace(HOW, sigma=0.5, tau=0.3)) == LARGEST_REPORTED


def test_nearly_the_same_noise_gives_the_same_answer() -> None:
    assert smallest_drop(HOW) == pytest.approx(smallest_drop(replace(HOW, sigma=0.004001)), rel=0.1)
