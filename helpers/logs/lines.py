"""Turns the bytes of a log into clean lines, and says of each which rank wrote it.

mpirun's and Horovod's prefixes name the rank that wrote a part of a line: ``[1,0]<stdout>:``, with a date in front
(``Wed Jun  1 12:20:31 2022[1,0]<stdout>:``), ``[job@1,0]<stderr>: `` and ``[1,0][host:pid]<stdout>: `` (Open MPI 5),
``[0]<stdout>:`` (horovodrun with gloo). A prefix is before each piece that a rank wrote, so also in the middle of
lines. Prefixes of other launchers (``[0] ``, ``0: ``) are not removed, since ordinary lines contain such text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import IO, NamedTuple

# A record has a few hundred bytes, the longest parameter line a few thousand. A longer line is emptied.
MOST_LINE_BYTES = 2**16
# How much is kept of a line that is too long.
_SHOWN_BYTES = 200
# ECMA-48: control sequences (colours, cursor), strings up to their terminator (titles, links), short escapes. If a
# string has no terminator, only its first two bytes are removed.
_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[PX\]^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-~])|\x1b", re.DOTALL
)
# The date is matched backwards from the bracket, so that the pattern begins with a literal, which is found fast.
_PREFIX = re.compile(
    rb"\[(?:(?<=([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\[))?"
    rb"(?:[^\[\]\s,]{1,100},)?(\d{1,7})\](?:\[[^\[\]\s]{1,100}\])?<std(?:out|err|diag)>:"
)
_DATE_BYTES = 24
UNSAID = -1


class LogLine(NamedTuple):
    """What one rank wrote of one line: without control sequences, prefixes and line end."""

    # From 1.
    number: int
    text: bytes
    # By the prefix; UNSAID if the line has none.
    rank: int
    # Whether the line was longer than MOST_LINE_BYTES; ``text`` is its beginning.
    too_long: bool = False
    # Whether the file ends without a line end behind it.
    cut: bool = False


def clean(file: IO[bytes]) -> Iterator[LogLine]:
    """The lines of a log, in constant memory. A single ``\\r`` ends a line, as in editors."""
    # Latin-1 keeps every byte; the wrapper finds line ends of all kinds.
    texts = io.TextIOWrapper(file, encoding="latin-1", newline=None)
    try:
        number = 0
        while line := texts.readline(MOST_LINE_BYTES + 1):
            number += 1
            ended = line.endswith("\n")
            text = line.rstrip("\n").encode("latin-1").replace(b"\0", b"")
            if len(line) > MOST_LINE_BYTES and not ended:
                while (rest := texts.readline(MOST_LINE_BYTES)) and not rest.endswith("\n"):
                    pass
                yield LogLine(number, _ESCAPE.sub(b"", text[:_SHOWN_BYTES]), UNSAID, too_long=True)
                continue
            if b"\x1b" in text:
                text = _ESCAPE.sub(b"", text)
            if b"]<std" in text:
                yield from _by_rank(number, text, not ended)
            else:
                yield LogLine(number, text, UNSAID, False, not ended)
    finally:
        # Else the wrapper would close the file.
        texts.detach()


def _by_rank(number: int, text: bytes, cut: bool) -> Iterator[LogLine]:
    """A line's part of rank 0 and of the launcher, then those of the other ranks."""
    first, *parts = _PREFIX.split(text)
    written: dict[int, list[bytes]] = {}
    ranks = [0, *map(int, parts[1::3])]
    pieces = [first, *parts[2::3]]
    begun = False
    for at, (rank, piece) in enumerate(zip(ranks, pieces, strict=True)):
        # The date before a prefix is at the end of the text before it.
        if at < len(pieces) - 1 and parts[3 * at] is not None:
            piece = piece[:-_DATE_BYTES]
        # Open MPI 5 puts a space behind a prefix. Pieces within a line may begin with a space of their own.
        if at and not begun and piece[:1] == b" ":
            piece = piece[1:]
        begun = begun or bool(piece)
        written.setdefault(rank, []).append(piece)
    yield LogLine(number, b"".join(written.pop(0)), 0 if 0 in ranks[1:] else UNSAID, False, cut)
    for rank, texts in written.items():
        yield LogLine(number, b"".join(texts), rank, False, cut)


def line_text(line: bytes) -> str:
    """A line decoded for messages and for the patterns of a run's configuration, which are of ASCII."""
    return line.decode("utf-8", "replace")


# ---- time stamps

_DATE = re.compile(
    rb"(?:(?P<year>\d{4})[-/]?)?(?P<month>\d\d)[-/]?(?P<day>\d\d)[ T]+"
    rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
)
_SECONDS = re.compile(rb"\d{1,12}(?:\.\d{1,30})?")
# glog prints no year. In a leap year each of its dates exists.
_ANY_YEAR = b"2000"
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_ZERO = datetime(1970, 1, 1)
# Where a line has a time, it is near its beginning.
_DATE_WITHIN = 200
_WITH_YEAR = re.compile(rb"(?<!\d)20\d\d[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?!\d)")
# NVIDIA's loggers print seconds since 1970: those from 2001 to 2096.
_SINCE_1970 = re.compile(rb"(?<![\d.])[1-3]\d{9}\.\d{1,9}(?!\d)")


def seconds_of(text: bytes) -> float | None:
    """``2022/12/02 18:10:52``, ``2022-11-24 04:01:45.487468``, ``0826 15:13:29.256137`` or seconds since 1970, as
    seconds of a clock without a zone; None for anything else."""
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


def moment_in(line: bytes) -> str:
    """The first time with a year in a line, or seconds since 1970, to the second in ISO 8601; empty if it has
    none."""
    for pattern in (_WITH_YEAR, _SINCE_1970):
        found = pattern.search(line[:_DATE_WITHIN])
        seconds = None if found is None else seconds_of(found[0])
        if seconds is not None:
            return (_ZERO + timedelta(seconds=int(seconds))).isoformat()
    return ""
