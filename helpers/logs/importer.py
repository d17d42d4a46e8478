"""Reads files and computes the figures of every run in them, each run once. Logs that cannot be read are listed with
the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from helpers.judging.rules.own import RULES as OWN_RULES
from helpers.logs import own
from helpers.logs.detect import detect
from helpers.logs.figures.analysis import analyse
from helpers.logs.figures.rules import RULES, parse_rule
from helpers.logs.formats import FORMATS
from helpers.logs.reader import read_log
from helpers.logs.record import HONEST, Imported, LogRun
from helpers.logs.settings import AUTO, FILE_NAME, FOLDER_NAME, NEEDED, LogSetting, Stated, agrees
from helpers.logs.source import LogFile, open_logs
from helpers.trainers.contract.errors import LogError, SuiteError, lines_of

# Runs of one configuration on one machine differ by less than this fraction.
_DIFFER = 0.10


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

    def row_of(self, run: LogRun) -> IndexRow | None:
        return next((row for row in self.rows if not contradictions(row.settings, run)), None)


@dataclass(frozen=True)
class Unread:
    """A log from which nothing could be read, and why."""

    source: str
    error: str
    # The error in several lines for people; empty if one line is enough.
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportBatch:
    """The runs read from several files, in the order of the files."""

    imported: tuple[Imported, ...]
    unread: tuple[Unread, ...] = ()
    # What was left out without an error: a copy of an earlier log, or a member of an archive that is no log.
    notes: tuple[str, ...] = ()


def import_each(
    wanted: Sequence[ToImport], asked: Mapping[LogSetting, Stated], format: str = AUTO, rule: str = AUTO
) -> ImportBatch:
    """The runs of all files. The step logs of one job are one run, whichever files hold its ranks.

    Raises LogError for an unknown rule or format. A log that cannot be read is among ``unread``.
    """
    check_rule(rule)
    check_format(format)
    reader = _Reader(asked, format, rule)
    for each in wanted:
        reader.add(each)
    reader.read_step_logs()
    return ImportBatch(tuple(reader.imported), tuple(reader.unread), tuple(reader.notes))


class _Reader:
    """Reads one log after another and keeps the runs."""

    def __init__(self, asked: Mapping[LogSetting, Stated], format: str, rule: str) -> None:
        self._asked, self._format, self._rule = asked, format, rule
        self._first: dict[str, str] = {}
        self._steps: list[LogFile] = []
        self.imported: list[Imported] = []
        self.unread: list[Unread] = []
        self.notes: list[str] = []

    def add(self, wanted: ToImport) -> None:
        """Reads the log in a file, or the logs in an archive."""
        try:
            logs = open_logs(wanted.path)
        except (SuiteError, OSError) as error:
            self._unread(str(wanted.path), error)
            return
        self.notes += [f"{wanted.path}!{name}: left out, {reason}" for name, reason in logs.skipped]
        for log in logs.logs:
            self._read(log, wanted)

    def _read(self, log: LogFile, wanted: ToImport) -> None:
        """Reads a log; a step log is kept until ``read_step_logs``, since it belongs to a job with other ranks."""
        try:
            if self._format == own.NAME or (self._format == AUTO and own.is_step_log(log)):
                if self._is_new(log):
                    self._steps.append(log)
                return
            runs = runs_of(log, self._asked, self._format, wanted.settings)
            _check_rows(log, wanted, runs)
            found = [self._analysed(run, wanted.row_of(run)) for run in runs]
            if self._is_new(log):
                self.imported += with_doubts(found)
        except (SuiteError, OSError) as error:
            self._unread(log.source, error)

    def _analysed(self, run: LogRun, row: IndexRow | None) -> Imported:
        found = analyse(run, row.rule if row is not None and self._rule == AUTO else self._rule)
        if row is None or not row.day or found.began:
            return found
        return replace(found, began=f"{row.day}T00:00:00")

    def read_step_logs(self) -> None:
        for job in own.jobs(self._steps):
            try:
                found = own.read_job(job, self._asked, AUTO if self._rule == HONEST else self._rule)
                self.imported.append(replace(found, usual=HONEST) if self._rule == HONEST else found)
            except (SuiteError, OSError) as error:
                self._unread(", ".join(each.source for each in job), error)

    def _unread(self, source: str, error: Exception) -> None:
        self.unread.append(Unread(source, str(error), lines_of(error)))

    def _is_new(self, log: LogFile) -> bool:
        sha256 = log.sha256
        if sha256 in self._first:
            self.notes.append(f"{log.source}: the same bytes as {self._first[sha256]}, one result")
            return False
        self._first[sha256] = log.source
        return True


def _check_rows(log: LogFile, wanted: ToImport, runs: Sequence[LogRun]) -> None:
    """Raises LogError if a row of the index contradicts all runs of its file."""
    for row in wanted.rows:
        against = [contradictions(row.settings, run) for run in runs]
        if all(against):
            raise LogError(f"log {log.source}", got="; ".join(against[0]), expected=f"what {row.where} says")


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
    """The runs of a log that is not one of this suite's step logs; ``known`` is for settings that neither the log nor
    ``asked`` states, and its card counts as asked for. Raises LogError."""
    # A user who names the format knows which other records the log holds.
    rivals = [each for each in FORMATS.values() if format == AUTO or each.is_summary]
    card = {each: known[each] for each in (LogSetting.GPU,) if each in known}
    return read_log(log, detect(log, FORMATS, format, (own.LOOKED_FOR,)), {**card, **asked}, rivals, known)


def check_format(format: str) -> None:
    known = (AUTO, *FORMATS, own.NAME)
    if format not in known:
        raise LogError("format", got=format, expected="one of " + ", ".join(known))


def check_rule(rule: str) -> None:
    if rule in (AUTO, HONEST, *OWN_RULES):
        return
    if rule.partition(":")[0] not in RULES:
        raise LogError(
            "rule", got=rule, expected="one of " + ", ".join(dict.fromkeys((AUTO, *RULES, HONEST, *OWN_RULES)))
        )
    parse_rule(rule)


def with_doubts(runs: Sequence[Imported]) -> list[Imported]:
    """The runs of one file, with a warning on those for which the file's name may not be true.

    A name describes all runs of its file. If several runs take a setting from the name alone and differ by more than
    runs of one configuration do, each of them gets the warning.
    """
    alike: dict[tuple[str, ...], list[Imported]] = {}
    for each in runs:
        alike.setdefault(tuple(each.settings[setting].value for setting in NEEDED), []).append(each)
    warnings = {id(each): doubt for of_one in alike.values() if (doubt := _doubt(of_one)) for each in of_one}
    return [
        replace(each, warnings=(*each.warnings, warnings[id(each)])) if id(each) in warnings else each for each in runs
    ]


def _doubt(runs: Sequence[Imported]) -> str:
    figures = [each.usual_figure if each.honest.samples_per_s is None else each.honest for each in runs]
    rates = [each.samples_per_s for each in figures if each is not None and each.samples_per_s is not None]
    named = [setting for setting in NEEDED if any(_by_name(each, setting) for each in runs)]
    if len(rates) < 2 or not named or max(rates) / min(rates) - 1 <= _DIFFER:
        return ""
    return (
        f"only the log's name states {', '.join(each.value for each in named)} of {len(runs)} runs in it that "
        f"differ by {max(rates) / min(rates) - 1:.0%}: it may not be true of each"
    )


def _by_name(each: Imported, setting: LogSetting) -> bool:
    return each.settings[setting].where.startswith((FILE_NAME, FOLDER_NAME))
