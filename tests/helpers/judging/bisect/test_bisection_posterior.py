"""The posterior over positions, beside the sum over every hypothesis written out."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from helpers.judging.bisect.posterior import AS_LARGE, GAIN, NO_CHANGE, TWO_CHANGES, choose, two_sizes, weigh
from helpers.judging.case.evalue import FACTORS, LARGEST_DROP, SMALLEST_DROP

pytestmark = pytest.mark.slow

SIGMA = 0.03
PAIRS = {0: [0.01], 2: [0.02, -0.03], 3: [-0.12], 5: [-0.1, -0.13]}
BUILDS = 6


def density(difference: float, level: float, scale: float) -> float:
    near, far = (math.exp(-0.5 * ((difference - level) / scale / width) ** 2) / scale / width for width in (1, 4))
    return 0.93 * near + 0.07 * far


def written_out(prior: list[float]) -> tuple[list[float], float, float]:
    """Probabilities by position, that of two changes, and that of a tolerable answer at 3, hypothesis by hypothesis."""
    step = SIGMA / 4
    levels = [number * step for number in range(-48, 49)]
    sizes = [number * step for number in range(1, 1000) if SMALLEST_DROP <= number * step <= LARGEST_DROP]
    norm = sum(1 / size for size in sizes)

    def size_prior(jump: float) -> float:
        return 0.0 if abs(jump) < SMALLEST_DROP else (GAIN if jump > 0 else 1 - GAIN) / abs(jump) / norm

    total = np.array(prior[1:]).sum()
    weights = [0.0, *(each / total for each in prior[1:])]
    factor_prior = [math.exp(-0.5 * math.log(factor) ** 2) for factor in FACTORS]
    position, two, fine, whole = [0.0] * BUILDS, 0.0, 0.0, 0.0
    for factor, share in zip(FACTORS, factor_prior, strict=True):
        fit = {
            (build, place): math.prod(density(each, level, SIGMA * factor) for each in pairs)
            for build, pairs in PAIRS.items()
            for place, level in enumerate([*levels, 0.0])
        }
        zero = len(levels)
        whole += share * NO_CHANGE * math.prod(fit[build, zero] for build in PAIRS)
        for first in range(1, BUILDS):
            for place, level in enumerate(levels):
                mass = share * (1 - NO_CHANGE) * (1 - TWO_CHANGES) * weights[first] * size_prior(level)
                if not mass:
                    continue
                mass *= math.prod(fit[build, place if build >= first else zero] for build in PAIRS)
                whole += mass
                if level < 0:
                    position[first] += mass
                    fine += mass * (first == 3)
        for first, second in itertools.combinations(range(1, BUILDS), 2):
            # Two changes without a measured build between them count as one.
            if not any(first <= build < second for build in PAIRS):
                continue
            weight = share * (1 - NO_CHANGE) * TWO_CHANGES * 2 * weights[first] * weights[second]
            for place, level in enumerate(levels):
                if not size_prior(level):
                    continue
                before = math.prod(fit[build, zero if build < first else place] for build in PAIRS if build < second)
                for end, after in enumerate(levels):
                    mass = weight * size_prior(level) * size_prior(after - level) * before
                    mass *= math.prod(fit[build, end] for build in PAIRS if build >= second)
                    whole += mass
                    two += mass
                    drops = {first: -level, second: level - after}
                    largest = max(drops, key=lambda each: (drops[each], -each))
                    if drops[largest] > 0:
                        position[largest] += mass
                        mine = drops.get(3, 0.0)
                        fine += mass * (mine > 0 and mine >= AS_LARGE * drops[largest] - 1e-12)
    return [each / whole for each in position], two / whole, fine / whole


def test_every_probability_is_what_the_sum_over_all_hypotheses_gives() -> None:
    prior = [5.0, 1.0, 2.0, 1.0, 0.5, 1.0]
    posterior = weigh(PAIRS, prior, SIGMA)
    position, two, fine = written_out(prior)
    assert posterior.positions == pytest.approx(position, rel=2e-3)
    assert posterior.two_changes == pytest.approx(two, rel=2e-3)
    assert posterior.gaps == ((0, 2), (2, 3), (3, 5), (5, 5))
    assert posterior.in_gap[1] == pytest.approx(fine, rel=2e-3)
    assert posterior.in_gap[1] >= posterior.positions[3]


def test_a_build_between_is_worth_more_than_one_more_pair_of_a_known_one() -> None:
    pairs = {0: [0.0, 0.001], 15: [-0.03, -0.031, -0.029]}
    posterior = weigh(pairs, [1.0] * 16, 0.001)
    build, bits = choose(posterior, range(1, 16), 0.001)
    assert build in (7, 8)
    assert 0.8 < bits <= 1.0
    _, less = choose(posterior, [15], 0.001)
    assert less < 0.05


def test_a_noisy_pair_tells_less() -> None:
    told = []
    for sigma in (0.001, 0.01, 0.03):
        differences = {31: [-0.03] * 40}
        told.append(choose(weigh(differences, [1.0] * 32, sigma), range(1, 32), sigma)[1])
    assert told == sorted(told, reverse=True)


def test_hundreds_of_pairs_and_builds_stay_finite() -> None:
    generator = np.random.default_rng(3)
    pairs = {build: list(generator.normal(-0.03 * (build >= 300), 0.01, 40)) for build in range(10, 400, 13)}
    posterior = weigh(pairs, [1.0] * 400, 0.01)
    assert sum(posterior.positions) + posterior.no_drop == pytest.approx(1)
    assert max(posterior.in_gap) > 0.99
    assert math.isfinite(posterior.bits)


def test_extreme_differences_count_as_the_largest_change() -> None:
    posterior = weigh({4: [-5.0, -6.0], 2: [0.0, 0.0]}, [1.0] * 5, 1e-4)
    assert posterior.slower_at_end > 0.99
    assert posterior.positions[3] + posterior.positions[4] > 0.9


def test_the_sizes_of_two_changes() -> None:
    pairs = {3: [0.0, 0.001], 4: [-0.05, -0.051], 8: [-0.05, -0.049], 9: [-0.07, -0.071, -0.07]}
    posterior = weigh(pairs, [1.0] * 10, 0.001)
    assert posterior.two_changes > 0.99
    sizes = two_sizes(posterior.outlook, 1)
    assert sizes is not None
    (larger, error), (smaller, _) = sizes
    # The mean of the pairs at 4 and 8, and how much lower those at 9 are.
    assert larger == pytest.approx(-0.05, abs=2e-3)
    assert smaller == pytest.approx(-0.0203, abs=2e-3)
    assert 0 < error < 0.002


def test_two_changes_that_no_pair_allows_have_no_sizes() -> None:
    outlook = weigh({2: [-0.05] * 9}, [1.0] * 3, 0.001).outlook
    # A gap in which no larger change lies, as far as the grid goes.
    assert two_sizes(outlook, len(outlook.edges)) is None


def test_the_error_of_a_change_counts_that_it_may_be_the_first_or_the_second_one() -> None:
    """Both are as likely: a first change of -5% before one of -2%, or a second of -7% after one of -2%."""
    outlook = replace(
        weigh({1: [0.0], 5: [-0.03], 9: [-0.09]}, [1.0] * 10, 0.005).outlook,
        weights=np.array([0.5, 0.5]),
        targets=np.array([1, 1]),
        first=np.array([1, 0]),
        second=np.array([2, 1]),
        means=np.array([[0.0, -0.05, -0.07], [0.0, -0.02, -0.09]]),
        spreads=np.array([[0.0, 0.003, 0.004], [0.0, 0.003, 0.004]]),
    )
    # A second change has the errors of both levels, hypot(0.003, 0.004).
    own = (0.003**2 + 0.005**2) / 2
    expected = ((-0.06, math.sqrt(own + 0.01**2)), (-0.02, math.sqrt(own)))
    assert two_sizes(outlook, 1) == tuple(pytest.approx(each) for each in expected)
