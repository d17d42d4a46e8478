"""Slow drift: a slope that no single step explains, and what it adds up to.

The slope is the median of the slopes of all pairs of nights that no step lies between (Theil and Sen), its interval
Sen's (1968) over pieces as in Hirsch, Slack and Smith (1982): one bad night moves neither.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# The normal's two-sided quantiles: what is shown, and what has to be exceeded to be called a drift (as Otava's p).
_SHOWN_Z = 1.960
_SURE_Z = 3.291
# With fewer, Kendall's statistic is not yet normal.
LEAST_NIGHTS = 10
# A piece this exact has no noise to estimate a likelihood from.
_LEAST_DEVIATION = 1e-12


@dataclass(frozen=True)
class Slope:
    """Of log rates a night, with its 95% interval; ``sure`` when the interval at p = 0.001 leaves 0 out."""

    slope: float
    low: float
    high: float
    sure: bool


@dataclass(frozen=True)
class Drift:
    """What a slope adds up to from the first night to the last, as a fraction with its 95% interval (-0.03 is 3%
    slower); ``nights`` from ``first`` on. ``explains_steps``: a straight line tells the series better than its steps,
    which then are the drift's own.
    """

    effect: float
    low: float
    high: float
    nights: int
    first: int
    explains_steps: bool = False

    @property
    def a_night(self) -> float:
        return math.expm1(math.log1p(self.effect) / (self.nights - 1))


def find_drift(values: Sequence[float], steps: Sequence[int], first: int, least_effect: float) -> Drift | None:
    """The drift of ``values`` (rates above 0) from index ``first`` on, None where there is none to be sure of.

    ``steps`` are the indices at which a new level starts. A drift below ``least_effect`` is none.
    """
    logs = [math.log(value) for value in values[first:]]
    cuts = [step - first for step in steps if step > first]
    if len(logs) < LEAST_NIGHTS:
        return None
    whole = slope_within([logs])
    line = bool(cuts) and whole is not None and _line_is_better(logs, cuts, whole.slope)
    slope = whole if line else slope_within(pieces(logs, cuts))
    if slope is None or not slope.sure:
        return None
    effect, low, high = (math.expm1(each * (len(logs) - 1)) for each in (slope.slope, slope.low, slope.high))
    if abs(effect) < least_effect:
        return None
    return Drift(effect, low, high, len(logs), first, line)


def pieces(logs: Sequence[float], cuts: Sequence[int]) -> list[Sequence[float]]:
    """What lies between the cuts."""
    edges = [0, *cuts, len(logs)]
    return [logs[start:stop] for start, stop in itertools.pairwise(edges)]


def slope_within(parts: Sequence[Sequence[float]]) -> Slope | None:
    """One slope for all parts, each with a level of its own; None where too few pairs bound it."""
    slopes = sorted(
        (part[later] - part[earlier]) / (later - earlier)
        for part in parts
        for later in range(len(part))
        for earlier in range(later)
    )
    variance = sum(len(part) * (len(part) - 1) * (2 * len(part) + 5) for part in parts) / 18
    bounds = _bounds(slopes, _SHOWN_Z * math.sqrt(variance))
    if bounds is None:
        return None
    sure = _bounds(slopes, _SURE_Z * math.sqrt(variance))
    return Slope(statistics.median(slopes), *bounds, sure is not None and (sure[0] > 0 or sure[1] < 0))


def _bounds(slopes: Sequence[float], ranks: float) -> tuple[float, float] | None:
    below, above = math.floor((len(slopes) - ranks) / 2), math.ceil((len(slopes) + ranks) / 2)
    if below < 0 or above >= len(slopes):
        return None
    return slopes[below], slopes[above]


def _line_is_better(logs: Sequence[float], cuts: Sequence[int], slope: float) -> bool:
    """By Schwarz's criterion with absolute deviations: a line has two parameters, each step a place and a level."""
    tilted = [value - slope * night for night, value in enumerate(logs)]
    levels = sum(_deviation(part) for part in pieces(logs, cuts))

    def cost(deviation: float, parameters: int) -> float:
        return 2 * len(logs) * math.log(max(deviation, _LEAST_DEVIATION)) + parameters * math.log(len(logs))

    return cost(_deviation(tilted), 2) < cost(levels, 2 * len(cuts) + 1)


def _deviation(part: Sequence[float]) -> float:
    centre = statistics.median(part)
    return sum(abs(value - centre) for value in part)
