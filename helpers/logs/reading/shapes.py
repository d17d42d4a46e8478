"""Lines by shape, which is a line with 0 for each digit. A log has few shapes: a pattern looks at each of them once,
and numpy reads the numbers of all lines of a block together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from helpers.logs.reading.decimals import MOST_DIGITS, Decimals, decimals
from helpers.logs.record import Field

_TO_SHAPE = bytes.maketrans(b"123456789", b"000000000")
_REPEATS = re.compile(rb"\{\d{0,9},?\d{0,9}\}")
_PLAIN = re.compile(rb"(0*)(?:\.(0*))?")
# A log with more shapes, or with one so long, is no log of few.
_MOST_SHAPES = 4096
_MOST_SHAPE_BYTES = 1024
# Below, the lines cost less than the looking.
_LEAST_BYTES = 2**14
# So many more blocks than those that were read may be looked at in vain.
_MOST_IN_VAIN = 8
_NEW, _HARD, _OTHER = -3, -2, -1


@dataclass(frozen=True)
class Shaped:
    """Of a block: each line's shape, as an index; below 0 where it has no record."""

    of_lines: NDArray[np.int64]
    rows: NDArray[np.intp]


class Shapes:
    """The shapes of one log, and where a record of each has its fields."""

    def __init__(self, record: re.Pattern[bytes], fields: Mapping[Field, int]) -> None:
        self._record, self._fields = record, fields
        self._known: dict[bytes, int] = {}
        # For each shape and field: where its whole part ends, and how many digits it has before and behind the point.
        self._places: list[list[tuple[int, int, int]]] = []
        self._in_vain = 0 if _takes_digits_alike(record) else _MOST_IN_VAIN + 1

    def look(self, data: bytes) -> Shaped | None:
        """None where a line of the data needs the pattern itself."""
        if len(data) < _LEAST_BYTES or self._in_vain > _MOST_IN_VAIN:
            return None
        found = self._look(data.translate(_TO_SHAPE).split(b"\n")[:-1])
        self._in_vain += 1 if found is None else -1 if self._in_vain else 0
        return found

    def _look(self, lines: Sequence[bytes]) -> Shaped | None:
        of_lines = self._indexes(lines)
        if new := {lines[at] for at in np.flatnonzero(of_lines == _NEW).tolist()}:
            if len(self._known) + len(new) > _MOST_SHAPES or max(map(len, new)) > _MOST_SHAPE_BYTES:
                return None
            for line in new:
                self._known[line] = self._learn(line)
            of_lines = self._indexes(lines)
        if (of_lines == _HARD).any():
            return None
        return Shaped(of_lines, np.flatnonzero(of_lines >= 0))

    def _indexes(self, lines: Sequence[bytes]) -> NDArray[np.int64]:
        return np.fromiter(map(self._known.get, lines, repeat(_NEW)), dtype=np.int64, count=len(lines))

    def _learn(self, line: bytes) -> int:
        matches = list(self._record.finditer(line))
        if len(matches) != 1:
            return _HARD if matches else _OTHER
        places = []
        for number in self._fields.values():
            start = max(matches[0].start(number), 0)
            digits = _PLAIN.fullmatch(matches[0][number] or b"")
            if digits is None or digits[0].startswith(b"."):
                return _HARD
            before, behind = len(digits[1]), len(digits[2] or b"")
            if before + behind > MOST_DIGITS:
                return _HARD
            places.append((start + before, before, behind))
        self._places.append(places)
        return len(self._places) - 1

    def numbers(self, data: bytes, starts: NDArray[np.int64], shaped: Shaped) -> dict[Field, NDArray[np.float64]]:
        """Every field of the rows, whose lines begin at ``starts``: NaN where it is empty."""
        places = np.array(self._places, dtype=np.int64).reshape(len(self._places), -1, 3)
        of_rows = shaped.of_lines[shaped.rows]
        at = {each: places[of_rows, index] for index, each in enumerate(self._fields)}
        return {each: decimals(data, Decimals(starts + of[:, 0], of[:, 1], of[:, 2])) for each, of in at.items()}


def _takes_digits_alike(pattern: re.Pattern[bytes]) -> bool:
    """Whether a pattern names no digit: then all lines of a shape match as the shape does."""
    return not re.search(rb"\d", _REPEATS.sub(b"", pattern.pattern))
