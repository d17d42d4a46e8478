"""A stretch of lines whose records were found by the lines' shapes."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from helpers.logs.reading.block import Block, Floats, Groups
from helpers.logs.reading.shapes import Shaped
from helpers.logs.record import Field, FormatSpec


def block_of(spec: FormatSpec, groups: Groups, data: bytes, first_line: int) -> Block:
    """By shapes where these lines have few, else by the pattern itself: the same block."""
    shaped = groups.shapes.look(data) if spec.marker in data else None
    return Block(spec, groups, data, first_line) if shaped is None else _ShapedBlock(groups, data, first_line, shaped)


class _ShapedBlock(Block):
    def __init__(self, groups: Groups, data: bytes, first_line: int, shaped: Shaped) -> None:
        self.data, self.first_line = data, first_line
        self._groups, self._shaped = groups, shaped
        self.count = len(shaped.rows)

    @cached_property
    def others(self) -> list[tuple[int, bytes]]:
        starts = self._starts
        found = np.flatnonzero((self._shaped.of_lines < 0) & (np.diff(starts) > 1)).tolist()
        return [(self.first_line + at, self.data[starts[at] : starts[at + 1] - 1]) for at in found]

    @cached_property
    def _line_ends(self) -> NDArray[np.int64]:
        return np.diff(self._shaped.rows, prepend=0, append=len(self._shaped.of_lines))

    def numbers(self) -> dict[Field, Floats]:
        return self._groups.shapes.numbers(self.data, self._starts[self._shaped.rows], self._shaped)
