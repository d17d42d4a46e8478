"""Which of many parts differ beyond chance between two builds, with one error rate over all of them together. Pure.

The test is the step-down maxT procedure of Westfall and Young ("Resampling-Based Multiple Testing", 1993, algorithm
2.8), with the signs of the pairs' differences exchanged instead of resampled ones. If the builds do not differ in a
part, a pair's difference is as likely to be positive as negative, so each of the 2^n ways to choose the signs of n
pairs is as likely as the one that was measured. All parts of a pair change their signs together, so however the parts
depend on each other, the probability that any part is named wrongly is at most the error rate. Nothing is assumed about
the shape of the noise. Of more than 14 pairs some choices are drawn. The measured one is always among them, so the rate
holds all the same (Phipson and Smyth, "Permutation p-values should never be zero", 2010).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from helpers.judging.statistics import Interval, student_t_95
from helpers.trainers.contract.errors import SuiteError

if TYPE_CHECKING:
    import numpy

ERROR_RATE = 0.05
# With fewer pairs not even the most extreme of the 2^n choices is rare enough: 2 / 2^6 is 3%.
LEAST_PAIRS = 6
# Unless others are asked for: the fewest with which a part may be surely named, since 2 / 2^8 is below 1%.
USUAL_PAIRS = 8
# More pairs cost hours and find little more.
MOST_PAIRS = 40
# With more pairs there are too many choices of signs to try them all.
_MOST_PAIRS_TRIED_WHOLE = 14
_DRAWN = 2 ** (_MOST_PAIRS_TRIED_WHOLE - 1)
# Fixed, so that the same runs have the same answer.
_SEED = 20261127


def adjusted_p_values(
    differences: Sequence[Sequence[float]], sizes: Sequence[float], beside: Mapping[int, Sequence[float]] | None = None
) -> list[float]:
    """For each part the probability, if nothing differed, that any part would differ as clearly as this one.

    ``differences`` has for each part the pairs' differences (the same pairs for all parts), and ``sizes`` how long each
    part takes; both in seconds. The statistic of a part is Student's t with a floor in its denominator: the median
    noise of all parts, relative to their sizes ("fudge factor" of Tusher, Tibshirani and Chu, "Significance analysis of
    microarrays", 2001). Otherwise, of hundreds of parts, the ones whose few differences are equal by chance would seem
    the clearest. The floor does not change with the signs, so the procedure stays exact.

    ``beside`` has, for some parts by their places, the pairs' differences of something that makes the part longer, too.
    What a part differs by is then the constant of its regression on that (Rosenbaum, "Covariance adjustment in
    randomized experiments and observational studies", 2002). If the signs of a pair are exchanged, then so are those of
    both, and the regression is made again for each choice. That is exact if the builds do not differ in what is beside
    it either. If they do, it is an approximation: the further they are apart, the less sure is the constant.

    Raises SuiteError for too few or too many pairs.
    """
    # Imported here because listing the commands does not need it.
    import numpy

    pairs = len(differences[0]) if differences else LEAST_PAIRS
    if not LEAST_PAIRS <= pairs <= MOST_PAIRS:
        raise SuiteError("pairs to compare", got=pairs, expected=f"from {LEAST_PAIRS} to {MOST_PAIRS}")
    if not differences:
        return []
    given = numpy.array(differences, dtype=float).T
    squares = (given**2).sum(axis=0)
    floors = _floors(squares / pairs, numpy.array(sizes, dtype=float))
    signs = _signs(pairs)
    means = signs @ given / pairs
    variances = numpy.maximum(0.0, squares - pairs * means**2) / (pairs - 1)
    clear = numpy.abs(means) / numpy.sqrt(variances / pairs + floors**2 / pairs)
    for place, others in (beside or {}).items():
        constants, noise, share = _constants(signs, given[:, place], numpy.array(others, dtype=float))
        clear[:, place] = numpy.abs(constants) / numpy.sqrt((noise + floors[place] ** 2) * share)
    return _step_down(clear)


def difference_beside(differences: Sequence[float], beside: Sequence[float]) -> Interval:
    """What a part differs by, in seconds, beside something that makes it longer, too: the constant of its regression on
    the pairs' differences of that, with its 95% interval (Student's t, n - 2 degrees of freedom)."""
    import numpy

    measured = numpy.ones((1, len(differences)))
    constant, noise, share = _constants(measured, numpy.array(differences), numpy.array(beside))
    half = student_t_95(len(differences) - 2) * math.sqrt(noise[0] * share[0])
    return Interval(float(constant[0]), float(constant[0] - half), float(constant[0] + half))


def _constants(
    signs: numpy.ndarray[Any, Any], given: numpy.ndarray[Any, Any], beside: numpy.ndarray[Any, Any]
) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
    """For each choice of signs the constant of the regression of ``given`` on ``beside``, the variance of what it
    leaves, and the share of that which is the constant's own variance."""
    import numpy

    pairs = len(given)
    means, others = signs @ given / pairs, signs @ beside / pairs
    # A product of two differences does not change with their signs. A choice that makes all of what is beside equal
    # says nothing of the slope.
    spread = numpy.maximum((beside @ beside) - pairs * others**2, 1e-9 * (beside @ beside) + numpy.finfo(float).tiny)
    slopes = ((given @ beside) - pairs * means * others) / spread
    left = numpy.maximum(0.0, (given @ given) - pairs * means**2 - slopes**2 * spread)
    return means - slopes * others, left / (pairs - 2), 1 / pairs + others**2 / spread


def _signs(pairs: int) -> numpy.ndarray[Any, Any]:
    """Choices of the pairs' signs, one a row; the first are those that were measured. Each begins with a plus,
    since the other half of the choices has the same absolute values."""
    import numpy

    if pairs <= _MOST_PAIRS_TRIED_WHOLE:
        return numpy.array([(1, *rest) for rest in itertools.product((1, -1), repeat=pairs - 1)], dtype=float)
    drawn = numpy.random.default_rng(_SEED).choice([1.0, -1.0], size=(_DRAWN, pairs))
    drawn[0] = drawn[:, 0] = 1.0
    return drawn


def _floors(mean_squares: numpy.ndarray[Any, Any], sizes: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """The usual noise of a part of each size; above 0, also where nothing was measured to differ."""
    import numpy

    noise = [math.sqrt(square) / size for square, size in zip(mean_squares, sizes, strict=True) if size > 0]
    usual = statistics.median(noise) if noise else 0.0
    floors: numpy.ndarray[Any, Any] = numpy.maximum(usual * sizes, numpy.finfo(float).tiny ** 0.5)
    return floors


def _step_down(clear: numpy.ndarray[Any, Any]) -> list[float]:
    """Adjusted p-values; the first row of ``clear`` is what was measured, and the others are as likely."""
    import numpy

    order = numpy.argsort(-clear[0], kind="stable")
    # From the least clear part up: the largest of it and all less clear ones, for each choice of signs.
    largest = numpy.maximum.accumulate(clear[:, order[::-1]], axis=1)[:, ::-1]
    # Sums of the same numbers in another order differ in their last digits.
    reached = largest >= clear[0][order] * (1 - 1e-9)
    adjusted = numpy.maximum.accumulate(reached.mean(axis=0))
    found = numpy.empty(len(order))
    found[order] = adjusted
    return [float(each) for each in found]
