"""What a chunk holds beside rank 0's lines, given to the run in whose lines it stands."""

from __future__ import annotations

from helpers.logs.reading.dropped import PREFIXED, TOO_LONG, shown
from helpers.logs.reading.runs import RunBuilder
from helpers.logs.sources.clean import Chunk


class Besides:
    """The ranks that prefixes name, the other ranks' lines that look like records, and the lines that are too long."""

    def __init__(self, chunk: Chunk, marker: bytes) -> None:
        first = chunk.first_line
        self._rank_0 = 0 in chunk.ranks
        self._ranks = [(first + at, rank) for at, rank in chunk.rank_lines]
        self._records: list[tuple[int, bytes]] = []
        if marker in chunk.other_ranks:
            lines = zip(chunk.others_lines, chunk.other_ranks.split(b"\n"), strict=False)
            self._records = [(first + at, line) for at, line in lines if marker in line]
        self._too_long = list(chunk.too_long)

    def give(self, run: RunBuilder, end: int) -> None:
        """To the run what stands before line ``end``."""
        if self._rank_0:
            run.ranks.add(0)
        if self._ranks:
            run.ranks.update(rank for line, rank in self._ranks if line < end)
            self._ranks = [each for each in self._ranks if each[0] >= end]
        records = [each for each in self._records if each[0] < end]
        if records:
            run.drops.add(PREFIXED, shown(*records[0]), len(records))
            self._records = self._records[len(records) :]
        for line in self._too_long:
            if line.number < end:
                run.drops.add(TOO_LONG, line)
        self._too_long = [line for line in self._too_long if line.number >= end]
