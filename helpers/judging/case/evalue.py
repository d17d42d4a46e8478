"""The e-value of a drop (or a gain): how much better "slower" explains the runs than "as before" does.

docs/verdicts.md, "Evidence": it is the ratio of two marginal likelihoods of the differences x, logarithms of samples/s.
As before: all runs share an offset mu ~ N(0, tau^2). Slower: mu ~ N(-delta, tau^2), with delta log-uniform on 0.4 to
20%. Both: run noise 0.93 N(0, s^2) + 0.07 N(0, (4 s)^2) with s = k sigma and k unknown. It may be looked at after every
run: if there is no drop, the probability that it ever reaches 1/a is at most a.

The same likelihood, with nothing assumed about the change, says where runs lie (`interval`) and how much they scatter
(`noise_factor`). The module loads numpy and scipy, so code that only lists cases must not import it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtr

from helpers.trainers.contract.errors import SuiteError

Array = np.ndarray[Any, np.dtype[np.float64]]

SMALLEST_DROP, LARGEST_DROP = 0.004, 0.20
TAIL_SHARE, TAIL_WIDTH = 0.07, 4.0

# By what factor the learned sigma may be wrong, with log-normal weights about 1. A width of 0.6 breaks the error bound
# when sigma was learned four times too small; 1.0 holds (docs/verdicts.md, "Evidence").
FACTORS = np.geomspace(0.5, 11.0, 16)
LOG_FACTOR_WEIGHTS = -0.5 * np.log(FACTORS) ** 2
LOG_FACTOR_WEIGHTS -= np.log(np.exp(LOG_FACTOR_WEIGHTS).sum())

_DROPS = np.geomspace(SMALLEST_DROP, LARGEST_DROP, 48)
# Where tau is smaller than the gaps between the drops, each drop is widened until no gap is left.
_DROP_WIDTHS = 0.6 * _DROPS * (_DROPS[1] / _DROPS[0] - 1)

# Nodes about a centre, in units of its width: a fifth of it apart near the centre, a fifth of their distance further
# out.
FAR = np.sinh(np.arange(-60, 61) * 0.2)
_NEAR = np.sinh(np.arange(-14, 15) * 0.2)
_LARGEST_LOG = 690.0
# The smallest product of so many runs, if all lie in the tails, is 1e-176.
_MULTIPLIED = 100

# What interval() covers, and how narrow a night effect may be.
_COVERED = 0.95
_LEAST_NIGHT = 1e-9
# How far from the runs an offset is searched, in sigmas: a few times the widest factor, whose tail is four times as
# wide.
_REACH = 11.0 * 4.0 * 4.0


class Direction(enum.Enum):
    """The direction of a change; the value is its sign in log samples/s."""

    DROP = -1
    GAIN = 1


def evalue(x: Sequence[float], sigma: float, tau: float, direction: Direction = Direction.DROP) -> float:
    """The evidence for ``direction`` in ``x``, log rates minus the expected one; 1 says nothing, 200 is 200 to 1.

    ``sigma`` is the standard deviation between runs, ``tau`` that of the offset that all of ``x`` share. The result is
    1 for no runs. Raises SuiteError for a NaN and for a width that is not above 0.
    """
    drop, gain = _both(tuple(float(value) for value in x), float(sigma), float(tau))
    return drop if direction is Direction.DROP else gain


def odds_against(x: Sequence[float], sigma: float, tau: float, drop: float) -> float:
    """How much better "as before" explains ``x`` than a drop of ``drop`` log units does. The other arguments are those
    of evalue().

    It is an e-value against that drop: if the drop is there, the probability that it ever reaches 1/a is at most a, and
    for a larger drop it is smaller still.
    """
    return math.exp(_log_as_before(x, sigma, tau) - _log_as_before([value + drop for value in x], sigma, tau))


def _log_as_before(x: Sequence[float], sigma: float, tau: float) -> float:
    """Logarithm of how likely ``x`` is without a change."""
    data = np.clip(x, -2 * LARGEST_DROP, 2 * LARGEST_DROP)
    offsets = _offsets(data, sigma, tau)
    steps = np.gradient(offsets)
    steps[[0, -1]] /= 2
    return _log_sum(log_likelihood(data, offsets, sigma) + _log_normal(offsets, tau) + np.log(steps))


@lru_cache(maxsize=4096)
def _both(x: tuple[float, ...], sigma: float, tau: float) -> tuple[float, float]:
    """The e-values of a drop and of a gain, from one pass over the likelihood."""
    if not all(map(math.isfinite, (*x, sigma, tau))) or sigma <= 0 or tau <= 0:
        raise SuiteError("e-value", got=(x, sigma, tau), expected="finite log rates, sigma and tau above 0")
    if not x:
        return 1.0, 1.0
    # A change beyond the largest counts as the largest. Otherwise half the samples/s would be taken for an unlucky run
    # more readily than a fifth less.
    data = np.clip(x, -LARGEST_DROP, LARGEST_DROP)
    offsets = _offsets(data, sigma, tau)
    steps = np.gradient(offsets)
    steps[[0, -1]] /= 2
    fit = log_likelihood(data, offsets, sigma)
    log_steps = np.log(steps)
    as_before = _log_sum(fit + _log_normal(offsets, tau) + log_steps)
    drop = _log_sum(fit + _log_changed(-offsets, tau) + log_steps) - as_before
    gain = _log_sum(fit + _log_changed(offsets, tau) + log_steps) - as_before
    return tuple(math.exp(min(max(each, -_LARGEST_LOG), _LARGEST_LOG)) for each in (drop, gain))  # type: ignore[return-value]


def _offsets(data: Array, sigma: float, tau: float) -> Array:
    """Values of mu, ascending: close together wherever a prior or the likelihood is narrow."""
    width = float(FACTORS[0]) * sigma / math.sqrt(len(data))
    edge = math.hypot(tau, float(_DROP_WIDTHS[0]))
    reach = 1.2 * max(float(np.abs(data).max()), LARGEST_DROP) + 8 * tau
    centres = [tau * FAR, edge * _NEAR - SMALLEST_DROP, edge * _NEAR + SMALLEST_DROP, data.mean() + width * FAR]
    if len(data) > 1:
        centres.append((data[:, None] + width * _NEAR).ravel())
    offsets = np.concatenate(centres)
    # Nodes closer together than the finest scale needs would only cost time.
    finest = min(width, tau) / 5
    nodes: Array = np.unique(np.round(offsets[np.abs(offsets) <= reach] / finest)) * finest
    return nodes


def log_likelihood(data: Array, offsets: Array, sigma: float) -> Array:
    """Log of the probability of all runs, by factor k (rows) and offset (columns), weights of k included."""
    scales = sigma * FACTORS[:, None]
    squares = (data[:, None, None] - offsets) ** 2 / scales**2
    # The wide part is taken out of the sum, so that no run underflows and a product of not too many runs stands for a
    # sum of logarithms.
    wide = 1 / TAIL_WIDTH**2
    mixed: Array = TAIL_SHARE / TAIL_WIDTH + (1 - TAIL_SHARE) * np.exp(-0.5 * (1 - wide) * squares)
    fit: Array = -0.5 * wide * squares.sum(axis=0)
    for start in range(0, len(mixed), _MULTIPLIED):
        fit += np.log(mixed[start : start + _MULTIPLIED].prod(axis=0))
    fit += LOG_FACTOR_WEIGHTS[:, None] - len(data) * np.log(scales)
    return fit


def _log_normal(offsets: Array, width: float | Array) -> Array:
    """Log of the normal density, without the constant that both hypotheses share."""
    density: Array = -0.5 * (offsets / width) ** 2 - np.log(width)
    return density


def _log_changed(offsets: Array, tau: float) -> Array:
    """Log density of mu if there is a change, averaged over its sizes; positive ``offsets`` lie in its direction."""
    # In the other direction each drop is as narrow as tau, because the far tail of a wide large drop must not explain a
    # gain.
    widths = np.where(offsets < 0, tau, np.hypot(tau, _DROP_WIDTHS)[:, None])
    each = _log_normal(offsets - _DROPS[:, None], widths)
    highest = each.max(axis=0)
    mean: Array = highest + np.log(np.exp(each - highest).mean(axis=0))
    return mean


def _log_sum(values: Array) -> float:
    highest = float(values.max())
    return highest + math.log(float(np.exp(values - highest).sum()))


def interval(x: Sequence[float], sigma: float, night: float) -> tuple[float, float]:
    """The central 95% of the offset that all of ``x`` (at least one) share, apart from the night's own effect.

    ``sigma`` is the expected standard deviation between runs, ``night`` that of the night's effect,
    which all of them share too.
    """
    return _interval(tuple(float(value) for value in x), float(sigma), float(night))


def noise_factor(log_rates: Sequence[float], sigma: float) -> float:
    """How many times ``sigma`` the runs scatter, wherever they lie: the factor k that is likely for them.

    It is the mean of log k, weighed as in the e-value: 1 for a single run, at most 11.
    """
    if len(log_rates) < 2:
        return 1.0
    offsets, fit = _fit(tuple(float(rate) for rate in log_rates), float(sigma))
    weights = np.exp(fit - fit.max()) * np.gradient(offsets)
    of_factor = weights.sum(axis=1)
    return math.exp(float((of_factor * np.log(FACTORS)).sum() / of_factor.sum()))


@lru_cache(maxsize=4096)
def _interval(x: tuple[float, ...], sigma: float, night: float) -> tuple[float, float]:
    offsets, fit = _fit(x, sigma)
    weights = (np.exp(fit - fit.max()).sum(axis=0)) * np.gradient(offsets)
    weights /= weights.sum()
    width = max(night, _LEAST_NIGHT)
    reach = 10.0 * width

    def quantile(share: float) -> float:
        low, high = float(offsets[0]) - reach, float(offsets[-1]) + reach
        for _ in range(48):
            middle = (low + high) / 2
            below = float((weights * ndtr((middle - offsets) / width)).sum()) < share
            low, high = (middle, high) if below else (low, middle)
        return (low + high) / 2

    return quantile((1 - _COVERED) / 2), quantile((1 + _COVERED) / 2)


def _fit(x: tuple[float, ...], sigma: float) -> tuple[Array, Array]:
    """Values of the offset about all of ``x``, and the log likelihood by noise factor (rows) and offset (columns)."""
    data = np.array(x)
    # From the peak of a single run with the narrowest noise out to where the widest noise leaves nothing.
    width = float(FACTORS[0]) * sigma / math.sqrt(len(data))
    about = np.concatenate([(data[:, None] + width * FAR).ravel(), data.mean() + width * FAR])
    reach = _REACH * sigma
    inside = about[(about > data.min() - reach) & (about < data.max() + reach)]
    finest = width / 5
    offsets = np.unique(np.round((inside - data[0]) / finest)) * finest + data[0]
    return offsets, log_likelihood(data, offsets, sigma)
