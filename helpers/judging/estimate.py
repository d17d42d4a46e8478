"""How large a change is: a robust point and its 95% interval, beside the e-value that says whether there is one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.stats import student_t_95


@dataclass(frozen=True)
class Effect:
    """A change of images/s as a fraction (-0.02: 2% slower), with the bounds of its 95% interval."""

    point: float
    low: float
    high: float


def effect_of(differences: Sequence[float], sigma: float, degrees: float, night: float = 0.0) -> Effect:
    """The effect in ``differences`` of log rates (one at least), whose expected standard deviation is ``sigma``.

    The point is Hodges and Lehmann's: the median of all means of two, which one bad run in ten does not move
    and which is nearly as sharp as the mean. The interval is Student's t about it, the variance pooled from
    ``sigma``, worth ``degrees`` of freedom, and the differences' own spread. ``night`` is the standard deviation
    of an offset that all of them share.
    """
    n = len(differences)
    point = hodges_lehmann(differences)
    squares = sum((value - statistics.fmean(differences)) ** 2 for value in differences)
    pooled = (degrees * sigma**2 + squares) / (degrees + n - 1)
    t = student_t_95(max(1, int(degrees + n - 1)))
    half = t * math.sqrt(pooled / n + night**2)
    return Effect(math.expm1(point), math.expm1(point - half), math.expm1(point + half))


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of the means of all pairs of values, each with itself included."""
    return statistics.median((one + other) / 2 for at, one in enumerate(values) for other in values[at:])
