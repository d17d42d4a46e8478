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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from helpers.trainers.contract.errors import SuiteError

if TYPE_CHECKING:
    import numpy

# That anything is named wrongly: the speed that the runs share is tested before the parts, at its own rate. With 6 or 7
# pairs no speed differs beyond that.
ERROR_RATE, SPEED_ERROR_RATE = 0.05, 0.01
PARTS_ERROR_RATE = ERROR_RATE - SPEED_ERROR_RATE
# Of a part that is named surely, and not only as probable; with 6 or 7 pairs none is.
SURE_PARTS_ERROR_RATE = 0.01
SURE_ERROR_RATE = SURE_PARTS_ERROR_RATE + SPEED_ERROR_RATE
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


def check_pairs(pairs: int) -> None:
    """Raises SuiteError for too few or too many pairs."""
    if not LEAST_PAIRS <= pairs <= MOST_PAIRS:
        raise SuiteError("pairs to compare", got=pairs, expected=f"from {LEAST_PAIRS} to {MOST_PAIRS}")


def adjusted_p_values(differences: Sequence[Sequence[float]], sizes: Sequence[float]) -> list[float]:
    """For each part the probability, if nothing differed, that any part would differ as clearly as this one.

    ``differences`` has for each part the pairs' differences (the same pairs for all parts), and ``sizes`` how long each
    part takes; both in seconds. The statistic of a part is Student's t with a floor in its denominator: the median
    noise of all parts, relative to their sizes ("fudge factor" of Tusher, Tibshirani and Chu, "Significance analysis of
    microarrays", 2001). Otherwise, of hundreds of parts, the ones whose few differences are equal by chance would seem
    the clearest. The floor does not change with the signs, so the procedure stays exact.

    Raises SuiteError for too few or too many pairs.
    """
    # Imported here because listing the commands does not need it.
    import numpy

    if not differences:
        return []
    pairs = len(differences[0])
    check_pairs(pairs)
    given = numpy.array(differences, dtype=float).T
    squares = (given**2).sum(axis=0)
    floors = _floors(squares / pairs, numpy.array(sizes, dtype=float))
    signs = _signs(pairs)
    means = signs @ given / pairs
    variances = numpy.maximum(0.0, squares - pairs * means**2) / (pairs - 1)
    clear = numpy.abs(means) / numpy.sqrt(variances / pairs + floors**2 / pairs)
    return _step_down(clear)


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
