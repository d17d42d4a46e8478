"""Many plain decimal numbers at once, each rounded as ``float`` rounds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Of so many digits a number's digits are below 2**63.
MOST_DIGITS = 18
_EXACT = 2**53
_TENS = 10 ** np.arange(MOST_DIGITS + 1, dtype=np.int64)
# x86 and POWER; elsewhere it may be no wider than a double.
_WIDE = np.finfo(np.longdouble).nmant >= 63


@dataclass(frozen=True)
class Decimals:
    """Where numbers stand in a text: their whole parts' ends, and how many digits each has before and behind its
    point."""

    ends: Ints
    before: Ints
    behind: Ints


def decimals(text: bytes, found: Decimals) -> Floats:
    """The numbers; NaN for one without any digit."""
    characters = np.frombuffer(text, dtype=np.uint8)
    digits = _whole(characters, found.ends, found.before)
    if found.behind.any():
        behind = _whole(characters, found.ends + 1 + found.behind, found.behind)
        digits = digits * _TENS[found.behind] + behind
    # Both are exact, so their quotient is rounded once.
    numbers = digits / _TENS[found.behind].astype(np.float64)
    large = np.flatnonzero(digits >= _EXACT)
    if len(large):
        numbers[large] = _of_large(text, found, digits[large], large)
    if not found.before.all():
        numbers[found.before == 0] = np.nan
    return numbers


def _whole(characters: NDArray[np.uint8], ends: Ints, widths: Ints) -> Ints:
    """Whole numbers that end before ``ends``, digit by digit."""
    widest, narrowest = int(widths.max()), int(widths.min())
    total = np.zeros(len(ends), dtype=np.int64)
    at = ends - widest
    for left in range(widest, 0, -1):
        digit = characters.take(at, mode="clip") - np.uint8(ord("0"))
        if left > narrowest:
            digit[widths < left] = 0
        total *= 10
        total += digit
        at += 1
    return total


def _of_large(text: bytes, found: Decimals, digits: Ints, rows: NDArray[np.intp]) -> Floats:
    """Of digits that no double holds: by long double, where that is certain, else by ``float``."""
    wide = digits.astype(np.longdouble) / _TENS[found.behind[rows]].astype(np.longdouble)
    numbers = wide.astype(np.float64)
    away, step = np.abs(wide - numbers), np.spacing(numbers)
    # Halfway between two doubles the quotient's own rounding may have decided.
    doubtful = np.flatnonzero(2 * away == step) if _WIDE else np.arange(len(rows))
    for at in doubtful.tolist():
        row = rows[at]
        end = int(found.ends[row])
        numbers[at] = float(text[end - int(found.before[row]) : end + 1 + int(found.behind[row])])
    return numbers
