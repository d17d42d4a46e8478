"""Estimates how many runs a search for the first bad build takes, by simulated searches."""

from __future__ import annotations

import math
import random

from helpers.judging.bisect.search import CERTAIN, Bisection, MeasuredPair, Measurement, NeedPairs, next_step

# The drops for which the number of runs is estimated, as fractions, and how many searches are simulated for each.
_DROPS, _SEARCHES = (0.05, 0.02), 7


def usual_runs(builds: int, most_runs: int, drop: float, sigma: float) -> int | None:
    """How many runs a search among ``builds`` builds takes: the median of simulated searches. ``drop`` is a fraction,
    ``sigma`` the standard deviation between runs. None if ``most_runs`` are too few for most of the searches."""
    search = Bisection(tuple(map(str, range(builds))), sigma, budget_runs=most_runs)
    taken = sorted(_simulated(search, drop, random.Random(seed)) for seed in range(_SEARCHES))
    middle = taken[_SEARCHES // 2]
    return None if math.isinf(middle) else int(middle)


def _simulated(search: Bisection, drop: float, source: random.Random) -> float:
    first_bad = source.randrange(1, search.bad + 1)
    measured: list[Measurement] = []
    while isinstance(step := next_step(search, measured), NeedPairs):
        level = math.log1p(-drop) if step.build >= first_bad else 0.0
        for _ in range(step.pairs):
            rates = source.gauss(0, search.sigma), level + source.gauss(0, search.sigma)
            measured.append(MeasuredPair(step.build, *rates))
    return math.inf if step.probability < CERTAIN else step.runs


def estimate(builds: int, most_runs: int, sigma: float) -> dict[float, int | None]:
    """How many runs a search takes for each of some drops; None where ``most_runs`` are too few."""
    return {drop: usual_runs(builds, most_runs, drop, sigma) for drop in _DROPS}
