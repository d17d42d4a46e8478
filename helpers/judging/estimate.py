"""How large a change is: a robust point, and its 95% interval from the likelihood that the e-value rests on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Effect:
    """A change of images/s as a fraction (-0.02: 2% slower), with the bounds of its 95% interval."""

    point: float
    low: float
    high: float


def effect_of(differences: Sequence[float], sigma: float, night: float = 0.0) -> Effect:
    """The effect in ``differences`` of log rates (one at least), whose expected standard deviation is ``sigma``.

    The point is Hodges and Lehmann's: the median of all means of two, which one bad run in ten does not move
    and which is nearly as sharp as the mean. The interval is the e-value's own likelihood (helpers.judging.evalue),
    with nothing known of the change before: how far ``sigma`` may be wrong is weighed as there, so runs that scatter
    widen it, and a single run never has a narrow one. ``night`` is the standard deviation of an offset that all of
    them share.
    """
    # Not at the top: it loads numpy.
    from helpers.judging.likelihood import interval

    low, high = interval(differences, sigma, night)
    point = hodges_lehmann(differences)
    return Effect(math.expm1(point), math.expm1(min(low, point)), math.expm1(max(high, point)))


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of the means of all pairs of values, each with itself included."""
    return statistics.median((one + other) / 2 for at, one in enumerate(values) for other in values[at:])
