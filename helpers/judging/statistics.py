"""Summaries of runs, and how large a change is. A run (fresh processes) is one replicate; steps inside it are not."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from helpers.trainers.contract.errors import SuiteError

# Standard deviation of a normal distribution over its median absolute deviation.
SIGMA_PER_MAD = 1.4826
# 95% of a normal distribution lie within so many standard deviations of its mean.
NORMAL_95 = 1.96
# Fewer values have no slope: Kendall's statistic is not yet normal.
LEAST_SLOPE_VALUES = 10
# The logarithm of the largest float.
_LARGEST = math.log(sys.float_info.max)


@dataclass(frozen=True)
class Summary:
    """A summary of n runs of one case, in samples/s."""

    # The median.
    centre: float
    # The 95% interval of the median (``median_interval`` of the logarithms); None for one run.
    low: float | None
    high: float | None
    # The largest distance of a run from the median, as a fraction of the median; None for one run.
    spread: float | None
    n: int


def summarise(samples_per_s: tuple[float, ...]) -> Summary:
    """Median, spread and 95% interval of runs' throughputs; SuiteError unless all are finite and positive."""
    if not samples_per_s:
        raise SuiteError("throughput of a case", got="no runs", expected="at least one")
    for value in samples_per_s:
        if not math.isfinite(value) or value <= 0:
            raise SuiteError("throughput of a run", got=value, expected="images/s, finite and above 0")
    centre = statistics.median(samples_per_s)
    n = len(samples_per_s)
    if n == 1:
        return Summary(centre, None, None, None, 1)
    low, high = median_interval([math.log(value) for value in samples_per_s])
    spread = max(abs(value - centre) for value in samples_per_s) / centre
    return Summary(centre, math.exp(low), math.exp(min(high, _LARGEST)), spread, n)


def student_t_95(degrees_of_freedom: int) -> float:
    """Two-sided 95% quantile of Student's t distribution; SuiteError below 1 degree of freedom."""
    if degrees_of_freedom < 1:
        raise SuiteError("Student's t", field="degrees_of_freedom", got=degrees_of_freedom, expected="1 or more")
    # Imported here because it loads numpy, which listing the cases does not need.
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 0.975))


def number(samples_per_s: float) -> str:
    """The value with at least four significant digits and no exponent: 1.234, 393.6, 39972."""
    if samples_per_s >= 1000:
        return f"{samples_per_s:.0f}"
    return f"{Decimal(f'{samples_per_s:.4g}'):f}"


@dataclass(frozen=True)
class EffectSize:
    """A change of samples/s as a fraction (-0.02: 2% slower), with the bounds of its 95% interval."""

    point: float
    low: float
    high: float


def effect_of(differences: Sequence[float], sigma: float, night: float = 0.0) -> EffectSize:
    """The effect in ``differences`` of log rates (one at least), whose expected standard deviation is ``sigma``.

    ``night`` is the standard deviation of an offset that all of them share. The point is Hodges and Lehmann's estimate:
    one bad run in ten does not move it, and it is nearly as exact as the mean. The interval comes from the e-value's
    own likelihood (helpers.judging.case.evalue) with nothing assumed about the change. It also allows for an error of
    ``sigma``, so runs that scatter widen the interval, and a single run never has a narrow one.
    """
    # Imported here because it loads numpy.
    from helpers.judging.case.evalue import interval

    low, high = interval(differences, sigma, night)
    point = hodges_lehmann(differences)
    return EffectSize(math.expm1(point), math.expm1(min(low, point)), math.expm1(max(high, point)))


def robust_sigma(values: Sequence[float]) -> float:
    """The standard deviation by the median absolute deviation about the median, which one outlier hardly changes."""
    middle = statistics.median(values)
    return SIGMA_PER_MAD * statistics.median(abs(value - middle) for value in values)


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of the means of all pairs of values, each with itself included."""
    return statistics.median((one + other) / 2 for at, one in enumerate(values) for other in values[at:])


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% interval (Student's t)."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean and 95% interval of two or more values."""
    mean = statistics.fmean(values)
    half = student_t_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def median_interval(values: Sequence[float], sigma: float | None = None) -> tuple[float, float]:
    """The 95% interval of the middle of normally distributed values, about their median.

    ``sigma`` is their standard deviation, if it is known; without it, two values at least have to tell it. The median
    is the mean plus its distance from the mean. For normal values these two are independent (Basu 1955), so their
    squared errors add up: the mean's has Student's t, the distance's is what the median's variance exceeds the mean's.
    Its ratio is exact for 1 and 2 values and for many, and within 3% between. At 3 to 40 values the half width is
    within 2% of the simulated one.
    """
    n = len(values)
    ratio = math.pi / 2 * n / (n + (math.pi / 2 - 1 if n % 2 else math.pi - 2))
    critical = student_t_95(n - 1) if sigma is None else NORMAL_95
    spread = statistics.stdev(values) if sigma is None else sigma
    half = spread * math.sqrt((critical**2 + NORMAL_95**2 * (ratio - 1)) / n)
    middle = statistics.median(values)
    return middle - half, middle + half


class Slope(NamedTuple):
    """The change of a value from one place to the next, with its 95% interval."""

    slope: float
    low: float
    high: float


def theil_sen(values: Sequence[float]) -> Slope | None:
    """The median slope of all pairs of ``values`` (Theil 1950), with the interval of Sen (1968); one bad night changes
    neither. None for fewer than
    LEAST_SLOPE_VALUES."""
    count = len(values)
    if count < LEAST_SLOPE_VALUES:
        return None
    slopes = sorted(
        (values[later] - values[earlier]) / (later - earlier) for later in range(count) for earlier in range(later)
    )
    ranks = NORMAL_95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    below, above = math.floor((len(slopes) - ranks) / 2), math.ceil((len(slopes) + ranks) / 2)
    return Slope(statistics.median(slopes), slopes[below], slopes[min(above, len(slopes) - 1)])
