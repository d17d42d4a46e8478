"""The smallest drop that a night finds with 80% power. It is printed beside every PASS (docs/verdicts.md, "Calibrate").

It is an approximation, deterministic and cheap. Runs are assumed to be normal with the learned spread. A mean of n runs
is suspected, or confirmed, if n runs that lie about that mean as n normal runs are expected to would have the e-value
that is needed. Of screening, the first and the last look count. Of confirmation, the last pair counts and, for an early
end without a drop, the first look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

from helpers.judging.confirm import FIRST_LOOK
from helpers.judging.evalue import LARGEST_DROP, evalue
from helpers.judging.level import PAIR_TAU
from helpers.judging.screen import AMBIGUOUS_FROM, CLEARLY_NO_DROP, STILL_OPEN, SUSPECT_DROP

POWER = 0.80
LARGEST_REPORTED = 0.5
_NORMAL = NormalDist()
# A first run is expected within so many standard deviations.
_FAR = 6.0
# sigma and tau are rounded up to a ninth of an octave, so that cases with nearly the same noise share one answer.
_PER_OCTAVE = 9
_HALVINGS = 14


@dataclass(frozen=True)
class Detection:
    """How a night finds a drop: by screening, then by confirmation."""

    # Standard deviations of log rates between runs and between nights.
    sigma: float
    tau: float
    # The number of screening runs, and the most of them while the answer is open.
    runs: int
    most_runs: int
    # The most pairs of the confirmation; with 0, only screening can find a drop.
    pairs: int
    # The e-value that the pairs need, and the smallest effect that counts, as a fraction.
    threshold: float
    tolerance: float
    # Whether the confirmation needs a suspicion.
    screened: bool = True
    # The standard deviation of the differences of pairs of unchanged builds.
    pair_tau: float = PAIR_TAU


def smallest_drop(how: Detection) -> float:
    """The smallest drop that is found with 80% power, as a fraction; LARGEST_REPORTED if even that one is not."""
    return smallest_drop_of([how])


def smallest_drop_of(nights: Sequence[Detection]) -> float:
    """The smallest drop that at least one of several nights finds with 80% power, if each has its own noise and the
    drop stays."""
    return _smallest_drop(tuple(map(_rounded, nights)))


def _rounded(how: Detection) -> Detection:
    width = PAIR_TAU if how.pair_tau == PAIR_TAU else rounded_up(how.pair_tau)
    return replace(how, sigma=rounded_up(how.sigma), tau=rounded_up(how.tau), pair_tau=width)


@lru_cache(maxsize=4096)
def _smallest_drop(nights: tuple[Detection, ...]) -> float:
    each_finds = list(map(_power_of, nights))

    def finds(drop: float) -> float:
        return 1 - math.prod(1 - found(drop) for found in each_finds)

    low, high = 0.0, -math.log1p(-LARGEST_REPORTED)
    if finds(high) < POWER:
        return LARGEST_REPORTED
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if finds(middle) >= POWER else (middle, high)
    return -math.expm1(-high)


@lru_cache(maxsize=4096)
def _power_of(how: Detection) -> Callable[[float], float]:
    """The probability that a drop of so many log units is found."""
    suspected = _screening(how) if how.screened else lambda drop: 1.0
    confirmed = _confirmation(how) if how.pairs else lambda drop: 1.0
    return lambda drop: suspected(drop) * confirmed(drop)


def _screening(how: Detection) -> Callable[[float], float]:
    first, last = how.runs, max(how.runs, how.most_runs)
    at_once = mean_where(SUSPECT_DROP, first, how.sigma, how.tau)
    still_open = mean_where(AMBIGUOUS_FROM, first, how.sigma, how.tau)
    at_last = mean_where(STILL_OPEN if how.pairs else SUSPECT_DROP, last, how.sigma, how.tau)
    deviation = math.hypot(how.tau, how.sigma / math.sqrt(first))
    shared = how.tau**2 + how.sigma**2 / last
    slope = shared / deviation**2
    left = math.sqrt(max(shared - slope * shared, 1e-18))
    cells = 32

    def power(drop: float) -> float:
        found = _NORMAL.cdf((at_once + drop) / deviation)
        if last > first:
            start = max(at_once, -drop - _FAR * deviation)
            width = max(still_open - start, 0.0) / cells
            for cell in range(cells):
                seen = start + (cell + 0.5) * width
                share = _NORMAL.pdf((seen + drop) / deviation) / deviation * width
                found += share * _NORMAL.cdf((at_last - (slope * (seen + drop) - drop)) / left)
        return found

    return power


def _confirmation(how: Detection) -> Callable[[float], float]:
    sigma = math.sqrt(2) * how.sigma
    bar = min(mean_where(how.threshold, how.pairs, sigma, how.pair_tau), math.log1p(-how.tolerance))
    dismissed = mean_where(CLEARLY_NO_DROP, FIRST_LOOK, sigma, how.pair_tau)

    def power(drop: float) -> float:
        found = _NORMAL.cdf((bar + drop) / math.hypot(how.pair_tau, sigma / math.sqrt(how.pairs)))
        kept = _NORMAL.cdf((dismissed + drop) / math.hypot(how.pair_tau, sigma / math.sqrt(FIRST_LOOK)))
        return found * kept

    return power


@lru_cache(maxsize=16384)
def mean_where(bar: float, n: int, sigma: float, tau: float) -> float:
    """The mean of n runs for which the e-value of a drop is ``bar``; minus infinity if there is none."""
    scores = [sigma * _NORMAL.inv_cdf((at + 0.625) / (n + 0.25)) for at in range(n)]
    low, high = -LARGEST_DROP, LARGEST_DROP
    if evalue([low + score for score in scores], sigma, tau) < bar:
        return -math.inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = evalue([middle + score for score in scores], sigma, tau) >= bar
        low, high = (middle, high) if above else (low, middle)
    return low


def rounded_up(width: float) -> float:
    return float(2 ** (math.ceil(_PER_OCTAVE * math.log2(width)) / _PER_OCTAVE))
