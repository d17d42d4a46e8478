"""Reads the runs of a log of known format, line by line."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from helpers.logs.detect import shown
from helpers.logs.formats.common import Facts, finished, with_tf32
from helpers.logs.lines import MOST_LINE_BYTES, LogLine, line_text, moment_in, seconds_of
from helpers.logs.record import TIME_GROUP, Dropped, FormatSpec, Line, LogRun, Printed, RecordField
from helpers.logs.settings import LogSetting, Stated, settle
from helpers.logs.source import LogFile
from helpers.logs.steps import StepOrder, StepPlace, step_key
from helpers.trainers.contract.errors import LogError

# The most runs of a log. If there seem to be more, the steps mean something else.
_MOST_RUNS = 1000
# How many lines are kept from which a run's configuration is read: the first of the run, and those after its first
# record. Of each at most so many bytes.
_HEAD_LINES, _AFTER_LINES, _KEPT_BYTES = 5000, 1000, 2**14
_FIRST_STAMPS = 256

AGAIN = "the same step again: of another rank"
PREFIXED = "of another rank, by mpirun's prefix"
TOO_LONG = f"a line of more than {MOST_LINE_BYTES >> 10} KiB"
NO_RECORD = "not a whole record"
CUT = "cut: the last line ends within its number"


def read_log(
    log: LogFile,
    spec: FormatSpec,
    asked: Mapping[LogSetting, Stated],
    known: Mapping[LogSetting, Stated] = MappingProxyType({}),
) -> tuple[LogRun, ...]:
    """All runs of the log in order, with their records, configuration and dropped lines.

    ``asked`` states the settings that the log does not state, ``known`` those that neither does. Raises LogError if
    there is no record, if steps go back in a way that neither another rank nor a new run explains, and if a setting is
    unknown or contradicted.
    """
    reader = _Reader(log, spec)
    for line in log.lines():
        reader.take(line)
    runs = reader.finish()
    return tuple(run.build(log, number, len(runs), asked, known) for number, run in enumerate(runs, 1))


class _Reader:
    def __init__(self, log: LogFile, spec: FormatSpec) -> None:
        self._log, self._spec = log, spec
        self._done: list[_Run] = []
        self._run = _Run(spec, 1)
        self._number = 0

    def take(self, line: LogLine) -> None:
        self._number = line.number
        if line.cut:
            self._run.no_end = "the last line has no end"
        if line.rank >= 0:
            self._run.ranks.add(line.rank)
        if line.too_long:
            self._run.drop(TOO_LONG, line)
        elif line.rank > 0:
            if self._spec.marker in line.text:
                self._run.drop(PREFIXED, line)
        elif self._spec.marker in line.text and self._spec.record.search(line.text):
            # Ranks that print at once may leave out a line end.
            for match in self._spec.record.finditer(line.text):
                self._record(line, match)
        elif line.text:
            self._other(line)

    def finish(self) -> list[_Run]:
        """The runs that have records or a figure printed by the script itself. Raises LogError if there is none."""
        self._run.last_line = self._number
        if self._run.has_figures:
            return [*self._done, self._run]
        if not self._done:
            dropped = "; ".join(f"{each.count} dropped ({each.reason})" for each in self._run.dropped())
            raise LogError(
                self._log.source,
                got="none",
                expected=f"records of the format {self._spec.name}",
                remedy=dropped or None,
            )
        last = self._done[-1]
        last.notes.append(f"line {self._run.first_line}: a run begins that has no record")
        last.last_line, last.no_end = self._number, self._run.no_end
        return self._done

    def _record(self, line: LogLine, match: re.Match[bytes]) -> None:
        if self._spec.record in self._spec.starts and self._run.has_figures:
            self._next_run(line.number)
        if line.cut and match.end(match.lastindex or 0) == len(line.text):
            self._run.drop(CUT, line)
            return
        texts = match.groupdict()
        time = texts.pop(TIME_GROUP, None) or b""
        record = {name: math.nan if text is None else number_of(text) for name, text in texts.items()}
        if not all(SMALLEST <= number <= LARGEST for number in record.values()) and (reason := fault_of(record)):
            self._run.drop(reason, line)
            return
        if RecordField.STEPS_PER_S in record:
            record[RecordField.STEP_SECONDS] = 1 / record.pop(RecordField.STEPS_PER_S)
        key = step_key(record)
        place = self._run.order.place(key)
        if key is None and time and (time, record) == self._run.last:
            place = StepPlace.AGAIN
        if place is StepPlace.AGAIN:
            self._run.drop(AGAIN, line)
            return
        if place is StepPlace.BACK:
            raise LogError(
                f"{self._log.source}: line {line.number}",
                got="an earlier step",
                expected="the next step, the last one again or a new run's first",
                remedy="Split the log, or keep one rank's lines",
            )
        if place is StepPlace.RESTART:
            self._unannounced_run(line.number)
            self._run.order.place(key)
        self._run.add(record, time, line)

    def _unannounced_run(self, number: int) -> None:
        """Begins a run. The lines since the last record may be its own."""
        lines = self._run.since_record
        self._next_run(number)
        for line in lines:
            self._run.context(line)
        self._run.notes.append(f"line {number}: steps start again, though no line announces a run: taken for a new run")

    def _other(self, line: LogLine) -> None:
        if self._run.has_figures and any(pattern.search(line.text) for pattern in self._spec.starts):
            self._next_run(line.number)
        if not self._run.add_printed(line) and self._spec.marker in line.text:
            self._run.drop(NO_RECORD, line)
        self._run.context(line)

    def _next_run(self, number: int) -> None:
        self._run.last_line = number - 1
        self._done.append(self._run)
        if len(self._done) >= _MOST_RUNS:
            raise LogError(self._log.source, got=f"another run at line {number}", expected=f"at most {_MOST_RUNS} runs")
        self._run = _Run(self._spec, number)


class _Run:
    """A run from ``first_line`` on, while it is read."""

    def __init__(self, spec: FormatSpec, first_line: int) -> None:
        self.spec, self.first_line, self.last_line = spec, first_line, first_line
        self.order = StepOrder()
        self.ranks: set[int] = set()
        self.notes: list[str] = []
        self.no_end = ""
        # The last record as printed, with its time.
        self.last: tuple[bytes, Mapping[str, float]] = (b"", {})
        self.since_record: list[LogLine] = []
        self._columns: dict[str, array[float]] = {}
        self._records = 0
        self._stamps: dict[int, float] = {}
        self._first_record: Line | None = None
        self._printed: dict[str, list[Printed]] = {}
        self._drops: dict[str, Dropped] = {}
        self._head: list[LogLine] = []
        self._after: list[LogLine] = []

    @property
    def has_figures(self) -> bool:
        return self._records > 0 or bool(self._printed)

    def add(self, record: Mapping[str, float], time: bytes, line: LogLine) -> None:
        if self._first_record is None:
            self._first_record = Line(line.number, line_text(line.text))
            self._columns = {each: array("d") for each in record}
        for each, value in record.items():
            self._columns[each].append(value)
        self.last = (time, record)
        if self._records < _FIRST_STAMPS and (seconds := seconds_of(time)) is not None:
            self._stamps[self._records] = seconds
        self._records += 1
        self.since_record.clear()

    def context(self, line: LogLine) -> None:
        """Keeps a line that is no record, if the run's configuration may be read from it."""
        kept, most = (self._after, _AFTER_LINES) if self._records else (self._head, _HEAD_LINES)
        line = line._replace(text=line.text[:_KEPT_BYTES])
        if len(kept) < most:
            kept.append(line)
        if len(self.since_record) < _AFTER_LINES:
            self.since_record.append(line)

    def drop(self, reason: str, line: LogLine) -> None:
        before = self._drops.get(reason) or Dropped(0, reason, shown(line))
        self._drops[reason] = replace(before, count=before.count + 1)

    def dropped(self) -> tuple[Dropped, ...]:
        """All reasons, in the order of their first lines."""
        return tuple(sorted(self._drops.values(), key=lambda each: (each.first.number, each.reason)))

    def add_printed(self, line: LogLine) -> bool:
        """Adds the script's own figures in a line; returns whether there was one."""
        found = False
        for name, pattern in self.spec.printed.items():
            for match in pattern.finditer(line.text):
                found = True
                groups = match.groupdict()
                rate = number_of(groups["images_per_s"])
                if math.isfinite(rate):
                    epoch = int(groups["epoch"]) if groups.get("epoch") else None
                    self._printed.setdefault(name, []).append(Printed(max(rate, 0.0), line.number, epoch))
        return found

    def build(
        self,
        log: LogFile,
        number: int,
        runs_in_file: int,
        asked: Mapping[LogSetting, Stated],
        known: Mapping[LogSetting, Stated],
    ) -> LogRun:
        """The run with ``number`` (from 1) of ``runs_in_file``. Raises LogError."""
        about = log.source
        unread = sum(each.count for reason, each in self._drops.items() if reason not in (AGAIN, PREFIXED))
        if unread > self._records:
            raise LogError(
                about,
                got=f"{unread} records that cannot be read, and {self._records} that can",
                expected="more that can: the others say little about the run",
                remedy="; ".join(f"{each.reason} (line {each.first.number})" for each in self.dropped()),
            )
        if runs_in_file > 1:
            about += f": run {number} of {runs_in_file}, lines {self.first_line} to {self.last_line}"
        lines = [Line(line.number, line_text(line.text)) for line in (*self._head, *self._after)]
        facts = Facts(log.name, lines, frozenset(self.ranks), runs_in_file, self._first_record)
        # A card named only by an option counts like one in the log's name.
        settings = with_tf32(settle(about, finished(facts, self.spec.configure(facts)), asked, known))
        if (seconds := seconds_of(self.last[0])) is not None:
            self._stamps[self._records - 1] = seconds
        rate_of = self.spec.rate_of
        return LogRun(
            format=self.spec,
            source=log.source,
            sha256=log.sha256,
            number=number,
            runs_in_file=runs_in_file,
            first_line=self.first_line,
            last_line=self.last_line,
            settings=settings,
            columns=self._columns,
            rate_of=rate_of(settings) if callable(rate_of) else rate_of,
            stamps=self._stamps,
            printed={name: tuple(figures) for name, figures in self._printed.items()},
            dropped=self.dropped(),
            notes=tuple(self.notes),
            began=self._began(lines),
            cut="; ".join(filter(None, (self.no_end, self._cut_epoch()))),
        )

    def _began(self, lines: Sequence[Line]) -> str:
        """When the run began: the time of its first record, else of the first line around it that has a year (glog's
        records have none)."""
        first = [self._first_record] if self._first_record else []
        return next((found for line in (*first, *lines) if (found := moment_in(line.text.encode()))), "")

    def _cut_epoch(self) -> str:
        """Says that the last epoch ends at an earlier step than the one before it."""
        places = zip(*(self._columns.get(each, ()) for each in (RecordField.EPOCH, RecordField.STEP)), strict=False)
        last_steps = {epoch: step for epoch, step in places if epoch == epoch and step == step}
        if len(last_steps) < 2:
            return ""
        (epoch, step), (last_epoch, last_step) = sorted(last_steps.items())[-2:]
        if last_step >= step:
            return ""
        return f"the last epoch, {last_epoch:.0f}, ends at step {last_step:.0f}; epoch {epoch:.0f} at step {step:.0f}"


# ---- the numbers of a record: as printed, and why some cannot be used

# A record of any format has at least one of these fields. The first one that a format has must be in each record.
_MAIN = (RecordField.IMAGES_PER_S, RecordField.STEP_SECONDS, RecordField.SPAN_SECONDS)
_POSITIVE = (*_MAIN, RecordField.COMPUTE_IMAGES_PER_S, RecordField.STEPS_PER_S)
# A number outside these limits is not a measurement. Within them, squares and reciprocals are still finite numbers.
SMALLEST, LARGEST = 1e-100, 1e100
# Separators that can mean one thing only: thousands if there are several groups or a point behind them, decimals if
# what is before or behind a single comma is no group of thousands.
_THOUSANDS = re.compile(rb"[-+]?\d{1,3}(?:(?:,\d{3}){2,}(?:\.\d+)?|,\d{3}\.\d+)")
_DECIMALS = re.compile(rb"[-+]?(?:\d{4,}|0|\d{1,3}(?=,(?!\d{3}$))),\d+")


def number_of(text: bytes) -> float:
    """A number as printed, also with separators where only one reading is possible (``2,899.125``, ``2899,125``);
    infinite for anything else."""
    try:
        number = float(text)
    except ValueError:
        if _THOUSANDS.fullmatch(text):
            return float(text.replace(b",", b""))
        return float(text.replace(b",", b".")) if _DECIMALS.fullmatch(text) else math.inf
    # Python reads nan, and 1_0 as 10.
    return math.inf if number != number or b"_" in text else number


def fault_of(record: Mapping[str, float]) -> str:
    """Why a record cannot be used; empty if it can."""
    main = next((each for each in _MAIN if each in record), None)
    for each, number in record.items():
        if number != number:
            if each == main:
                return f"no {each}"
        elif abs(number) > LARGEST:
            return f"{each}: no finite number"
        elif each in _POSITIVE and number < SMALLEST:
            return f"{each}: 0 or less"
        elif each == RecordField.READER_SECONDS and number < 0:
            return f"{each}: below 0"
    return ""
