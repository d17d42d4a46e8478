"""A column of numbers of any length in bounded memory: short ones stay in memory, the rest of a long one on disk."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

# Numbers in memory at a time, half a MiB of them.
BLOCK = 2**16
_BYTES = 8


class Column:
    """Numbers in the order they were appended. Reading goes block by block; nothing holds them all."""

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
        """The number at ``index``, from the end where it is negative. Raises IndexError."""
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        return float(next(self.blocks(at, at + 1))[0])

    def values(self, start: int = 0, stop: int | None = None) -> list[float]:
        """As a list: for a stretch that is known to be short."""
        return [float(each) for block in self.blocks(start, stop) for each in block]

    def mean(self, start: int = 0, stop: int | None = None) -> float:
        """Arithmetic mean; NaN of no numbers."""
        count, sums = 0, []
        for block in self.blocks(start, stop):
            count += len(block)
            sums.append(math.fsum(block) if len(block) < BLOCK else float(np.sum(block)))
        return math.fsum(sums) / count if count else math.nan

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="perfgate-column-")  # noqa: SIM115 - closed with the column
        self._file.seek(self._on_disk * _BYTES)
        self._file.write(np.concatenate(self._tail).tobytes())
        self._on_disk += self._in_tail
        self._tail, self._in_tail = [], 0


class Part(Column):
    """The numbers of a column from ``first`` up to ``end`` (not included): one run's, where a log's share a column."""

    def __init__(self, whole: Column, first: int, end: int) -> None:
        super().__init__()
        self._whole, self._first, self._end = whole, first, end

    def __len__(self) -> int:
        return self._end - self._first

    def append(self, values: NDArray[np.float64]) -> None:
        raise TypeError("a part of a column is read only")

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float64]]:
        stop = len(self) if stop is None else min(stop, len(self))
        return self._whole.blocks(self._first + max(start, 0), self._first + stop)
