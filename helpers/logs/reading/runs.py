"""One run of a log while it is read: its records, the lines around them, and whether its end is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from helpers.logs.column import ColumnPart, NumberColumn
from helpers.logs.reading.block import LineBlock
from helpers.logs.reading.detect import Log
from helpers.logs.reading.lines import PREFIXED, TOO_LONG, ContextLines, Drops, Finder, shown
from helpers.logs.reading.numbers import moment_in, seconds_of
from helpers.logs.reading.steps import StepOrder
from helpers.logs.record import FormatSpec, Line, LogRun, Printed, RecordField, RunContext, Stamp
from helpers.logs.settings import LogSetting, Stated
from helpers.logs.sources.clean import Chunk

Floats = NDArray[np.float64]
Settle = Callable[[str, Mapping[LogSetting, Stated]], Mapping[LogSetting, Stated]]

_FIRST_STAMPS = 256
# How many figures of one name, printed by the script itself, are kept for a run; the last is always kept.
_MOST_PRINTED = 10_000
# A new run that no line announces begins after the last record of the previous run. Up to so many of the lines between
# may be its own.
_MOST_TAIL = 1000
# The figures that a script prints once, at its regular end.
_FINAL = ("average", "train_throughput", "summary_total", "summary_compute", "summary_ips")


class RunBuilder:
    """A run from ``first_line`` on, while it is read. Its records go to columns that the log's runs share."""

    def __init__(self, spec: FormatSpec, columns: Mapping[RecordField, NumberColumn], first_line: int) -> None:
        self.spec, self.first_line, self.last_line = spec, first_line, first_line
        self.columns = columns
        self.order = StepOrder()
        self.drops = Drops()
        self.context = ContextLines()
        self.ranks: set[int] = set()
        self.notes: list[str] = []
        self.tail: list[tuple[int, bytes]] = []
        self.records = 0
        self._first_record: Line | None = None
        self._start = _length(columns)
        self._stamps: list[Stamp] = []
        self._last_time = b""
        self._printed: dict[str, list[Printed]] = {}
        self._epochs = _Epochs()

    @property
    def has_figures(self) -> bool:
        return self.records > 0 or any(name in self.spec.printed for name in self._printed)

    def add_records(self, block: LineBlock, fields: Mapping[RecordField, Floats], rows: NDArray[np.intp]) -> None:
        """Adds the given rows of a block as this run's next records."""
        if not len(rows):
            return
        if self._first_record is None:
            self._first_record = block.line(int(rows[0]))
        kept = fields if len(rows) == block.count else {each: numbers[rows] for each, numbers in fields.items()}
        for each, numbers in kept.items():
            self.columns[each].append(numbers)
        for at, row in enumerate(rows[: max(_FIRST_STAMPS - self.records, 0)].tolist()):
            seconds = seconds_of(block.time(row))
            if seconds is not None:
                self._stamps.append(Stamp(self.records + at, seconds))
        self._last_time = block.time(int(rows[-1]))
        self.records += len(rows)
        self._epochs.add(kept)

    def add_others(self, lines: Sequence[tuple[int, bytes]], records_from: int | None, records_to: int) -> None:
        """Adds the lines of a block that are not records.

        The block's records are in the lines ``records_from`` (None if it has no record) to ``records_to``.
        """
        if records_from is None:
            self.context.add(lines)
            self.tail = [*self.tail, *lines][-_MOST_TAIL:]
            return
        self.context.add([each for each in lines if each[0] < records_from])
        self.context.records_began()
        self.context.add([each for each in lines if each[0] > records_from])
        self.tail = [each for each in lines if each[0] > records_to][-_MOST_TAIL:]

    def add_printed(self, printed: Mapping[str, Finder], number: int, line: bytes) -> bool:
        """Adds the script's own figures in a line; returns whether there was one."""
        found = False
        for name, finder in printed.items():
            for match in finder.matches(line):
                found = True
                figure = _printed(match.groupdict(), number)
                if figure is not None:
                    kept = self._printed.setdefault(name, [])
                    del kept[_MOST_PRINTED - 1 :]
                    kept.append(figure)
        return found

    def build(self, log: Log, number: int, runs_in_file: int, settle: Settle, cut: str) -> LogRun:
        """The run with ``number`` (from 1) of ``runs_in_file``; ``cut`` says what the log's end lacks."""
        context = RunContext(log.name, self.context.lines(), frozenset(self.ranks), runs_in_file, self._first_record)
        about = log.source
        if runs_in_file > 1:
            about += f": run {number} of {runs_in_file}, lines {self.first_line} to {self.last_line}"
        settings = settle(about, self.spec.configure(context))
        parts = {
            each: ColumnPart(whole, self._start, self._start + self.records) for each, whole in self.columns.items()
        }
        last = self.records - 1
        seconds = seconds_of(self._last_time)
        stamps = list(self._stamps)
        if seconds is not None and (not stamps or stamps[-1].index < last):
            stamps.append(Stamp(last, seconds))
        return LogRun(
            format=self.spec,
            source=log.source,
            sha256=log.sha256(),
            number=number,
            runs_in_file=runs_in_file,
            first_line=self.first_line,
            last_line=self.last_line,
            settings=settings,
            columns=parts,
            stamps=tuple(stamps),
            printed={name: tuple(figures) for name, figures in self._printed.items()},
            dropped=self.drops.all(),
            notes=tuple(self.notes),
            began=self._began(context),
            cut="; ".join(each for each in (cut, self._epochs.cut(), self._no_end()) if each),
        )

    def _began(self, context: RunContext) -> str:
        """When the run began: the time of its first record, else of the first line around it that has a year (glog's
        records have none)."""
        lines = [*([self._first_record] if self._first_record else []), *context.lines]
        return next((found for line in lines if (found := moment_in(line.text.encode()))), "")

    def _no_end(self) -> str:
        finals = [name for name in _FINAL if name in self.spec.printed]
        if not finals or any(name in self._printed for name in finals):
            return ""
        return f"the script's own figure at its end ({', '.join(finals)}) is missing"


class _Epochs:
    """The last step of the latest epoch and that of the epoch before."""

    def __init__(self) -> None:
        self._epoch: float | None = None
        self._step = 0.0
        self._before: tuple[float, float] | None = None

    def add(self, fields: Mapping[RecordField, Floats]) -> None:
        epochs = fields.get(RecordField.EPOCH)
        steps = fields.get(RecordField.STEP, fields.get(RecordField.SPAN_END))
        if epochs is None or steps is None:
            return
        ends = np.flatnonzero(epochs[1:] != epochs[:-1]).tolist()
        for end in (*ends[-2:], len(epochs) - 1):
            epoch, step = float(epochs[end]), float(steps[end])
            if math.isnan(epoch) or math.isnan(step):
                continue
            if self._epoch is not None and epoch > self._epoch:
                self._before = (self._epoch, self._step)
            self._epoch, self._step = epoch, step

    def cut(self) -> str:
        if self._before is None or self._epoch is None or self._step >= self._before[1]:
            return ""
        return (
            f"the last epoch, {self._epoch:.0f}, ends at step {self._step:.0f}; "
            f"epoch {self._before[0]:.0f} at step {self._before[1]:.0f}"
        )


def _printed(groups: Mapping[str, bytes | None], number: int) -> Printed | None:
    try:
        rate = float(groups.get("images_per_s") or b"nan")
        epoch = int(groups["epoch"] or b"") if groups.get("epoch") else None
    except ValueError:
        return None
    return Printed(rate, number, epoch) if 0 < rate < float("inf") else None


def _length(columns: Mapping[RecordField, NumberColumn]) -> int:
    return max((len(column) for column in columns.values()), default=0)


class BesideRank0:
    """The parts of a chunk that are not lines of rank 0, to be added to the run at that place: the ranks named by
    prefixes, other ranks' lines that look like records, and lines that are too long."""

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
        """Adds to the run everything before line ``end``."""
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
