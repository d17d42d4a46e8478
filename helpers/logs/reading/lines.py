"""Lines that are not records: searches them fast, counts those that look like records, keeps those that state the
configuration."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helpers.logs.record import Dropped, Line
from helpers.logs.sources.clean import MOST_LINE_BYTES, line_text

_TOKEN = re.compile(
    rb"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\()|(?P<close>\))"
    rb"|(?P<repeat>[*+?]|\{\d*,?\d*\})|(?P<any>[.^$])|(?P<either>\|)|(?P<plain>.)",
    re.DOTALL,
)
_CONTROLS = {b"\\t": b"\t", b"\\n": b"\n", b"\\r": b"\r"}

# How many characters of a line a message shows.
_SHOWN = 400

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

# How many lines are kept of each part: the first lines of a run, the last before its first record (a log may begin with
# megabytes of other text), and the first after it.
_HEAD_LINES = 2000
_BEFORE_LINES = 2000
_AFTER_LINES = 1000
# How many bytes each of the three parts may have.
_PART_BYTES = 4 * 2**20 // 3

# A line's number and its bytes.
Numbered = tuple[int, bytes]


@dataclass(frozen=True)
class Finder:
    """A pattern that is searched only in texts that contain ``literal``, or in all texts if that is empty.

    Searching for text that every match contains is ten times as fast as searching for the pattern.
    """

    pattern: re.Pattern[bytes]
    literal: bytes

    def search(self, text: bytes) -> re.Match[bytes] | None:
        if self.literal and self.literal not in text:
            return None
        return self.pattern.search(text)

    def matches(self, text: bytes) -> Iterator[re.Match[bytes]]:
        if not self.literal or self.literal in text:
            yield from self.pattern.finditer(text)


def finder(pattern: re.Pattern[bytes]) -> Finder:
    return Finder(pattern, literal_of(pattern))


def literal_of(pattern: re.Pattern[bytes]) -> bytes:
    """The longest run of plain characters that every match contains (outside groups, sets and repeats); empty if there
    is none."""
    if pattern.flags & (re.IGNORECASE | re.VERBOSE):
        return b""
    stretches, depth = [b""], 0
    for token in _TOKEN.finditer(pattern.pattern):
        kind, text = token.lastgroup, token.group()
        if kind in ("open", "close"):
            depth += 1 if kind == "open" else -1
            stretches.append(b"")
        elif depth:
            continue
        elif kind == "either":
            return b""
        elif kind == "repeat":
            if text != b"+":
                stretches[-1] = stretches[-1][:-1]
            stretches.append(b"")
        elif kind == "plain" or (kind == "escape" and (text in _CONTROLS or not text[1:].isalnum())):
            stretches[-1] += _CONTROLS.get(text, text[-1:])
        else:
            stretches.append(b"")
    return max(stretches, key=len)


def why_no_record(line: bytes, marker: bytes) -> str:
    """Why a line with the marker of a format is not a record of it."""
    from_marker = line[max(line.find(marker), 0) :]
    for pattern, reason in ((_NONE, NO_VALUE), (_NOT_FINITE, NOT_FINITE), (_ADDRESS, ADDRESS)):
        if pattern.search(from_marker):
            return reason
    return FORM


def shown(number: int, line: bytes) -> Line:
    """A line as a message shows it; a long line is cut."""
    text = line_text(line[: 4 * _SHOWN])
    return Line(number, text if len(text) <= _SHOWN else text[:_SHOWN] + " ...")


class Drops:
    """Lines that look like records but are not used: counted by reason, with the first line for each reason."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, Line] = {}

    def add(self, reason: str, first: Line, count: int = 1) -> None:
        self._counts[reason] = self._counts.get(reason, 0) + count
        self._first.setdefault(reason, first)

    def all(self) -> tuple[Dropped, ...]:
        """All reasons, in the order of their first lines."""
        found = [Dropped(count, reason, self._first[reason]) for reason, count in self._counts.items()]
        return tuple(sorted(found, key=lambda each: (each.first.number, each.reason)))


class _First:
    """Keeps the first ``most`` lines."""

    def __init__(self, most: int) -> None:
        self.lines: list[Numbered] = []
        self.size_bytes = 0
        self.full = False
        self._most = most

    def add(self, lines: Sequence[Numbered]) -> int:
        """Takes lines as long as there is room; returns how many it took."""
        for taken, (number, line) in enumerate(lines):
            line = line[:MOST_LINE_BYTES]
            if len(self.lines) >= self._most or self.size_bytes + len(line) > _PART_BYTES:
                self.full = True
                return taken
            self.lines.append((number, line))
            self.size_bytes += len(line)
        return len(lines)


class _Last:
    """Keeps at least the last ``most`` lines. Whole batches are dropped, so megabytes of other text take little
    time."""

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
    """Keeps the lines from which a run's configuration is read. ``records_began`` must be called at the run's first
    record."""

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
