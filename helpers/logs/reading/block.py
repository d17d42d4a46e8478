"""A block of lines and the records in it, as rows of texts and as columns of numbers, each with its line."""

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

# A record of any format has at least one of these fields. The first one that a format has must be in each of its
# records.
_MAIN = (RecordField.IMAGES_PER_S, RecordField.STEP_SECONDS, RecordField.SPAN_SECONDS)
_POSITIVE = (
    RecordField.IMAGES_PER_S,
    RecordField.COMPUTE_IMAGES_PER_S,
    RecordField.STEP_SECONDS,
    RecordField.SPAN_SECONDS,
)
# A number outside these limits is not a measurement. Within them, squares and reciprocals are still finite numbers.
_SMALLEST, _LARGEST = 1e-100, 1e100
# A decimal with so many significant digits may lack its end without a visible change of the rate.
_ENOUGH_DIGITS = 6
# Up to so many time stamps of a block are searched for one by one; beyond, all of them at once.
_FEW_TIMES = 4
# A time stamp is within so many bytes of its line's beginning.
_LARGEST_OFFSET = 200


class RecordGroups:
    """The record pattern of a format, and the field of each of its groups; made once for each log.

    ``record`` is the pattern without the time stamp; ``timed`` is the pattern with it, None if the format has no stamp.
    Few stamps are needed, and searching for all of them would take a tenth of the reading time.
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
    """Whole lines of a log, from ``first_line`` on, and the ``count`` records that the format's pattern finds in
    them."""

    _times_asked = 0

    def __init__(self, spec: FormatSpec, groups: RecordGroups, data: bytes, first_line: int) -> None:
        self.data, self.first_line = data, first_line
        self._groups = groups
        # A flat list: the text before the first record, the groups of that record, the text before the next, and so on.
        # A column is a slice of it. A tuple for each record would be work for the garbage collector.
        self._parts: list[bytes | None] = groups.record.split(data) if spec.marker in data else [data]
        self.count = len(self._parts) // groups.width

    @cached_property
    def others(self) -> list[tuple[int, bytes]]:
        """The lines that are neither empty nor records, with their numbers."""
        found: list[tuple[int, bytes]] = []
        texts, ends = self._texts, self._line_ends
        # The text before the first line end and that behind the last one belong to the lines of records.
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
        """The offset of line ``number`` in the data."""
        return int(self._starts[number - self.first_line])

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """The offset of each line, then the length of the data."""
        ends = np.flatnonzero(np.frombuffer(self.data, dtype=np.uint8) == ord("\n"))
        return np.concatenate(([0], ends + 1))

    @cached_property
    def _texts(self) -> list[bytes]:
        """The texts before the first record, between two records, and behind the last."""
        return cast("list[bytes]", self._parts[:: self._groups.width])

    @cached_property
    def _line_ends(self) -> NDArray[np.int64]:
        """How many line ends each of these texts has; a record contains none."""
        texts = self._texts
        # Usually every line is a record, and the same text follows each of them.
        if len(texts) > 2 and texts[1:-1].count(texts[1]) == len(texts) - 2:
            ends = np.full(len(texts), texts[1].count(b"\n"), dtype=np.int64)
            ends[0], ends[-1] = texts[0].count(b"\n"), texts[-1].count(b"\n")
            return ends
        return np.fromiter(map(bytes.count, texts, repeat(b"\n")), dtype=np.int64, count=len(texts))

    def numbers(self) -> dict[RecordField, Floats]:
        """The column of each field: NaN in rows without it, infinite if the text is not a number."""
        return {each: _numbers(self._parts[at :: self._groups.width]) for each, at in self._groups.fields.items()}

    def time(self, row: int) -> bytes:
        """The time stamp of a row; empty if its line has none."""
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

        None unless all are at the same offset in their lines and written in the same way; else use ``time`` for each
        row.
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
        """The offset of each row's line."""
        return self._starts[np.cumsum(self._line_ends)[: self.count]]

    @cached_property
    def _times(self) -> list[bytes]:
        assert self._groups.timed is not None
        return [match[TIME_GROUP] or b"" for match in self._groups.timed.finditer(self.data)]


def _numbers(texts: Sequence[bytes | None]) -> Floats:
    numbers: Floats | None = None
    # Neighbouring records usually have the same epoch.
    if texts[0] == texts[-1] and texts.count(texts[0]) == len(texts):
        return np.full(len(texts), _number(texts[0]))
    # None is a group that took no part in a match, usually in any of them.
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
    """The reasons why rows cannot be used (rates that are not finite or not above 0), each with a mask of its rows.

    A row has only the first reason that applies.
    """
    found: list[tuple[str, NDArray[np.bool_]]] = []
    for each, numbers in fields.items():
        low = numbers.min()
        # Also False if one of them is NaN.
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
    """Whether a record at the end of a log is complete although its line has no end: text follows its last number, or
    the number has so many digits that a missing one would not show."""
    ends = {match.end(number): match.group(number) for number in range(1, (match.re.groups or 0) + 1) if match[number]}
    if not ends:
        return True
    last = max(ends)
    text = ends[last]
    digits = text.replace(b".", b"", 1).lstrip(b"0")
    return last < len(line) or (b"." in text and digits.isdigit() and len(digits) >= _ENOUGH_DIGITS)


def block_of(spec: FormatSpec, groups: RecordGroups, data: bytes, first_line: int) -> LineBlock:
    """The block of these lines. If they have few shapes, records are found by shape, else by the pattern itself; both
    give the same result."""
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
