"""Ratios of two ways to do the same work, measured side by side: one pair of processes, one observation.

Other users of a machine change its speed from second to second, and a process has luck of its own with
its memory. So two processes take turns, round by round; the median of the rounds' ratios stands for the
pair, and the interval is over pairs of fresh processes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helpers.judging.statistics import student_t_95
from helpers.trainers.contract.errors import SuiteError


@dataclass(frozen=True)
class Ratio:
    """Geometric mean of n pairs' ratios and its 95% interval (Student's t over the logarithms)."""

    centre: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.centre:.4f} ({self.low:.4f} to {self.high:.4f}, n={self.n})"

    def lies_below(self, limit: float) -> bool:
        """The whole interval is under ``limit``."""
        return self.high < limit


def pair_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the rounds' ratios of one pair of processes. SuiteError unless all are finite and above 0."""
    if len(numerators) != len(denominators) or not numerators:
        raise SuiteError(
            "rounds of a pair",
            got=f"{len(numerators)} and {len(denominators)}",
            expected="as many of the one as of the other, at least one",
        )
    for value in (*numerators, *denominators):
        if not math.isfinite(value) or value <= 0:
            raise SuiteError("a round's measure", got=value, expected="a finite number above 0")
    return math.exp(
        statistics.median(math.log(over / under) for over, under in zip(numerators, denominators, strict=True))
    )


def ratio_of(pairs: Iterable[float]) -> Ratio:
    """The ratio that pairs of processes agree on. SuiteError below 2 pairs, and unless all are finite and above 0."""
    values = tuple(pairs)
    if len(values) < 2:
        raise SuiteError("pairs of processes", got=len(values), expected="2 or more: one pair has no interval")
    for value in values:
        if not math.isfinite(value) or value <= 0:
            raise SuiteError("the ratio of a pair", got=value, expected="a finite number above 0")
    logs = [math.log(value) for value in values]
    centre = statistics.fmean(logs)
    half = student_t_95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half), len(logs))
