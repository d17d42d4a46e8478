"""A stretch of lines with its records: rows of texts, then columns of numbers, and the lines in which they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice, repeat
from typing import cast

import numpy as np
from numpy.typing import NDArray

from helpers.logs.reading.lines import shown
from helpers.logs.reading.numbers import Shaped, Shapes, seconds_of_rows
from helpers.logs.record import STAMP_BEGINS, STAMP_ENDS, TIME_GROUP, FormatSpec, Line, RecordField

Floats = NDArray[np.float64]

# A format's record has at least one of them; the first in this order is the one that every record must hold.
_MAIN = (RecordField.IMAGES_PER_S, RecordField.STEP_SECONDS, RecordField.SPAN_SECONDS)
_POSITIVE = (
    RecordField.IMAGES_PER_S,
    RecordField.COMPUTE_IMAGES_PER_S,
    RecordField.STEP_SECONDS,
    RecordField.SPAN_SECONDS,
)
# Beyond them a number is no measurement: the square or the reciprocal of one within them is still a number.
_SMALLEST, _LARGEST = 1e-100, 1e100
# The significant digits, with the point among them, of a number whose missing end would not show in a rate.
_ENOUGH_DIGITS = 6
# How many stamps of a block are looked for one by one; for one more, all of them are.
_FEW_TIMES = 4
# A stamp stands near the beginning of its line.
_LARGEST_OFFSET = 200


class RecordGroups:
    """The record pattern of a format, and which of its groups is which field; made once a log.

    ``record`` is the pattern without its time stamp, ``timed`` the one with it, None where it has none: few stamps are
    needed, and looking for all of them takes a tenth of the time.
    """

    def __init__(self, spec: FormatSpec) -> None:
        self.record = _untimed(spec.record)
        self.timed = spec.record if TIME_GROUP in spec.record.groupindex else None
        at = self.record.groupindex
        self.fields = {each: at[each.value] for each in RecordField if each.value in at}
        self.main = next((each for each in _MAIN if each in self.fields), None)
        self.width = self.record.groups + 1
        self.shapes = Shapes(self.record, self.fields)


def _untimed(record: re.Pattern[bytes]) -> re.Pattern[bytes]:
    stamp = f"{re.escape(STAMP_BEGINS)}.*?{re.escape(STAMP_ENDS)}".encode()
    pattern = re.sub(stamp, b"", record.pattern, flags=re.DOTALL)
    return re.compile(pattern.replace(b"(?P<%s>" % TIME_GROUP.encode(), b"(?:"), record.flags)


class LineBlock:
    """Whole lines from ``first_line`` of a log on, and what a format's pattern finds in them: ``count`` records."""

    _times_asked = 0

    def __init__(self, spec: FormatSpec, groups: RecordGroups, data: bytes, first_line: int) -> None:
        self.data, self.first_line = data, first_line
        self._groups = groups
        # The text between records and the groups of each, one behind the other: columns are slices of it, and there is
        # no tuple a record, which the garbage collector would look at.
        self._parts: list[bytes | None] = groups.record.split(data) if spec.marker in data else [data]
        self.count = len(self._parts) // groups.width

    @cached_property
    def others(self) -> list[tuple[int, bytes]]:
        """The lines without a record that are not empty, by number."""
        found: list[tuple[int, bytes]] = []
        texts, ends = self._texts, self._line_ends
        # What stands before the first line's end and behind the last one's is part of a record's line.
        whole = ends - 1
        whole[0] += 1
        whole[-1] += 0 if self.count else 1
        numbers = None
        for at in np.flatnonzero(whole > 0).tolist():
            numbers = np.cumsum(ends) - ends + self.first_line if numbers is None else numbers
            lines = texts[at].split(b"\n")[:-1]
            first = int(numbers[at])
            begin = 1 if at else 0
            found += [(number, line) for number, line in enumerate(lines[begin:], first + begin) if line]
        return found

    @cached_property
    def line_count(self) -> int:
        return int(self._line_ends.sum())

    def line_number(self, row: int) -> int:
        return self.first_line + int(self._line_ends[: row + 1].sum())

    def line(self, row: int) -> Line:
        number = self.line_number(row)
        start = self.offset(number)
        return shown(number, self.data[start : self.data.find(b"\n", start)])

    def offset(self, number: int) -> int:
        """Where the line of this number begins in the data."""
        return int(self._starts[number - self.first_line])

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where each line begins, and the end."""
        ends = np.flatnonzero(np.frombuffer(self.data, dtype=np.uint8) == ord("\n"))
        return np.concatenate(([0], ends + 1))

    @cached_property
    def _texts(self) -> list[bytes]:
        """What stands between the records: before the first, between each two, behind the last."""
        return cast("list[bytes]", self._parts[:: self._groups.width])

    @cached_property
    def _line_ends(self) -> NDArray[np.int64]:
        """How many line ends each of the texts has; a record has none."""
        texts = self._texts
        # Most often every line is a record and the same stands behind each.
        if len(texts) > 2 and texts[1:-1].count(texts[1]) == len(texts) - 2:
            ends = np.full(len(texts), texts[1].count(b"\n"), dtype=np.int64)
            ends[0], ends[-1] = texts[0].count(b"\n"), texts[-1].count(b"\n")
            return ends
        return np.fromiter(map(bytes.count, texts, repeat(b"\n")), dtype=np.int64, count=len(texts))

    def numbers(self) -> dict[RecordField, Floats]:
        """Every field's column; NaN where a row lacks it, infinite where its text is no number."""
        return {each: _numbers(self._parts[at :: self._groups.width]) for each, at in self._groups.fields.items()}

    def time(self, row: int) -> bytes:
        """A row's time stamp; empty where its line has none."""
        if self._groups.timed is None:
            return b""
        self._times_asked += 1
        if self._times_asked > _FEW_TIMES:
            return self._times[row]
        first = row
        while first > 0 and self._line_ends[first] == 0:
            first -= 1
        matches = self._groups.timed.finditer(self.data, self.offset(self.line_number(row)))
        return next(islice(matches, row - first, None))[TIME_GROUP] or b""

    def seconds(self, rows: NDArray[np.intp]) -> Floats | None:
        """The time stamps of rows, in seconds.

        None unless all stand in one place of their lines and are written alike; then ``time`` gives each alone.
        """
        stamp = self.time(int(rows[0]))
        begins = self._row_starts[rows]
        at = self.data.find(stamp, int(begins[0])) - int(begins[0])
        if not stamp or at > _LARGEST_OFFSET or int(begins[-1]) + at + len(stamp) > len(self.data):
            return None
        texts = np.lib.stride_tricks.sliding_window_view(np.frombuffer(self.data, dtype=np.uint8), len(stamp))
        return seconds_of_rows(texts[begins + at])

    @cached_property
    def _row_starts(self) -> NDArray[np.int64]:
        """Where each row's line begins."""
        return self._starts[np.cumsum(self._line_ends)[: self.count]]

    @cached_property
    def _times(self) -> list[bytes]:
        assert self._groups.timed is not None
        return [match[TIME_GROUP] or b"" for match in self._groups.timed.finditer(self.data)]


def _numbers(texts: Sequence[bytes | None]) -> Floats:
    numbers: Floats | None = None
    # An epoch has many records.
    if texts[0] == texts[-1] and texts.count(texts[0]) == len(texts):
        return np.full(len(texts), _number(texts[0]))
    # None stands for a group that took no part in a match: most often in all of them.
    if texts[0] is not None:
        with suppress(ValueError, TypeError):
            numbers = np.fromiter(map(float, cast("Sequence[bytes]", texts)), dtype=np.float64, count=len(texts))
    if numbers is None or np.isnan(numbers).any():
        return np.array([_number(text) for text in texts], dtype=np.float64)
    return numbers


def _number(text: bytes | None) -> float:
    if not text:
        return np.nan
    try:
        number = float(text)
    except ValueError:
        return np.inf
    return number if number == number else np.inf


def faults(fields: dict[RecordField, Floats], main: RecordField | None) -> list[tuple[str, NDArray[np.bool_]]]:
    """Why rows cannot be used, each reason with its rows: rates that are no numbers or not above 0.

    A row has one reason only, its first.
    """
    found: list[tuple[str, NDArray[np.bool_]]] = []
    for each, numbers in fields.items():
        low = numbers.min()
        # False where one of them is NaN.
        if (low >= _SMALLEST if each in _POSITIVE else low >= 0) and numbers.max() <= _LARGEST:
            continue
        checks = [(f"no {each.value}", np.isnan(numbers))] if each is main else []
        checks.append((f"{each.value}: no finite number", np.abs(numbers) > _LARGEST))
        if each in _POSITIVE:
            checks.append((f"{each.value}: 0 or less", numbers < _SMALLEST))
        elif each is RecordField.READER_SECONDS:
            checks.append((f"{each.value}: below 0", numbers < 0))
        for reason, mask in checks:
            if mask.any():
                known = np.logical_or.reduce([earlier for _, earlier in found]) if found else np.zeros_like(mask)
                found.append((reason, mask & ~known))
    return [(reason, mask) for reason, mask in found if mask.any()]


def is_whole(match: re.Match[bytes], line: bytes) -> bool:
    """Whether a record that ends a log without a line's end is certain to be whole, or to lack only digits that do not
    show: something follows its last number, or the number has enough digits behind its point."""
    ends = {match.end(number): match.group(number) for number in range(1, (match.re.groups or 0) + 1) if match[number]}
    if not ends:
        return True
    last = max(ends)
    text = ends[last]
    digits = text.replace(b".", b"", 1).lstrip(b"0")
    return last < len(line) or (b"." in text and digits.isdigit() and len(digits) >= _ENOUGH_DIGITS)


def block_of(spec: FormatSpec, groups: RecordGroups, data: bytes, first_line: int) -> LineBlock:
    """The block of these lines: by their shapes where they have few, else by the pattern itself, with equal results."""
    shaped = groups.shapes.look(data) if spec.marker in data else None
    return (
        LineBlock(spec, groups, data, first_line) if shaped is None else _ShapedBlock(groups, data, first_line, shaped)
    )


class _ShapedBlock(LineBlock):
    """A block whose records were found by the lines' shapes."""

    def __init__(self, groups: RecordGroups, data: bytes, first_line: int, shaped: Shaped) -> None:
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

    def numbers(self) -> dict[RecordField, Floats]:
        return self._groups.shapes.numbers(self.data, self._starts[self._shaped.rows], self._shaped)
