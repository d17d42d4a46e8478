"""What runs say of where they lie and how much they scatter: the e-value's own likelihood, with nothing assumed of the
change. It loads numpy: who only lists cases needs neither."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from helpers.judging.evalue import FACTORS, FAR, Array, log_likelihood

_COVERED = 0.95
_LEAST_NIGHT = 1e-9
# Of the widest noise factor, four times as wide in its tail, a few standard deviations.
_REACH = 11.0 * 4.0 * 4.0


def interval(x: Sequence[float], sigma: float, night: float) -> tuple[float, float]:
    """The central 95% of the offset that ``x`` (one at least) shares, less what ``night`` may have to do with it.

    ``sigma`` is the expected standard deviation between runs, ``night`` that of an offset that all of them share.
    """
    return _interval(tuple(float(value) for value in x), float(sigma), float(night))


def noise_factor(log_rates: Sequence[float], sigma: float) -> float:
    """How many times ``sigma`` the runs scatter about wherever they lie: the factor k that they make likely.

    Its logarithm's mean, weighed as in the e-value: 1 for a single run, at most 11.
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
    # From where the narrowest noise puts a single run's peak out to where the widest puts nothing.
    width = float(FACTORS[0]) * sigma / math.sqrt(len(data))
    about = np.concatenate([(data[:, None] + width * FAR).ravel(), data.mean() + width * FAR])
    reach = _REACH * sigma
    inside = about[(about > data.min() - reach) & (about < data.max() + reach)]
    finest = width / 5
    offsets = np.unique(np.round((inside - data[0]) / finest)) * finest + data[0]
    return offsets, log_likelihood(data, offsets, sigma)
