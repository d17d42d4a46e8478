"""Reads files and computes the figures of every run in them, each run once. Logs that cannot be read are listed with
the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from helpers.logs.detect import detect
from helpers.logs.figures.analysis import analyse
from helpers.logs.figures.rules import parse_rule
from helpers.logs.formats import FORMATS
from helpers.logs.reader import read_log
from helpers.logs.record import HONEST, Imported, LogRun
from helpers.logs.settings import AUTO, LogSetting, Stated, agrees
from helpers.logs.source import LogFile, open_log
from helpers.trainers.contract.errors import LogError, SuiteError


@dataclass(frozen=True)
class IndexRow:
    """The values of a row of an index, for one run of its file."""

    settings: Mapping[LogSetting, Stated]
    # The rule of its published figure.
    rule: str
    # When the log was written, ISO 8601; empty if the index does not say.
    day: str
    # ``INDEX.csv line 3``.
    where: str


@dataclass(frozen=True)
class ToImport:
    """A file to import, with the rows of an index that name it."""

    path: Path
    rows: tuple[IndexRow, ...] = ()

    @property
    def settings(self) -> dict[LogSetting, Stated]:
        """The settings on which all rows agree; a file of several runs may have a row for each run."""
        first = self.rows[0].settings if self.rows else {}
        alike = {each: {row.settings[each].value for row in self.rows} for each in first}
        return {each: stated for each, stated in first.items() if len(alike[each]) == 1}


@dataclass(frozen=True)
class Unread:
    """A log from which nothing could be read, and why."""

    source: str
    error: str


@dataclass(frozen=True)
class ImportBatch:
    """The runs read from several files, in the order of the files."""

    imported: tuple[Imported, ...]
    unread: tuple[Unread, ...] = ()
    # What was left out without an error: a copy of an earlier log.
    notes: tuple[str, ...] = ()


def import_each(
    wanted: Sequence[ToImport], asked: Mapping[LogSetting, Stated], format: str = AUTO, rule: str = AUTO
) -> ImportBatch:
    """The runs of all files. Raises LogError for an unknown rule or format. A log that cannot be read is among
    ``unread``."""
    if format not in (AUTO, *FORMATS):
        raise LogError("format", got=format, expected="one of " + ", ".join((AUTO, *FORMATS)))
    if rule not in (AUTO, HONEST):
        parse_rule(rule)
    imported: list[Imported] = []
    unread: list[Unread] = []
    notes: list[str] = []
    first: dict[str, str] = {}
    for each in wanted:
        try:
            log = open_log(each.path)
            if log.sha256 in first:
                notes.append(f"{log.source}: the same bytes as {first[log.sha256]}, one result")
                continue
            imported += _imported(log, each, asked, format, rule)
            first[log.sha256] = log.source
        except (SuiteError, OSError) as error:
            unread.append(Unread(str(each.path), str(error)))
    return ImportBatch(tuple(imported), tuple(unread), tuple(notes))


def _imported(
    log: LogFile, wanted: ToImport, asked: Mapping[LogSetting, Stated], format: str, rule: str
) -> list[Imported]:
    """The runs of one log with their figures. Raises LogError, also if a row of the index contradicts all of them."""
    runs = runs_of(log, asked, format, wanted.settings)
    for row in wanted.rows:
        against = [contradictions(row.settings, run) for run in runs]
        if all(against):
            raise LogError(f"log {log.source}", got="; ".join(against[0]), expected=f"what {row.where} says")
    found = []
    for run in runs:
        of_run = next((row for row in wanted.rows if not contradictions(row.settings, run)), None)
        analysed = analyse(run, of_run.rule if of_run is not None and rule == AUTO else rule)
        if of_run is not None and of_run.day and not analysed.began:
            analysed = replace(analysed, began=f"{of_run.day}T00:00:00")
        found.append(analysed)
    return found


def contradictions(settings: Mapping[LogSetting, Stated], run: LogRun) -> list[str]:
    """The settings in which a run contradicts ``settings``, in words with both places."""
    return [
        f"{each.value} {run.settings[each].value} ({run.settings[each].where}), not {listed.value} ({listed.where})"
        for each, listed in settings.items()
        if each in run.settings and not agrees(each, run.settings[each].value, listed.value)
    ]


def runs_of(
    log: LogFile,
    asked: Mapping[LogSetting, Stated],
    format: str = AUTO,
    known: Mapping[LogSetting, Stated] = MappingProxyType({}),
) -> tuple[LogRun, ...]:
    """The runs of a log; ``known`` is for settings that neither the log nor ``asked`` states, and its card counts as
    asked for. Raises LogError."""
    card = {each: known[each] for each in (LogSetting.GPU,) if each in known}
    return read_log(log, detect(log, FORMATS, format), {**card, **asked}, known)
