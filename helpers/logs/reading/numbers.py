"""Reads numbers and time stamps of many lines at once.

The shape of a line is the line with each digit replaced by 0. A log has few shapes. So the pattern is matched once for
each shape, and numpy reads the numbers of all lines of a block together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from helpers.logs.record import RecordField

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_TO_SHAPE = bytes.maketrans(b"123456789", b"000000000")
_REPEATS = re.compile(rb"\{\d{0,9},?\d{0,9}\}")
_PLAIN = re.compile(rb"(0*)(?:\.(0*))?")
# A log with more shapes than this, or with a longer shape, is read by the pattern itself.
_MOST_SHAPES = 4096
_MOST_SHAPE_BYTES = 1024
# For fewer bytes, finding shapes takes longer than using the pattern.
_LEAST_BYTES = 2**14
# Shapes are given up once so many more blocks failed than succeeded.
_MOST_IN_VAIN = 8
_NEW, _HARD, _OTHER = -3, -2, -1

# A number with so many digits is below 2**63 when its point is ignored.
MOST_DIGITS = 18
_EXACT = 2**53
_TENS = 10 ** np.arange(MOST_DIGITS + 1, dtype=np.int64)
# True on x86 and POWER; elsewhere a long double may be no wider than a double.
_WIDE = np.finfo(np.longdouble).nmant >= 63

_DATE = re.compile(
    rb"(?:(?P<year>\d{4})[-/]?)?(?P<month>\d\d)[-/]?(?P<day>\d\d)[ T]+"
    rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
)
_SECONDS = re.compile(rb"\d{1,12}(?:\.\d+)?")
# glog prints no year. In a leap year each of its dates exists.
_ANY_YEAR = b"2000"
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_ZERO = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Shaped:
    """The lines of a block by shape."""

    # For each line the index of its shape; negative if it is not a record.
    of_lines: Ints
    # The indices (from 0) of the lines that are records.
    rows: NDArray[np.intp]


class Shapes:
    """The shapes of one log, and where the fields are in a record of each shape."""

    def __init__(self, record: re.Pattern[bytes], fields: Mapping[RecordField, int]) -> None:
        self._record, self._fields = record, fields
        self._known: dict[bytes, int] = {}
        # For each shape and field: where the integer part ends, and the numbers of digits before and behind the point.
        self._places: list[list[tuple[int, int, int]]] = []
        self._in_vain = 0 if _takes_digits_alike(record) else _MOST_IN_VAIN + 1

    def look(self, data: bytes) -> Shaped | None:
        """The shapes of the data's lines; None if one of the lines needs the pattern itself."""
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

    def _indexes(self, lines: Sequence[bytes]) -> Ints:
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

    def numbers(self, data: bytes, starts: Ints, shaped: Shaped) -> dict[RecordField, Floats]:
        """The column of each field for the rows, whose lines begin at ``starts``; NaN if a field is empty."""
        places = np.array(self._places, dtype=np.int64).reshape(len(self._places), -1, 3)
        of_rows = shaped.of_lines[shaped.rows]
        at = {each: places[of_rows, index] for index, each in enumerate(self._fields)}
        return {each: decimals(data, DigitPlaces(starts + of[:, 0], of[:, 1], of[:, 2])) for each, of in at.items()}


def _takes_digits_alike(pattern: re.Pattern[bytes]) -> bool:
    """Whether a pattern names no particular digit, so that all lines of a shape match as the shape does."""
    return not re.search(rb"\d", _REPEATS.sub(b"", pattern.pattern))


@dataclass(frozen=True)
class DigitPlaces:
    """The places of numbers in a text."""

    # Where the integer part of each ends.
    ends: Ints
    # How many digits each has before and behind its point.
    before: Ints
    behind: Ints


def decimals(text: bytes, found: DigitPlaces) -> Floats:
    """The numbers, rounded exactly as by ``float``; NaN for one without a digit."""
    characters = np.frombuffer(text, dtype=np.uint8)
    digits = _whole(characters, found.ends, found.before)
    if found.behind.any():
        behind = _whole(characters, found.ends + 1 + found.behind, found.behind)
        digits = digits * _TENS[found.behind] + behind
    # Both are exact, so their quotient is rounded once.
    numbers = digits / _TENS[found.behind].astype(np.float64)
    large = np.flatnonzero(digits >= _EXACT)
    if len(large):
        numbers[large] = _of_large(text, found, digits[large], large)
    if not found.before.all():
        numbers[found.before == 0] = np.nan
    return numbers


def _whole(characters: NDArray[np.uint8], ends: Ints, widths: Ints) -> Ints:
    """The integers of ``widths`` digits that end before ``ends``."""
    widest, narrowest = int(widths.max()), int(widths.min())
    total = np.zeros(len(ends), dtype=np.int64)
    at = ends - widest
    for left in range(widest, 0, -1):
        digit = characters.take(at, mode="clip") - np.uint8(ord("0"))
        if left > narrowest:
            digit[widths < left] = 0
        total *= 10
        total += digit
        at += 1
    return total


def _of_large(text: bytes, found: DigitPlaces, digits: Ints, rows: NDArray[np.intp]) -> Floats:
    """Numbers with more digits than a double holds: computed in long double if the rounding is certain, else by
    ``float``."""
    wide = digits.astype(np.longdouble) / _TENS[found.behind[rows]].astype(np.longdouble)
    numbers = wide.astype(np.float64)
    away, step = np.abs(wide - numbers), np.spacing(numbers)
    # If the quotient is halfway between two doubles, its own rounding may have decided.
    doubtful = np.flatnonzero(2 * away == step) if _WIDE else np.arange(len(rows))
    for at in doubtful.tolist():
        row = rows[at]
        end = int(found.ends[row])
        numbers[at] = float(text[end - int(found.before[row]) : end + 1 + int(found.behind[row])])
    return numbers


def seconds_of(text: bytes) -> float | None:
    """``2022/12/02 18:10:52``, ``2022-11-24 04:01:45.487468``, ``2020-12-16 08:21:31,031``, ``0826 15:13:29.256137``
    or seconds since 1970, as seconds of a clock without a zone; None for anything else."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[name] or _ANY_YEAR) for name in _PARTS)
    try:
        whole = (datetime(year, month, day, hour, minute, second) - _ZERO).total_seconds()
    except ValueError:
        return None
    return whole + float(b"0." + (found["fraction"] or b"0"))


# Where a line has a time, it is near its beginning.
_DATE_WITHIN = 200
_WITH_YEAR = re.compile(rb"(?<!\d)20\d\d[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?!\d)")
# NVIDIA's loggers print seconds since 1970: those from 2001 to 2096.
_SINCE_1970 = re.compile(rb"(?<![\d.])[1-3]\d{9}\.\d{1,9}(?!\d)")


def moment_in(line: bytes) -> str:
    """The first time with a year in a line, or seconds since 1970, to the second in ISO 8601; empty if it has
    none."""
    for pattern in (_WITH_YEAR, _SINCE_1970):
        found = pattern.search(line[:_DATE_WITHIN])
        seconds = None if found is None else seconds_of(found[0])
        if seconds is not None:
            return (_ZERO + timedelta(seconds=int(seconds))).isoformat()
    return ""


def seconds_of_rows(texts: NDArray[np.uint8]) -> Floats | None:
    """``seconds_of`` for each row of a matrix of characters; None unless all rows are dates with the same digits'
    places as the first row."""
    found = _DATE.fullmatch(texts[0].tobytes())
    if found is None:
        return None
    digits = np.ascontiguousarray(texts.T) - np.uint8(ord("0"))
    if not all(bool((each <= 9).all() if each[0] <= 9 else (each == each[0]).all()) for each in digits):
        return None

    def number(name: str, default: bytes = b"0") -> Ints:
        if found[name] is None:
            return np.full(len(texts), int(default), dtype=np.int64)
        begin, end = found.span(name)
        whole: Ints = digits[begin].astype(np.int64)
        for each in digits[begin + 1 : end]:
            whole *= 10
            whole += each
        return whole

    year, month, day, hour, minute, second = (number(name, _ANY_YEAR) for name in _PARTS)
    if not all(
        bool(np.all((low <= part) & (part <= most)))
        for part, low, most in ((year, 1, 9999), (month, 1, 12), (hour, 0, 23), (minute, 0, 59), (second, 0, 59))
    ):
        return None
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    if not (days.astype("datetime64[M]") == months).all():
        return None
    fraction = number("fraction") / 10.0 ** len(found["fraction"] or b"")
    return ((days.astype(np.int64) * 24 + hour) * 60 + minute) * 60.0 + second + fraction
