"""Finds the format of a log by its records. If none or several fit, that is an error; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from helpers.logs.lines import LogLine, line_text
from helpers.logs.record import FormatSpec, Line
from helpers.logs.settings import AUTO
from helpers.logs.source import LogFile
from helpers.trainers.contract.errors import LogError

# How many characters of a line a message shows.
_SHOWN = 300
# How many of the closest lines an error shows.
_MOST = 5
# Words that name a rate or a step's time.
_RATE = re.compile(
    rb"/s\b|/sec|per[_ ]s(?:ec|\b)|\bips\b|speed|throughput|batch_cost|elapse|\btime\b|it/s|s/it|_seconds",
    re.IGNORECASE,
)
_NUMBER = re.compile(rb"\d")


def shown(line: LogLine) -> Line:
    """A line as a message shows it; a long line is cut."""
    text = line_text(line.text[: 4 * _SHOWN])
    return Line(line.number, text if len(text) <= _SHOWN else text[:_SHOWN] + " ...")


def detect(log: LogFile, formats: Mapping[str, FormatSpec], wanted: str = AUTO) -> FormatSpec:
    """The format of the log's records, or the format named by ``wanted``.

    A format with records is preferred to a summary of a whole run, which a job may print after them. Without records,
    the figures that the script printed itself decide, since of some logs only the last lines were kept. Raises LogError
    for an unknown name, and if no format or more than one fits.
    """
    if wanted != AUTO:
        if wanted not in formats:
            raise LogError("format", got=wanted, expected="one of " + ", ".join((AUTO, *formats)))
        return formats[wanted]
    first: dict[str, Line] = {}
    for line in _of_rank_0(log):
        for spec in formats.values():
            if spec.name not in first and spec.marker in line.text and spec.record.search(line.text):
                first[spec.name] = shown(line)
    first = {name: line for name, line in first.items() if not formats[name].is_summary} or first
    if not first:
        first = _with_own_figures(log, formats)
    if not first:
        raise _no_format(log, formats)
    if len(first) > 1:
        found = (f"{name}, line {line.number}: {line.text}" for name, line in first.items())
        raise LogError(
            log.source,
            got="records of several formats",
            expected="those of one",
            remedy=f"It has {'; '.join(found)}. Give --log-format {' or '.join(first)}, or split the log",
        )
    return formats[next(iter(first))]


def _of_rank_0(log: LogFile) -> Iterator[LogLine]:
    return (line for line in log.lines() if line.rank <= 0 and not line.too_long)


def _with_own_figures(log: LogFile, formats: Mapping[str, FormatSpec]) -> dict[str, Line]:
    """The formats whose scripts print a figure themselves that the log has, with its first line. Two formats of one
    script share a figure: it counts for the first of them."""
    names: dict[re.Pattern[bytes], str] = {}
    for spec in formats.values():
        for pattern in spec.printed.values():
            names.setdefault(pattern, spec.name)
    first: dict[str, Line] = {}
    for line in _of_rank_0(log):
        for pattern, name in names.items():
            if name not in first and pattern.search(line.text):
                first[name] = shown(line)
    return first


def _no_format(log: LogFile, formats: Mapping[str, FormatSpec]) -> LogError:
    """An error that shows the lines that are most like a record: with a number and words that name a rate."""
    best: list[tuple[int, int, bytes]] = []
    for line in _of_rank_0(log):
        words = len({word.lower() for word in _RATE.findall(line.text)})
        if words and _NUMBER.search(line.text):
            words += 3 * sum(spec.marker in line.text for spec in formats.values())
            best = sorted([*best, (-words, line.number, line.text[: 4 * _SHOWN])])[:_MOST]
    closest = "; ".join(
        f"line {number}: {line_text(text)[:_SHOWN]}" for _, number, text in sorted(best, key=lambda each: each[1])
    )
    return LogError(
        log.source,
        got="no records of a format that is known",
        expected="those of " + ", ".join(formats),
        remedy=f"The lines that come closest: {closest}" if closest else "No line of rank 0 has a rate or a time",
    )
