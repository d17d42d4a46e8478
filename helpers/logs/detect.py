"""Finds the format of a log by its records. If none or several fit, that is an error; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from helpers.logs.lines import LogLine, line_text
from helpers.logs.record import FormatSpec, Line
from helpers.logs.settings import AUTO
from helpers.trainers.contract.errors import LogError

# How many characters of a line a message shows.
_SHOWN = 160
_UNKNOWN = "no records of a format that is known"
_SEVERAL = "records of several formats"
# How many of the closest lines an error shows.
_MOST = 5
# Words that name a rate or a step's time.
_RATE = re.compile(
    rb"/s\b|/sec|per[_ ]s(?:ec|\b)|\bips\b|speed|throughput|batch_cost|elapse|\btime\b|it/s|s/it|_seconds",
    re.IGNORECASE,
)
_NUMBER = re.compile(rb"\d")


class Log(Protocol):
    """The part of source.LogFile that a reader uses."""

    @property
    def source(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> str: ...

    def lines(self) -> Iterator[LogLine]: ...


class Search:
    """Searches lines for one format: counts its records, keeps the first line, and notes whether one of its proofs is
    there."""

    def __init__(self, spec: FormatSpec) -> None:
        self.spec = spec
        self.records = 0
        self.first: Line | None = None
        # The first figure that the script printed itself.
        self.printed: Line | None = None
        self._proven = not spec.proofs

    @property
    def fits(self) -> bool:
        return self.records > 0 and self._proven

    def look(self, line: LogLine) -> None:
        if not self._proven:
            self._proven = any(proof.search(line.text) for proof in self.spec.proofs)
        if self.spec.marker in line.text and self.spec.record.search(line.text):
            self.records += 1
            self.first = self.first or shown(line)

    def look_for_ends(self, line: LogLine) -> None:
        if self.printed is None and any(figure.search(line.text) for figure in self.spec.printed.values()):
            self.printed = shown(line)


def shown(line: LogLine) -> Line:
    """A line as a message shows it; a long line is cut."""
    text = line_text(line.text[: 4 * 400])
    return Line(line.number, text if len(text) <= 400 else text[:400] + " ...")


def of_rank_0(log: Log) -> Iterator[LogLine]:
    return (line for line in log.lines() if line.rank <= 0 and not line.too_long)


def detect(log: Log, formats: Mapping[str, FormatSpec], wanted: str = AUTO, besides: Sequence[str] = ()) -> FormatSpec:
    """The format of the log's first records, or the format named by ``wanted``.

    A format with records is preferred to a summary of a whole run, which a job may print after them. Without records,
    the figures that the script printed itself decide, since of some logs only the last lines were kept. Reading stops
    when a format is proven; the reader searches the whole log for records of other formats. ``besides`` describes
    further formats for the error. Raises LogError for an unknown name, and if no format or more than one fits.
    """
    if wanted != AUTO:
        if wanted not in formats:
            raise LogError("format", got=wanted, expected="one of " + ", ".join((AUTO, *formats)))
        return formats[wanted]
    searches = [Search(spec) for spec in formats.values()]
    for line in of_rank_0(log):
        for each in searches:
            each.look(line)
            if each.fits and not each.spec.is_summary:
                return each.spec
    if fitting := [each for each in searches if each.fits]:
        return _only(log, fitting)
    for line in of_rank_0(log):
        for each in searches:
            each.look_for_ends(line)
    if (ends := [each for each in searches if each.printed]) and not any(each.records for each in searches):
        # Two formats of one script share the figure at its end.
        shared = set.intersection(*(set(each.spec.printed.values()) for each in ends))
        return ends[0].spec if shared else _only(log, ends)
    heading, closest = _closest(log, [each.spec.marker for each in searches])
    looked_for = [*(f"{each.spec.name}: {each.spec.looked_for}" for each in searches), *besides]
    unproven = [
        f"Without the rest of its format: {each.records} records of {each.spec.name}"
        for each in searches
        if each.records
    ]
    raise LogError(
        log.source,
        got=_UNKNOWN,
        expected="; or ".join(looked_for),
        remedy=". ".join((f"{heading}: {'; '.join(closest)}" if closest else heading, *unproven)),
        lines=(
            f"{log.source}: {_UNKNOWN}",
            "Looked for:",
            *(f"  {each}" for each in looked_for),
            f"{heading}{':' if closest else ''}",
            *(f"  {each}" for each in closest),
            *unproven,
        ),
    )


def check_only(log: Log, spec: FormatSpec, rival: FormatSpec) -> None:
    """Raises LogError if the log has records and proofs of both formats."""
    searches = [Search(spec), Search(rival)]
    for line in of_rank_0(log):
        for each in searches:
            each.look(line)
    if all(each.fits for each in searches):
        _only(log, searches)


def _only(log: Log, searches: Sequence[Search]) -> FormatSpec:
    """The format if there is only one. Raises LogError if there are several."""
    specs = [each.spec for each in searches]
    if len(specs) == 1:
        return specs[0]
    found = [
        f"{each.spec.name}, line {line.number}: {line.text[:_SHOWN]}"
        for each in searches
        if (line := each.first or each.printed)
    ]
    remedy = f"Give --log-format {' or '.join(spec.name for spec in specs)}, or split the log"
    raise LogError(
        log.source,
        got=_SEVERAL,
        expected="those of one",
        remedy=f"It has {'; '.join(found)}. {remedy}",
        lines=(f"{log.source}: {_SEVERAL}", *(f"  {each}" for each in found), remedy),
    )


def _closest(log: Log, markers: Sequence[bytes]) -> tuple[str, tuple[str, ...]]:
    """The lines that are most like a record (with a number and words that name a rate), under a heading."""
    ranks: set[int] = set()
    best: list[tuple[int, int, bytes]] = []
    for line in log.lines():
        if line.rank > 0:
            ranks.add(line.rank)
            continue
        words = len({word.lower() for word in _RATE.findall(line.text)})
        if words and _NUMBER.search(line.text):
            words += 3 * sum(marker in line.text for marker in markers)
            best = sorted([*best, (-words, line.number, line.text[: 4 * _SHOWN])])[:_MOST]
    heading = "The lines that come closest"
    if not best:
        heading = (
            "No line has a number beside a word for a rate or a step's time (ips, /s, speed, throughput, time ...)"
        )
    if ranks:
        heading += f" (only rank 0's lines are read; those of {len(ranks)} other ranks are not)"
    shown = (f"line {number}: {line_text(text)[:_SHOWN]}" for _, number, text in sorted(best, key=lambda each: each[1]))
    return heading, tuple(shown)
