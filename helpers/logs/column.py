"""A column of numbers of any length in bounded memory, and its exact order statistics: nothing is sketched or sampled.

A short column stays in memory; a long one is on disk except for its end. To find the number of a given rank, its bits
(changed so that they sort as the number does) are found 16 at a time. Each 16 bits take one pass over the column, which
counts the numbers below.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

# How many numbers are in memory at a time (half a MiB).
BLOCK = 2**16
_BYTES = 8
# The most numbers that are sorted in memory (8 MiB). In a longer column the order is found by counting.
IN_MEMORY = 2**20
_MANY = 2**12
_DIGIT_BITS = 16
_DIGITS = 64 // _DIGIT_BITS
_SIGN = np.uint64(1 << 63)


class NumberColumn:
    """Numbers in the order in which they were appended. They are read block by block, so memory does not grow with
    them."""

    def __init__(self) -> None:
        self._tail: list[NDArray[np.float64]] = []
        self._in_tail = 0
        self._on_disk = 0
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._on_disk + self._in_tail

    def append(self, values: NDArray[np.float64]) -> None:
        self._tail.append(np.asarray(values, dtype=np.float64))
        self._in_tail += len(values)
        if self._in_tail >= BLOCK:
            self._spill()

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float64]]:
        """The numbers from ``start`` up to ``stop`` (not included), in blocks of at most BLOCK."""
        stop = len(self) if stop is None else min(stop, len(self))
        at = max(start, 0)
        while at < min(stop, self._on_disk):
            count = min(BLOCK, min(stop, self._on_disk) - at)
            assert self._file is not None
            self._file.seek(at * _BYTES)
            yield np.frombuffer(self._file.read(count * _BYTES), dtype=np.float64)
            at += count
        if at < stop:
            if len(self._tail) > 1:
                self._tail = [np.concatenate(self._tail)]
            yield self._tail[0][at - self._on_disk : stop - self._on_disk]

    def __getitem__(self, index: int) -> float:
        """The number at ``index``; a negative index counts from the end. Raises IndexError."""
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        return float(next(self.blocks(at, at + 1))[0])

    def values(self, start: int = 0, stop: int | None = None) -> list[float]:
        """The numbers from ``start`` up to ``stop`` as a list; only for a part that is known to be short."""
        return [float(each) for block in self.blocks(start, stop) for each in block]

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="perfgate-column-")  # noqa: SIM115 - closed with the column
        self._file.seek(self._on_disk * _BYTES)
        self._file.write(np.concatenate(self._tail).tobytes())
        self._on_disk += self._in_tail
        self._tail, self._in_tail = [], 0


class ColumnPart(NumberColumn):
    """The numbers of one run, if the runs of a log share a column: those from ``first`` up to ``end`` (not
    included)."""

    def __init__(self, whole: NumberColumn, first: int, end: int) -> None:
        super().__init__()
        self._whole, self._first, self._end = whole, first, end

    def __len__(self) -> int:
        return self._end - self._first

    def append(self, values: NDArray[np.float64]) -> None:
        raise TypeError("a part of a column is read only")

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float64]]:
        stop = len(self) if stop is None else min(stop, len(self))
        return self._whole.blocks(self._first + max(start, 0), self._first + stop)


class Numbers(Protocol):
    """Numbers that can be put in order: a NumberColumn, or values computed from one. NaN is refused."""

    def __len__(self) -> int: ...

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float64]]: ...


def select(numbers: Numbers, ranks: Sequence[int], start: int = 0, in_memory: int = IN_MEMORY) -> list[float]:
    """The numbers at ``ranks`` (from 0) after those from ``start`` on are sorted.

    Raises IndexError if there is no such rank, and ValueError if one of the numbers is NaN.
    """
    count = len(numbers) - start
    if wrong := [rank for rank in ranks if not 0 <= rank < count]:
        raise IndexError(f"rank {wrong[0]} of {count} numbers")
    if count <= in_memory:
        values = np.concatenate(list(numbers.blocks(start))) if count else np.empty(0)
        _check(values)
        values = np.sort(values)
        return [float(values[rank]) for rank in ranks]
    return _by_counting(numbers, ranks, start)


def median(numbers: Numbers, start: int = 0, in_memory: int = IN_MEMORY) -> float:
    """The middle number, or the mean of the two in the middle; NaN if there are no numbers."""
    count = len(numbers) - start
    if count <= 0:
        return math.nan
    low, high = select(numbers, ((count - 1) // 2, count // 2), start, in_memory)
    return (low + high) / 2


def trimmed_mean(numbers: Numbers, each_end: int, start: int = 0, in_memory: int = IN_MEMORY) -> float:
    """The mean of the numbers from ``start`` on without the ``each_end`` lowest and the ``each_end`` highest."""
    count = len(numbers) - start
    kept = count - 2 * each_end
    if kept <= 0:
        raise IndexError(f"{each_end} dropped at each end of {count} numbers")
    low, high = select(numbers, (each_end, count - each_end - 1), start, in_memory)
    below = at_or_below = inside = 0
    sums = []
    for block in numbers.blocks(start):
        below += int(np.count_nonzero(block < low))
        at_or_below += int(np.count_nonzero(block <= low))
        between = block[(block > low) & (block < high)]
        inside += len(between)
        sums.append(sum_of(between))
    if low == high:
        return low
    # Of the numbers that equal a bound, only some are within the trimmed range.
    at_low = at_or_below - each_end
    return math.fsum((*sums, at_low * low, (kept - inside - at_low) * high)) / kept


def sum_of(values: NDArray[np.float64]) -> float:
    """The sum: exact for few numbers; for many by numpy's pairwise summation, which is correct but for the last digits
    and three times as fast."""
    return float(np.sum(values)) if len(values) > _MANY else math.fsum(values)


def _by_counting(numbers: Numbers, ranks: Sequence[int], start: int) -> list[float]:
    # For each rank: the digits found so far, and its position among the numbers that begin with these digits.
    places = [(0, rank) for rank in ranks]
    for digit in range(_DIGITS):
        shift = np.uint64(64 - (digit + 1) * _DIGIT_BITS)
        counts = {prefix: np.zeros(2**_DIGIT_BITS, dtype=np.int64) for prefix, _ in places}
        for block in numbers.blocks(start):
            _check(block)
            heads = _keys(block) >> shift
            for prefix, counted in counts.items():
                of_prefix = heads[(heads >> np.uint64(_DIGIT_BITS)) == np.uint64(prefix)] if digit else heads
                digits = (of_prefix & np.uint64(2**_DIGIT_BITS - 1)).astype(np.int64)
                counted += np.bincount(digits, minlength=2**_DIGIT_BITS)
        places = [_next_digit(counts[prefix], prefix, left) for prefix, left in places]
    return [_number(key) for key, _ in places]


def _next_digit(counts: NDArray[np.int64], prefix: int, left: int) -> tuple[int, int]:
    reached = np.cumsum(counts)
    found = int(np.searchsorted(reached, left, side="right"))
    return (prefix << _DIGIT_BITS) | found, left - (int(reached[found - 1]) if found else 0)


def _check(values: NDArray[np.float64]) -> None:
    if np.isnan(values).any():
        raise ValueError("NaN has no place in an order")


def _keys(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Unsigned integers that sort as the numbers do: all bits of a negative number are inverted, of others only the
    sign."""
    # Adding 0.0 turns -0.0 into 0.0, which it equals.
    bits = (np.ascontiguousarray(values) + 0.0).view(np.uint64)
    negative = (bits & _SIGN).astype(np.bool_)
    return np.where(negative, ~bits, bits | _SIGN) if negative.any() else bits | _SIGN


def _number(key: int) -> float:
    bits = np.uint64(key)
    turned = bits ^ _SIGN if bits & _SIGN else ~bits
    return float(np.array([turned], dtype=np.uint64).view(np.float64)[0])
