"""Finds the format of a log by its records. If none or several fit, that is an error; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from helpers.logs.reading.lines import finder, shown
from helpers.logs.record import FormatSpec, Line
from helpers.logs.settings import AUTO
from helpers.logs.sources.clean import Chunk, line_text
from helpers.trainers.contract.errors import LogError

# How many characters of a line an error shows.
_SHOWN = 160
_UNKNOWN = "no records of a format that is known"
_SEVERAL = "records of several formats"
# How many of the closest lines an error shows.
_MOST = 5
# How many lines with the same word are looked at in each chunk.
_LINES_A_CHUNK = 50
_WORDS = (
    b"ips", b"images/s", b"imgs/s", b"img/s", b"images_per_s", b"imgs_per_s", b"samples/s", b"examples/s",
    b"images per s", b"speed", b"Speed", b"throughput", b"Throughput", b"batch_cost", b"elapse", b"step_time",
    b"sec/step", b"s/it", b"it/s",
)  # fmt: skip
_NUMBER = re.compile(rb"\d")


class Log(Protocol):
    """The part of source.LogFile that a reader uses."""

    @property
    def source(self) -> str: ...

    @property
    def name(self) -> str: ...

    def sha256(self) -> str: ...

    def chunks(self) -> Iterator[Chunk]: ...


class _Search:
    """Searches a log for one format: counts its records, keeps the first, and notes whether one of the format's proofs
    is there.

    ``look_for_ends`` searches for the first figure that the script printed itself.
    """

    def __init__(self, spec: FormatSpec) -> None:
        self.spec = spec
        self.records = 0
        self.first: Line | None = None
        self.printed: Line | None = None
        self._proofs = [finder(pattern) for pattern in spec.proofs]
        self._proven = not spec.proofs
        self._printed = [finder(pattern) for pattern in spec.printed.values()]

    @property
    def fits(self) -> bool:
        return self.records > 0 and self._proven

    def look(self, chunk: Chunk) -> None:
        data = chunk.data
        self._proven = self._proven or any(proof.search(data) for proof in self._proofs)
        if self.spec.marker in data:
            self.records += len(self.spec.record.findall(data))
            self.first = self.first or _line_of(self.spec.record.search(data), chunk)

    def look_for_ends(self, chunk: Chunk) -> None:
        if self.printed is None:
            matches = (figure.search(chunk.data) for figure in self._printed)
            self.printed = _line_of(next(filter(None, matches), None), chunk)


def detect(log: Log, formats: Mapping[str, FormatSpec], wanted: str = AUTO, besides: Sequence[str] = ()) -> FormatSpec:
    """The format of the log's first records, or the format named by ``wanted``.

    A format with records is preferred to a summary of a whole run, which a job may print after them. Reading stops when
    a format is proven; ``read_log`` searches the whole log for records of other formats. ``besides`` describes further
    formats for the error. Raises LogError for an unknown name, and if no format or more than one fits.
    """
    if wanted != AUTO:
        if wanted not in formats:
            raise LogError("format", got=wanted, expected="one of " + ", ".join((AUTO, *formats)))
        return formats[wanted]
    searches = [_Search(spec) for spec in formats.values()]
    for chunk in log.chunks():
        for each in searches:
            each.look(chunk)
        if fitting := [each for each in searches if each.fits and not each.spec.is_summary]:
            return _only(log, fitting)
    if fitting := [each for each in searches if each.fits]:
        return _only(log, fitting)
    return _without_records(log, searches, besides)


def _without_records(log: Log, searches: Sequence[_Search], besides: Sequence[str]) -> FormatSpec:
    """Finds the format by the figures that the script printed itself, since of some logs only the last lines were
    kept."""
    closest = ClosestLines([each.spec.marker for each in searches])
    for chunk in log.chunks():
        closest.look(chunk)
        for each in searches:
            each.look_for_ends(chunk)
    if (ends := [each for each in searches if each.printed]) and not any(each.records for each in searches):
        return _only(log, ends)
    looked_for = [*(f"{each.spec.name}: {each.spec.looked_for}" for each in searches), *besides]
    unproven = _unproven(searches)
    raise LogError(
        log.source,
        got=_UNKNOWN,
        expected="; or ".join(looked_for),
        remedy=f"{closest}{'. ' if unproven else ''}{unproven}",
        lines=(
            f"{log.source}: {_UNKNOWN}",
            "Looked for:",
            *(f"  {each}" for each in looked_for),
            f"{closest.heading()}{':' if closest.lines() else ''}",
            *(f"  {each}" for each in closest.lines()),
            *([unproven] if unproven else []),
        ),
    )


def check_only(log: Log, spec: FormatSpec, rival: FormatSpec) -> None:
    """Raises LogError if the log has records and proofs of both formats."""
    searches = _searched(log, (spec, rival))
    if all(each.fits for each in searches):
        _only(log, searches)


def _only(log: Log, searches: Sequence[_Search]) -> FormatSpec:
    """The format if there is only one. Raises LogError if there are several, with the number of records of each in the
    whole log."""
    specs = [each.spec for each in searches]
    if len(specs) == 1:
        return specs[0]
    found = []
    for each in _searched(log, specs):
        line = each.first or each.printed
        figures = f"{each.records} records" if each.records else "a printed figure"
        found.append(f"{figures} of {each.spec.name}" + (f", line {line.number}: {line.text[:_SHOWN]}" if line else ""))
    remedy = f"Give --log-format {' or '.join(spec.name for spec in specs)}, or split the log"
    raise LogError(
        log.source,
        got=_SEVERAL,
        expected="those of one",
        remedy=f"It has {'; '.join(found)}. {remedy}",
        lines=(f"{log.source}: {_SEVERAL}", *(f"  {each}" for each in found), remedy),
    )


def _searched(log: Log, specs: Iterable[FormatSpec]) -> list[_Search]:
    searches = [_Search(spec) for spec in specs]
    for chunk in log.chunks():
        for each in searches:
            each.look(chunk)
            each.look_for_ends(chunk)
    return searches


def _line_of(match: re.Match[bytes] | None, chunk: Chunk) -> Line | None:
    if match is None:
        return None
    start = chunk.data.rfind(b"\n", 0, match.start()) + 1
    line = chunk.data[start : chunk.data.find(b"\n", start)]
    return shown(chunk.first_line + chunk.data.count(b"\n", 0, start), line)


def _unproven(searches: Sequence[_Search]) -> str:
    found = [f"{each.records} of {each.spec.name}" for each in searches if each.records]
    return f"Records without the rest of their format: {', '.join(found)}" if found else ""


class ClosestLines:
    """The lines of an unknown log that are most like a record: those with a number and words that name a rate."""

    def __init__(self, markers: Sequence[bytes]) -> None:
        self._words = (*markers, *_WORDS)
        self._markers = frozenset(markers)
        self._ranks: set[int] = set()
        self._best: list[tuple[int, int, bytes]] = []

    def look(self, chunk: Chunk) -> None:
        self._ranks |= chunk.ranks
        seen = set()
        for word in self._words:
            for start in _line_starts(chunk.data, word):
                if start not in seen:
                    seen.add(start)
                    line = chunk.data[start : chunk.data.find(b"\n", start)]
                    number = chunk.first_line + chunk.data.count(b"\n", 0, start)
                    self._best.append((-self._score(line), number, line[: 4 * _SHOWN]))
        self._best = sorted(self._best)[:_MOST]

    def __str__(self) -> str:
        lines = self.lines()
        return f"{self.heading()}: " + "; ".join(lines) if lines else self.heading()

    def heading(self) -> str:
        others = sorted(self._ranks - {0})
        note = f" (only rank 0's lines are read; those of ranks {_spans(others)} are not)" if others else ""
        return ("The lines that come closest" if self.lines() else "No line has a rate or a step's time") + note

    def lines(self) -> tuple[str, ...]:
        found = sorted((number, line) for score, number, line in self._best if score < 0)
        return tuple(f"line {number}: {line_text(line)[:_SHOWN]}" for number, line in found)

    def _score(self, line: bytes) -> int:
        """How many words of a rate the line has (the marker of a format counts as three); 0 if it has no number."""
        if not _NUMBER.search(line):
            return 0
        return sum(3 if word in self._markers else 1 for word in self._words if word in line)


def _line_starts(data: bytes, word: bytes) -> Iterator[int]:
    at = data.find(word)
    for _ in range(_LINES_A_CHUNK):
        if at < 0:
            return
        yield data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        at = data.find(word, end)


def _spans(ranks: Sequence[int]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
