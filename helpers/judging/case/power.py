"""The smallest drop that a night finds with 80% power. Every PASS prints it.

docs/verdicts.md, "The minimum detectable drop".

It is an approximation, deterministic and cheap. Runs are assumed to be normal with the learned spread. A mean of n runs
is suspected, or confirmed, if n runs that lie about that mean as n normal runs are expected to would have the e-value
that is needed. A drop is found if it passes every hurdle: it is still open after the first look of the screening, and
suspected at the last one; the first pairs do not dismiss it, and the last ones confirm it. Looks at the same runs
depend on each other, so of a stage the higher hurdle counts, and the probabilities of the two stages are multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

from helpers.judging.case.confirm import FIRST_LOOK
from helpers.judging.case.evalue import LARGEST_DROP, evalue
from helpers.judging.case.level import PAIR_TAU
from helpers.judging.case.screen import AMBIGUOUS_FROM, CLEARLY_NO_DROP, STILL_OPEN, SUSPECT_DROP
from helpers.judging.case.verdict import LARGEST_REPORTED

POWER = 0.80
_NORMAL = NormalDist()
# sigma and tau are rounded up to a ninth of an octave, so that cases with nearly the same noise share one answer.
_PER_OCTAVE = 9
_HALVINGS = 14
# The mean that some runs must not exceed, and the standard deviation of that mean.
_Hurdle = tuple[float, float]


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
    width = PAIR_TAU if how.pair_tau == PAIR_TAU else _rounded_up(how.pair_tau)
    return _smallest_drop(replace(how, sigma=_rounded_up(how.sigma), tau=_rounded_up(how.tau), pair_tau=width))


@lru_cache(maxsize=4096)
def _smallest_drop(how: Detection) -> float:
    stages = _stages(how)

    def passes(drop: float, hurdles: Sequence[_Hurdle]) -> float:
        return min(_NORMAL.cdf((bar + drop) / width) for bar, width in hurdles)

    def finds(drop: float) -> float:
        return math.prod(passes(drop, stage) for stage in stages)

    low, high = 0.0, -math.log1p(-LARGEST_REPORTED)
    if finds(high) < POWER:
        return LARGEST_REPORTED
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if finds(middle) >= POWER else (middle, high)
    return -math.expm1(-high)


def _stages(how: Detection) -> list[list[_Hurdle]]:
    found = []
    if how.screened:
        first, last = how.runs, max(how.runs, how.most_runs)
        looks = [(SUSPECT_DROP, first)]
        if last > first:
            looks = [(AMBIGUOUS_FROM, first), (STILL_OPEN if how.pairs else SUSPECT_DROP, last)]
        found.append([_hurdle(bar, runs, how.sigma, how.tau) for bar, runs in looks])
    if how.pairs:
        sigma = math.sqrt(2) * how.sigma
        mean, width = _hurdle(how.threshold, how.pairs, sigma, how.pair_tau)
        confirmed = min(mean, math.log1p(-how.tolerance)), width
        found.append([_hurdle(CLEARLY_NO_DROP, FIRST_LOOK, sigma, how.pair_tau), confirmed])
    return found


def _hurdle(bar: float, runs: int, sigma: float, tau: float) -> _Hurdle:
    return _mean_where(bar, runs, sigma, tau), math.hypot(tau, sigma / math.sqrt(runs))


@lru_cache(maxsize=16384)
def _mean_where(bar: float, n: int, sigma: float, tau: float) -> float:
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


def _rounded_up(width: float) -> float:
    return float(2 ** (math.ceil(_PER_OCTAVE * math.log2(width)) / _PER_OCTAVE))
