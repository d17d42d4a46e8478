"""From files to figures: every run of every log, once. What cannot be read stands beside the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.judging.rules import RULES as OWN_RULES
from helpers.logs import own
from helpers.logs.figures.analysis import analyse
from helpers.logs.figures.rules import RULES, parse_rule
from helpers.logs.formats.naming import FILE_NAME, FOLDER_NAME
from helpers.logs.formats.table import FORMATS
from helpers.logs.imported import HONEST, Imported
from helpers.logs.reading.detect import detect
from helpers.logs.reading.reader import read_log
from helpers.logs.record import LogRun
from helpers.logs.settings import AUTO, NEEDED, LogSetting, Stated
from helpers.logs.sources.source import LogFile, open_logs
from helpers.trainers.contract.errors import LogError, SuiteError, lines_of

# Runs of one configuration on one machine differ by less.
_DIFFER = 0.10


@dataclass(frozen=True)
class Unread:
    """A log that gave nothing, and why."""

    source: str
    error: str
    # The same for people, where one line is too long.
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportBatch:
    """What several files gave, in their order."""

    imported: tuple[Imported, ...]
    unread: tuple[Unread, ...] = ()
    # What was left out and is no error: a log with the bytes of one before it, a member of an archive that is no log.
    notes: tuple[str, ...] = ()


def import_file(
    path: Path, asked: Mapping[LogSetting, Stated], format: str = AUTO, rule: str = AUTO
) -> tuple[Imported, ...]:
    """The runs of one file. Raises LogError where one of its logs cannot be read."""
    batch = import_files((path,), asked, format, rule)
    for each in batch.unread:
        raise LogError(each.error, lines=each.lines)
    return batch.imported


def import_files(
    paths: Sequence[Path], asked: Mapping[LogSetting, Stated], format: str = AUTO, rule: str = AUTO
) -> ImportBatch:
    """The runs of all files. Step logs of one job are one run, whichever files hold its ranks.

    Raises LogError for a rule or a format that is not known; a log that cannot be read is among ``unread``.
    """
    check_rule(rule)
    check_format(format)
    reader = _Reader(asked, format, rule)
    for path in paths:
        try:
            logs = open_logs(path)
        except (SuiteError, OSError) as error:
            reader.unread.append(_unread(str(path), error))
            continue
        reader.notes += [f"{path}!{each.name}: left out, {each.reason}" for each in logs.skipped]
        for log in logs:
            reader.read(log)
    reader.read_step_logs()
    return ImportBatch(tuple(reader.imported), tuple(reader.unread), tuple(reader.notes))


class _Reader:
    """Reads one log after another and keeps what it gave."""

    def __init__(self, asked: Mapping[LogSetting, Stated], format: str, rule: str) -> None:
        self._asked, self._format, self._rule = asked, format, rule
        self._first: dict[str, str] = {}
        self._steps: list[LogFile] = []
        self.imported: list[Imported] = []
        self.unread: list[Unread] = []
        self.notes: list[str] = []

    def read(self, log: LogFile) -> None:
        """A step log waits for the other ranks of its job."""
        try:
            if self._format == own.NAME or (self._format == AUTO and own.is_step_log(log)):
                if self._is_new(log):
                    self._steps.append(log)
                return
            found = [analyse(run, self._rule) for run in runs_of(log, self._asked, self._format)]
            # Its hash is known once it was read; a file of gigabytes is not read twice for it.
            if self._is_new(log):
                self.imported += with_doubts(found)
        except (SuiteError, OSError) as error:
            self.unread.append(_unread(log.source, error))

    def read_step_logs(self) -> None:
        for job in own.jobs(self._steps):
            try:
                found = own.read_job(job, self._asked, AUTO if self._rule == HONEST else self._rule)
                self.imported.append(replace(found, usual=HONEST) if self._rule == HONEST else found)
            except (SuiteError, OSError) as error:
                self.unread.append(_unread(", ".join(each.source for each in job), error))

    def _is_new(self, log: LogFile) -> bool:
        sha256 = log.sha256()
        if sha256 in self._first:
            self.notes.append(f"{log.source}: the same bytes as {self._first[sha256]}, one result")
            return False
        self._first[sha256] = log.source
        return True


def _unread(source: str, error: Exception) -> Unread:
    return Unread(source, str(error), lines_of(error))


def runs_of(log: LogFile, asked: Mapping[LogSetting, Stated], format: str = AUTO) -> tuple[LogRun, ...]:
    """The runs of a log that is not one of this suite's step logs. Raises LogError."""
    # Who names the format knows what else the log holds.
    rivals = [each for each in FORMATS.values() if format == AUTO or each.is_summary]
    return read_log(log, detect(log, FORMATS, format, (own.LOOKED_FOR,)), asked, rivals)


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
    """The runs of one file, each with a warning where the file's name may not be true of it.

    A name stands for all runs of its file. Where they take a setting from it alone and differ by more than runs of one
    configuration do, they have a warning more.
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
        f"the log's name alone tells {', '.join(each.value for each in named)} of {len(runs)} runs in it that "
        f"differ by {max(rates) / min(rates) - 1:.0%}: it may not be true of each"
    )


def _by_name(each: Imported, setting: LogSetting) -> bool:
    return each.settings[setting].where.startswith((FILE_NAME, FOLDER_NAME))
