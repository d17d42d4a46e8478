"""The lines that a run's configuration is read from, bounded: its first, those before its first record, some after."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from helpers.logs.record import Line
from helpers.logs.sources.clean import MOST_LINE_BYTES, line_text

# Lines from the run's start, the last ones before its first record (a log may begin with megabytes of other text),
# and the first ones after it.
_HEAD_LINES = 2000
_BEFORE_LINES = 2000
_AFTER_LINES = 1000
# Bytes of each of the three.
_PART_BYTES = 4 * 2**20 // 3


Numbered = tuple[int, bytes]


class _First:
    """The first lines, up to ``most`` of them."""

    def __init__(self, most: int) -> None:
        self.lines: list[Numbered] = []
        self.size_bytes = 0
        self.full = False
        self._most = most

    def add(self, lines: Sequence[Numbered]) -> int:
        """How many of them were taken."""
        for taken, (number, line) in enumerate(lines):
            line = line[:MOST_LINE_BYTES]
            if len(self.lines) >= self._most or self.size_bytes + len(line) > _PART_BYTES:
                self.full = True
                return taken
            self.lines.append((number, line))
            self.size_bytes += len(line)
        return len(lines)


class _Last:
    """The last lines, up to ``most``. Whole batches come and go, so that megabytes of other text cost little."""

    def __init__(self, most: int) -> None:
        self.size_bytes = 0
        self._most, self._count = most, 0
        self._batches: deque[tuple[int, Sequence[Numbered]]] = deque()

    def add(self, lines: Sequence[Numbered]) -> None:
        lines = lines[-self._most :]
        size = sum(len(line) for _, line in lines)
        self._batches.append((size, lines))
        self.size_bytes += size
        self._count += len(lines)
        while len(self._batches) > 1:
            size, first = self._batches[0]
            if self._count - len(first) < self._most and self.size_bytes <= _PART_BYTES:
                return
            self._batches.popleft()
            self.size_bytes -= size
            self._count -= len(first)

    @property
    def lines(self) -> list[Numbered]:
        every = [line for _, batch in self._batches for line in batch]
        return [(number, line[:MOST_LINE_BYTES]) for number, line in every[-self._most :]]


class ContextLines:
    """Filled line by line; ``records_began`` when the run's first record was seen."""

    def __init__(self) -> None:
        self._head = _First(_HEAD_LINES)
        self._before = _Last(_BEFORE_LINES)
        self._after = _First(_AFTER_LINES)
        self._began = False

    @property
    def size_bytes(self) -> int:
        return self._head.size_bytes + self._before.size_bytes + self._after.size_bytes

    def records_began(self) -> None:
        self._began = True

    def add(self, lines: Sequence[Numbered]) -> None:
        if self._began:
            if not self._after.full:
                self._after.add(lines)
            return
        taken = 0 if self._head.full else self._head.add(lines)
        if taken < len(lines):
            self._before.add(lines[taken:])

    def lines(self) -> list[Line]:
        every = (*self._head.lines, *self._before.lines, *self._after.lines)
        return [Line(number, line_text(line)) for number, line in every]
