"""How far healthy nodes, or healthy cards of a node, are apart, learned from the fast half of a fleet. Pure.

Its functions call both nodes. The module loads numpy and scipy, so code that only lists cases must not import it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from helpers.judging.fleet_verdict import FleetRules
from helpers.judging.statistics import SIGMA_PER_MAD

Array = np.ndarray[Any, np.dtype[np.float64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]
Places = np.ndarray[Any, np.dtype[np.intp]]
# Degrees of freedom of the tails that healthy nodes may have; the last is nearly the normal distribution.
TAILS = (3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 1000.0)
_EM_STEPS = 25
# No two nodes agree better than the smallest night effect that helpers.judging.noise expects.
LEAST_SCALE = 0.0007


@dataclass(frozen=True)
class Noise:
    """How healthy nodes differ."""

    # The usual standard deviation, of log rates.
    usual: float
    # Their distribution, in units of ``usual``.
    tail: Tail


def compared(
    shift: Array,
    error: Array,
    healthy: Truths,
    spread: float | None,
    rules: FleetRules,
    tails: Sequence[float],
    others: int,
) -> tuple[Noise, Array]:
    """The noise of the ``shift`` of healthy nodes, and each node's p-value. ``error`` is the standard error of each
    node's own shift, ``others`` is with how many others a node was compared."""
    if spread is None:
        middle = float(np.median(shift[healthy]))
        usual_error = float(np.median(error[healthy] ** 2))
        common = max(fast_scale(shift[healthy] - middle) ** 2 - usual_error, 0.0)
        base = np.sqrt(common + error**2)
        tail = Tail.of((shift[healthy] - middle) / base[healthy], float(np.median(base)), rules, tails)
    else:
        # The median of the others has an error, too.
        cost = 1 + median_variance(others)
        middle, base, tail = 0.0, np.sqrt(cost * (spread**2 + error**2)), Tail.normal()
    return Noise(float(np.median(base[healthy])), tail), tail.below((shift - middle) / base)


def median_variance(count: int) -> float:
    """The variance of the median of ``count`` values, each of which has the variance 1."""
    return min(math.pi / 2, max(1.0, count / 2)) / count


def spread_about_zero(values: Array) -> float:
    """The standard deviation of ``values`` whose middle is 0, by the median of their distances from it; NaN is left
    out."""
    known = values[~np.isnan(values)]
    return SIGMA_PER_MAD * float(np.median(np.abs(known))) if len(known) else LEAST_SCALE


def fast_scale(values: Array) -> float:
    """The standard deviation of the fast half: as if the slow half were its mirror image."""
    fast = values[values >= 0]
    return max(SIGMA_PER_MAD * float(np.median(fast)) if len(fast) else 0.0, LEAST_SCALE)


@dataclass(frozen=True)
class Tail:
    """How healthy nodes vary, in units of their expected spread: a mixture of Student's t distributions.

    The weights say how well each explains the fast half. With few nodes heavy tails cannot be excluded, so that a node
    must then be much slower to be called slow.
    """

    freedom: Array
    scales: Array
    weights: Array

    @classmethod
    def normal(cls) -> Tail:
        return cls(np.array([TAILS[-1]]), np.ones(1), np.ones(1))

    @classmethod
    def of(cls, values: Array, unit: float, rules: FleetRules, tails: Sequence[float]) -> Tail:
        """``values`` of healthy nodes, in units of ``unit`` (a log rate)."""
        fast = np.abs(values[values >= 0])
        own = (len(values) - 1) / 2
        scales, logs = [], []
        for freedom in tails:
            scale = _scale_of(fast, freedom)
            logs.append(_log_density(fast / scale, freedom) - len(fast) * math.log(scale))
            expected = math.log(rules.unknown_spread / unit) * rules.worth_nodes
            scales.append(math.exp((expected + own * math.log(scale)) / (rules.worth_nodes + own)))
        # Heavy tails are expected: the farthest of many nodes shows what the others do not.
        logs = [log - math.log(freedom) / 2 for log, freedom in zip(logs, tails, strict=True)]
        weights = np.exp(np.array(logs) - max(logs))
        freedom = np.minimum(np.array(tails), max(own, 1.0))
        return cls(freedom, np.array(scales), weights / weights.sum())

    @property
    def scale(self) -> float:
        """The standard deviation of a normal distribution with the same middle half."""
        return float((self.weights * self.scales * stdtrit(self.freedom, 0.75)).sum() / 0.6745)

    def below(self, values: Array) -> Array:
        """The probability that a healthy node is as slow as each of ``values``."""
        each = stdtr(self.freedom[:, None], values[None, :] / self.scales[:, None])
        found: Array = (self.weights[:, None] * each).sum(axis=0)
        return found

    def quantile(self, probability: float) -> float:
        """The value below which a healthy node lies with this small probability."""
        low, high = -1e6, 0.0
        for _ in range(80):
            middle = -math.sqrt(low * high) if high < -1e-3 else low / 2 if low < -2e-3 else high
            if float(self.below(np.array([middle]))[0]) < probability:
                low = middle
            else:
                high = middle
        return high


def _scale_of(fast: Array, freedom: float) -> float:
    """The likeliest scale of the upper half of a t distribution (expectation maximisation)."""
    scale = max(SIGMA_PER_MAD * float(np.median(fast)), 1e-6)
    for _ in range(_EM_STEPS):
        weights = (freedom + 1) / (freedom + (fast / scale) ** 2)
        scale = max(math.sqrt(float((weights * fast**2).mean())), 1e-6)
    return scale


def _log_density(values: Array, freedom: float) -> float:
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    return float((constant - (freedom + 1) / 2 * np.log1p(values**2 / freedom)).sum())
