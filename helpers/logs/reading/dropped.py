"""Lines that look like records and are none, or are not to be used: counted by reason, with the first of each."""

from __future__ import annotations

import re

from helpers.logs.record import Dropped, Line
from helpers.logs.sources.clean import MOST_LINE_BYTES, line_text

# Of a line that is shown, so many characters.
SHOWN = 400

NO_VALUE = "no value: None"
NOT_FINITE = "no number: nan or inf"
ADDRESS = "an address, no rate"
FORM = "not a whole record"
CUT = "cut: the last line ends within its number"
AGAIN = "the same step again: of another rank"
PREFIXED = "of another rank, by mpirun's prefix"
TOO_LONG = f"a line of more than {MOST_LINE_BYTES >> 10} KiB"

_ADDRESS = re.compile(rb"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_NONE = re.compile(rb"\b(?:None|null)\b")
_NOT_FINITE = re.compile(rb"(?<![\w.])[-+]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)


def why_no_record(line: bytes, marker: bytes) -> str:
    """The reason for a line that has a format's marker and is no record of it."""
    from_marker = line[max(line.find(marker), 0) :]
    for pattern, reason in ((_NONE, NO_VALUE), (_NOT_FINITE, NOT_FINITE), (_ADDRESS, ADDRESS)):
        if pattern.search(from_marker):
            return reason
    return FORM


def shown(number: int, line: bytes) -> Line:
    """A line as it stands in a message: a long one without its end."""
    text = line_text(line[: 4 * SHOWN])
    return Line(number, text if len(text) <= SHOWN else text[:SHOWN] + " ...")


class Drops:
    """Counts by reason."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, Line] = {}

    def add(self, reason: str, first: Line, count: int = 1) -> None:
        self._counts[reason] = self._counts.get(reason, 0) + count
        self._first.setdefault(reason, first)

    def all(self) -> tuple[Dropped, ...]:
        """In the order of their first lines."""
        found = [Dropped(count, reason, self._first[reason]) for reason, count in self._counts.items()]
        return tuple(sorted(found, key=lambda each: (each.first.number, each.reason)))
