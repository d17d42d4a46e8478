"""How many runs a case takes on a night on which its build is as fast as before. Pure.

The night's time is laid out by these numbers (helpers.judging.night_layout). They are expectations: runs are assumed to
be normal with the learned spread, as in helpers.judging.power, and a mean of n runs has the e-value of n runs that lie
about it as normal runs are expected to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from helpers.judging.power import mean_where, rounded_up
from helpers.judging.screen import AMBIGUOUS_BELOW, AMBIGUOUS_FROM, STILL_OPEN, SUSPECT_DROP

# Mean pairs by the standard deviation between runs (`python -m benchmarks.verdict_hours --pairs`; 400 nights each,
# seed 1). Between them by straight lines in log sigma; beyond them the nearest one. These are the pairs of an unchanged
# build that is compared with the good one although nothing is suspected.
UNSUSPECTED_PAIRS = ((0.0005, 2.0), (0.001, 2.0), (0.002, 2.1), (0.005, 2.8), (0.01, 4.0), (0.02, 6.5), (0.04, 11.7))
# These are the pairs of builds that are slower by 1, 2, 3 or 5%, whether the drop is found or not: the mean of all.
DROP_PAIRS = ((0.0005, 2.3), (0.001, 2.9), (0.002, 4.2), (0.005, 7.9), (0.01, 12.7), (0.02, 18.6), (0.04, 25.0))
_CELLS = 241
_FAR = 6.0


@dataclass(frozen=True)
class ScreeningCost:
    """What screening an unchanged build takes."""

    # Expected runs.
    runs: float
    # The probability that it goes to confirmation.
    suspected: float


def screening_cost(sigma: float, tau: float, runs: int, most_runs: int, *, confirmed: bool) -> ScreeningCost:
    """The cost of screening with at least ``runs`` and at most ``most_runs`` runs. ``confirmed`` says whether a good
    build is at hand, by which a case that is still open after its last run goes to confirmation."""
    return _screening_cost(rounded_up(sigma), rounded_up(tau), runs, max(runs, most_runs), confirmed)


@lru_cache(maxsize=4096)
def _screening_cost(sigma: float, tau: float, runs: int, most: int, confirmed: bool) -> ScreeningCost:
    width = math.hypot(tau, sigma / math.sqrt(runs))
    means = np.linspace(-_FAR * width, _FAR * width, _CELLS)
    step = means[1] - means[0]
    # The probability that so many runs are made and have this mean.
    density = np.exp(-0.5 * (means / width) ** 2) / (width * math.sqrt(2 * math.pi)) * step
    expected, suspected = float(runs), 0.0
    for made in range(runs, most + 1):
        last = made == most
        bar = STILL_OPEN if last and confirmed and most > 1 else SUSPECT_DROP
        below = means <= mean_where(bar, made, sigma, tau)
        suspected += float(density[below].sum())
        if last:
            break
        is_open = ~below & (means <= mean_where(AMBIGUOUS_FROM, made, sigma, tau))
        reached = float(density[is_open].sum())
        expected += reached
        shrunk = tau**2 / (tau**2 + sigma**2 / made)
        centre = means[is_open] * (made + shrunk) / (made + 1)
        spread = math.sqrt(sigma**2 + tau**2 * (1 - shrunk)) / (made + 1)
        moved = np.exp(-0.5 * ((means[:, None] - centre) / spread) ** 2)
        density = (moved / np.maximum(moved.sum(axis=0), 1e-300)) @ density[is_open]
    return ScreeningCost(expected, suspected)


def unsuspected_pairs(sigma: float, most: int) -> float:
    """Expected pairs of unchanged builds, of at most ``most``."""
    return _pairs(UNSUSPECTED_PAIRS, sigma, most)


def drop_pairs(sigma: float, most: int) -> float:
    """Expected pairs of a build that is slower by a few percent, of at most ``most``."""
    return _pairs(DROP_PAIRS, sigma, most)


def _pairs(table: Sequence[tuple[float, float]], sigma: float, most: int) -> float:
    sigmas, pairs = zip(*table, strict=True)
    return min(float(np.interp(math.log(sigma), np.log(sigmas), pairs)), float(most))


assert AMBIGUOUS_BELOW == SUSPECT_DROP, "a case that is no longer open above is suspected"
