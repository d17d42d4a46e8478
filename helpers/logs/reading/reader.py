"""Reads the runs of a log of known format, block by block in constant memory.

If all lines of a block are records, one search with the pattern is enough. Everything else is first searched for by a
literal text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from helpers.logs.column import NumberColumn
from helpers.logs.formats.common import with_tf32
from helpers.logs.reading.block import LineBlock, RecordGroups, block_of, faults, is_whole
from helpers.logs.reading.detect import Log, check_only
from helpers.logs.reading.lines import AGAIN, CUT, Finder, finder, shown, why_no_record
from helpers.logs.reading.numbers import seconds_of
from helpers.logs.reading.runs import BesideRank0, RunBuilder
from helpers.logs.reading.steps import StepPlace, key_text, step_keys
from helpers.logs.record import FormatSpec, Line, LogRun, RecordField
from helpers.logs.settings import LogSetting, Stated, settle
from helpers.logs.sources.clean import Chunk
from helpers.trainers.contract.errors import LogError

_BLOCK_BYTES = 2**19
_LEAST_PIECE_BYTES = 2**9
# The most runs of a log. If there seem to be more, the steps mean something else.
_MOST_RUNS = 10_000
# How many bytes may be kept, over all runs of a log, of the lines from which configuration is read.
_CONTEXT_BYTES = 64 * 2**20
_NO_END = "the last line has no end"
_KEPT_AS = {RecordField.STEPS_PER_S: RecordField.STEP_SECONDS}


def read_log(
    log: Log, spec: FormatSpec, asked: Mapping[LogSetting, Stated], rivals: Iterable[FormatSpec] = ()
) -> tuple[LogRun, ...]:
    """All runs of the log in order, with their records, configuration and dropped lines.

    ``asked`` states the settings that the log does not state. Raises LogError if there is no record, if steps go back
    in a way that neither another rank nor a new run explains, if a setting is unknown or contradicted, and if the log
    also holds a record of one of ``rivals``.
    """
    reader = _Reader(log, spec, [each for each in rivals if each.name != spec.name])
    cut = ""
    for chunk in log.chunks():
        reader.read(chunk)
        cut = _NO_END if chunk.cut else ""
    runs = reader.finish()
    return tuple(
        run.build(
            log,
            number,
            len(runs),
            # A card named only by an option counts like one in the log's name.
            lambda about, read: with_tf32(settle(about, read, asked)),
            cut if number == len(runs) else "",
        )
        for number, run in enumerate(runs, 1)
    )


class _Reader:
    def __init__(self, log: Log, spec: FormatSpec, rivals: Sequence[FormatSpec]) -> None:
        self._log, self._source, self._spec = log, log.source, spec
        # A summary line after records is a figure of these records: TIPC prints one in PaddleClas' logs.
        summaries = {} if spec.is_summary else {each.name: each for each in rivals if each.is_summary}
        self._rivals = [each for each in rivals if each.name not in summaries]
        self._groups = RecordGroups(spec)
        self._starts = [finder(pattern) for pattern in spec.starts]
        self._printed = {name: finder(pattern) for name, pattern in spec.printed.items()}
        self._printed |= {name: Finder(each.record, each.marker) for name, each in summaries.items()}
        self._columns = {_KEPT_AS.get(each, each): NumberColumn() for each in self._groups.fields}
        self._context_bytes = 0
        self._done: list[RunBuilder] = []
        self._run = RunBuilder(spec, self._columns, 1)
        self._last_line = 0
        self._besides = BesideRank0(Chunk(b"", 1), spec.marker)

    def read(self, chunk: Chunk) -> None:
        data = self._without_cut_number(chunk) if chunk.cut else chunk.data
        self._besides = BesideRank0(chunk, self._spec.marker)
        number = chunk.first_line
        for lines in _blocks(data):
            number = self._take(self._block(lines, number))
        self._last_line = number - 1
        self._besides.give(self._run, number)

    def finish(self) -> list[RunBuilder]:
        """The runs that have records or a figure printed by the script itself. Raises LogError if there is none."""
        self._run.last_line = self._last_line
        if self._run.has_figures:
            return [*self._done, self._run]
        if not self._done:
            dropped = "; ".join(
                f"{each.count} dropped ({each.reason}), the first is line {each.first.number}: {each.first.text}"
                for each in self._run.drops.all()
            )
            raise LogError(
                self._source,
                expected=f"records of the format {self._spec.name}: {self._spec.looked_for}",
                remedy=f"There is none. {dropped}".strip(),
            )
        self._done[-1].notes.append(f"line {self._run.first_line}: a run begins that has no record")
        self._done[-1].last_line = self._last_line
        return self._done

    def _block(self, data: bytes, number: int) -> LineBlock:
        return block_of(self._spec, self._groups, data, number)

    def _take(self, block: LineBlock) -> int:
        """Takes a block, divided at its start lines; returns the number of the line after it."""
        starts = self._start_lines(block)
        if not starts:
            return self._take_of_run(block)
        number = block.first_line
        for begins, end in itertools.pairwise((*sorted({number, *starts}), number + block.line_count)):
            if begins in starts and self._run.has_figures:
                self._next_run(begins)
            number = self._take_of_run(self._block(block.data[block.offset(begins) : block.offset(end)], begins))
        return number

    def _start_lines(self, block: LineBlock) -> set[int]:
        lines = block.others
        starts = set()
        if lines and self._starts:
            text = b"\n".join([line for _, line in lines])
            found = [each for each in self._starts if each.search(text)]
            starts = {number for number, line in lines if any(each.search(line) for each in found)} if found else set()
        if self._spec.record in self._spec.starts:
            starts |= {block.line_number(row) for row in range(block.count)}
        return starts

    def _next_run(self, number: int) -> None:
        self._besides.give(self._run, number)
        self._run.last_line = number - 1
        self._context_bytes += self._run.context.size_bytes
        self._done.append(self._run)
        if len(self._done) >= _MOST_RUNS:
            raise LogError(self._source, got=f"another run at line {number}", expected=f"at most {_MOST_RUNS} runs")
        if self._context_bytes > _CONTEXT_BYTES:
            raise LogError(
                self._source,
                got=f"{self._context_bytes} bytes of lines without a record before line {number}",
                expected=f"at most {_CONTEXT_BYTES} around the records of all runs",
                remedy="Split the log between its runs",
            )
        self._run = RunBuilder(self._spec, self._columns, number)

    def _take_of_run(self, block: LineBlock) -> int:
        """Takes a block without a start line; returns the number of the line after it."""
        data, number, size = block.data, block.first_line, len(block.data)
        while True:
            stopped = self._records(block)
            if stopped is None:
                data, number, size = data[len(block.data) :], number + block.line_count, 2 * size
            else:
                number = block.line_number(stopped)
                at = block.offset(number)
                self._records(self._block(data[:at], block.first_line))
                self._unannounced_run(number)
                # If runs are short, the rest is processed in pieces of their size, so that no line is processed many
                # times.
                data, size = data[at:], max(2 * at, _LEAST_PIECE_BYTES)
            if not data:
                return number
            block = self._block(data[: data.find(b"\n", min(size, len(data)) - 1) + 1], number)

    def _unannounced_run(self, number: int) -> None:
        tail = self._run.tail
        self._next_run(number)
        self._run.context.add(tail)
        self._run.notes.append(f"line {number}: steps start again, though no line announces a run: taken for a new run")

    def _records(self, block: LineBlock) -> int | None:
        """Takes the whole block and returns None; if a new run begins in it, takes nothing and returns that run's first
        row."""
        if not block.count:
            self._others(block)
            return None
        fields = _kept(block.numbers())
        wrong = faults(fields, self._groups.main)
        rows: NDArray[np.intp] = np.arange(block.count)
        if wrong:
            rows = rows[~np.logical_or.reduce([mask for _, mask in wrong])]
        sound = {each: numbers[rows] for each, numbers in fields.items()} if wrong else fields
        keys = step_keys(sound) if len(rows) else None
        if keys is not None:
            plan = self._run.order.plan(
                keys, lambda at: seconds_of(block.time(int(rows[at]))), lambda several: block.seconds(rows[several])
            )
            if plan.stop is not None:
                if plan.why is StepPlace.BACK:
                    self._refuse(block.line(int(rows[plan.stop])), float(keys[plan.stop]), plan.last)
                return int(rows[plan.stop])
            if not plan.kept.all():
                again = rows[~plan.kept]
                self._run.drops.add(AGAIN, block.line(int(again[0])), len(again))
                rows, keys = rows[plan.kept], keys[plan.kept]
        self._others(block)
        for reason, mask in wrong:
            self._run.drops.add(reason, block.line(int(np.flatnonzero(mask)[0])), int(mask.sum()))
        if len(rows):
            if keys is not None:
                first, last = (seconds_of(block.time(int(row))) for row in (rows[0], rows[-1]))
                self._run.order.accept(keys, first, last)
            self._run.add_records(block, fields, rows)
        return None

    def _others(self, block: LineBlock) -> None:
        lines = block.others
        if not lines:
            if block.count:
                self._run.context.records_began()
                self._run.tail = []
            return
        first = block.line_number(0) if block.count else None
        last = block.line_number(block.count - 1) if block.count else 0
        text = b"\n".join([line for _, line in lines])
        self._check_rivals(text, lines)
        printed = {name: each for name, each in self._printed.items() if not each.literal or each.literal in text}
        if printed or self._spec.marker in text:
            for number, line in lines:
                if not self._run.add_printed(printed, number, line) and self._spec.marker in line:
                    self._run.drops.add(why_no_record(line, self._spec.marker), shown(number, line))
        self._run.add_others(lines, first, last)

    def _check_rivals(self, text: bytes, lines: Sequence[tuple[int, bytes]]) -> None:
        for spec in self._rivals:
            if spec.marker in text and any(spec.marker in line and spec.record.search(line) for _, line in lines):
                check_only(self._log, self._spec, spec)
                self._rivals = [each for each in self._rivals if each is not spec]

    def _refuse(self, line: Line, key: float, last: float) -> None:
        raise LogError(
            f"{self._source}: line {line.number}",
            got=line.text,
            expected=f"a step after {key_text(last)}, that step again (another rank) or a new run's first",
            remedy=f"Its {key_text(key)} is neither: split the log, or keep one rank's lines",
        )

    def _without_cut_number(self, chunk: Chunk) -> bytes:
        """The chunk's data, without a last record that was cut within its last number."""
        start = chunk.data.rfind(b"\n", 0, -1) + 1
        line = chunk.data[start:-1]
        match = self._spec.record.search(line)
        if match is None or is_whole(match, line):
            return chunk.data
        number = chunk.first_line + chunk.data.count(b"\n", 0, start)
        self._run.drops.add(CUT, shown(number, line))
        return chunk.data[:start] + b"\n"


def _kept(fields: dict[RecordField, NDArray[np.float64]]) -> dict[RecordField, NDArray[np.float64]]:
    """The columns as they are kept: steps/s become seconds of a step."""
    with np.errstate(divide="ignore", over="ignore"):
        return {_KEPT_AS.get(each, each): 1 / found if each in _KEPT_AS else found for each, found in fields.items()}


def _blocks(data: bytes) -> Iterator[bytes]:
    """The data in blocks of whole lines."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", min(start + _BLOCK_BYTES, len(data)) - 1) + 1
        yield data[start : end or len(data)]
        start = end or len(data)
