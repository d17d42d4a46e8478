"""The lines of an unknown log that come closest to a record: those with a rate's words and a number behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from helpers.logs.sources.clean import Chunk, line_text

_MOST = 5
_LINE = 160
# Of one word in one chunk, so many lines are looked at.
_LINES_A_CHUNK = 50
_WORDS = (
    b"ips", b"images/s", b"imgs/s", b"img/s", b"images_per_s", b"imgs_per_s", b"samples/s", b"examples/s",
    b"images per s", b"speed", b"Speed", b"throughput", b"Throughput", b"batch_cost", b"elapse", b"step_time",
    b"sec/step", b"s/it", b"it/s",
)  # fmt: skip
_NUMBER = re.compile(rb"\d")


class Closest:
    """Fed with a log's chunks; tells the lines, by number."""

    def __init__(self, markers: Sequence[bytes]) -> None:
        self._words = (*markers, *_WORDS)
        self._markers = frozenset(markers)
        self._ranks: set[int] = set()
        self._best: list[tuple[int, int, bytes]] = []

    def look(self, chunk: Chunk) -> None:
        self._ranks |= chunk.ranks
        seen = set()
        for word in self._words:
            for start in _line_starts(chunk.data, word):
                if start not in seen:
                    seen.add(start)
                    line = chunk.data[start : chunk.data.find(b"\n", start)]
                    number = chunk.first_line + chunk.data.count(b"\n", 0, start)
                    self._best.append((-self._score(line), number, line[: 4 * _LINE]))
        self._best = sorted(self._best)[:_MOST]

    def __str__(self) -> str:
        lines = self.lines()
        return f"{self.heading()}: " + "; ".join(lines) if lines else self.heading()

    def heading(self) -> str:
        others = sorted(self._ranks - {0})
        note = f" (only rank 0's lines are read; those of ranks {_spans(others)} are not)" if others else ""
        return ("The lines that come closest" if self.lines() else "No line has a rate or a step's time") + note

    def lines(self) -> tuple[str, ...]:
        found = sorted((number, line) for score, number, line in self._best if score < 0)
        return tuple(f"line {number}: {line_text(line)[:_LINE]}" for number, line in found)

    def _score(self, line: bytes) -> int:
        """Words with a number in the line; a format's marker counts as three."""
        if not _NUMBER.search(line):
            return 0
        return sum(3 if word in self._markers else 1 for word in self._words if word in line)


def _line_starts(data: bytes, word: bytes) -> Iterator[int]:
    at = data.find(word)
    for _ in range(_LINES_A_CHUNK):
        if at < 0:
            return
        yield data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        at = data.find(word, end)


def _spans(ranks: Sequence[int]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
