"""Reads files and computes the figures of every run in them, each run once. Logs that cannot be read are listed with
the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from helpers.judging.rules import RULES as OWN_RULES
from helpers.judging.rules import case_figure
from helpers.logs import own
from helpers.logs.figures.analysis import analyse
from helpers.logs.figures.rules import RULES, parse_rule
from helpers.logs.formats import FORMATS
from helpers.logs.formats.naming import FILE_NAME, FOLDER_NAME
from helpers.logs.reading.detect import detect
from helpers.logs.reading.reader import read_log
from helpers.logs.record import HONEST, Imported, LogRun
from helpers.logs.settings import AUTO, NEEDED, LogSetting, Stated, agrees
from helpers.logs.sources.source import LogFile, open_logs
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


def import_file(
    path: Path, asked: Mapping[LogSetting, Stated], format: str = AUTO, rule: str = AUTO
) -> tuple[Imported, ...]:
    """The runs of one file. ``asked`` are the settings that the user states. Raises LogError if one of its logs cannot
    be read."""
    batch = import_files((path,), asked, format, rule)
    for each in batch.unread:
        raise LogError(each.error, lines=each.lines)
    return batch.imported


def import_files(
    paths: Sequence[Path], asked: Mapping[LogSetting, Stated], format: str = AUTO, rule: str = AUTO
) -> ImportBatch:
    """The runs of all files; ``asked`` are the settings that the user states. See ``import_each``."""
    return import_each([ToImport(path) for path in paths], asked, format, rule)


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
            self.unread.append(_unread(str(wanted.path), error))
            return
        self.notes += [f"{wanted.path}!{each.name}: left out, {each.reason}" for each in logs.skipped]
        for log in logs:
            self._read(log, wanted)

    def _read(self, log: LogFile, wanted: ToImport) -> None:
        """Reads a log; a step log is kept until ``read_step_logs``, since it belongs to a job with other ranks."""
        try:
            if self._format == own.NAME or (self._format == AUTO and own.is_step_log(log)):
                if self._is_new(log):
                    self._steps.append(log)
                return
            runs = runs_with(log, self._asked, wanted.settings, self._format)
            _check_rows(log, wanted, runs)
            found = [self._analysed(run, wanted.row_of(run)) for run in runs]
            # Only after reading, when the hash is known: a file of gigabytes should not be read twice.
            if self._is_new(log):
                self.imported += with_doubts(found)
        except (SuiteError, OSError) as error:
            self.unread.append(_unread(log.source, error))

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
                self.unread.append(_unread(", ".join(each.source for each in job), error))

    def _is_new(self, log: LogFile) -> bool:
        sha256 = log.sha256()
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


def _unread(source: str, error: Exception) -> Unread:
    return Unread(source, str(error), lines_of(error))


def runs_of(log: LogFile, asked: Mapping[LogSetting, Stated], format: str = AUTO) -> tuple[LogRun, ...]:
    """The runs of a log that is not one of this suite's step logs. Raises LogError."""
    # A user who names the format knows which other records the log holds.
    rivals = [each for each in FORMATS.values() if format == AUTO or each.is_summary]
    return read_log(log, detect(log, FORMATS, format, (own.LOOKED_FOR,)), asked, rivals)


def runs_with(
    log: LogFile,
    asked: Mapping[LogSetting, Stated],
    known: Mapping[LogSetting, Stated],
    format: str = AUTO,
) -> tuple[LogRun, ...]:
    """The same, with ``known`` for settings that the log does not state. Settings that both state are not compared,
    except for the card."""
    card = LogSetting.GPU
    given: dict[LogSetting, Stated] = {**({card: known[card]} if card in known else {}), **asked}
    while True:
        try:
            return runs_of(log, given, format)
        except LogError as error:
            # Another run of the same log may lack another setting.
            more = (silent_on(error) & known.keys()) - given.keys()
            if not more:
                raise
            given |= {each: known[each] for each in more}


def silent_on(error: LogError) -> frozenset[LogSetting]:
    """The settings that a log does not state, taken from the error that names them; empty for any other error."""
    names = (error.field or "").split(", ")
    known = {each.value: each for each in NEEDED}
    # An error about a contradiction has ``got``.
    silent = error.got is None and all(name in known for name in names)
    return frozenset(known[name] for name in names) if silent else frozenset()


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


_SUFFIXES = (".log", ".txt", ".log.gz", ".txt.gz")
_NAME = re.compile(r"(?P<model>[^_]+)_b(?P<batch>\d+)_(?P<precision>[^_]+)_(?P<number>\d+)\.", re.ASCII)
_DECIMALS = 2
_BY_NAME = re.compile(r"(\d+)")


@dataclass(frozen=True)
class GroupRun:
    """The run of one log in a group."""

    path: Path
    number: int
    # Rounded as by DLPerf.
    samples_per_s: float


@dataclass(frozen=True)
class Group:
    """The runs of one model in one folder, all on the same number of cards."""

    model: str
    folder: str
    batch_size_per_card: int
    precision: str
    cards: int
    rule: str
    runs: tuple[GroupRun, ...]

    @property
    def average(self) -> float:
        rates = [each.samples_per_s for each in self.runs]
        return _rounded(sum(rates) / len(rates))

    @property
    def median(self) -> float:
        return _rounded(float(np.median([each.samples_per_s for each in self.runs])))

    @property
    def spread(self) -> float | None:
        """The largest distance of a run from the median, as a fraction of the median; None for a single run."""
        if len(self.runs) < 2:
            return None
        return max(abs(each.samples_per_s - self.median) for each in self.runs) / self.median

    @property
    def shortfall(self) -> str:
        """Why the runs do not meet the publisher's rule for repeated runs; empty if they do."""
        return case_figure(self.rule, [{self.rule: each.samples_per_s} for each in self.runs]).reason


@dataclass(frozen=True)
class GroupReport:
    """All groups of a folder, those with few cards first."""

    groups: tuple[Group, ...]
    # For each log without a figure: the reason, in lines.
    unread: tuple[tuple[str, ...], ...] = ()
    # Warnings about logs that were read.
    notes: tuple[str, ...] = ()

    def speedup(self, group: Group) -> float | None:
        """The group's median / that of the same model on one card; None if that group is missing or cannot be
        compared."""
        base = self._base(group)
        return None if base is None or self.unlike(group) else _rounded(group.median / base.median)

    def unlike(self, group: Group) -> str:
        """Why the group cannot be compared with the runs on one card; empty if it can."""
        base = self._base(group)
        if base is None:
            return ""
        pairs = (
            ("batch size", base.batch_size_per_card, group.batch_size_per_card),
            ("precision", base.precision, group.precision),
            ("rule", base.rule, group.rule),
        )
        differences = [f"{name} {mine}, {base.folder} {theirs}" for name, theirs, mine in pairs if mine != theirs]
        return f"no speed-up: {'; '.join(differences)}" if differences else ""

    def _base(self, group: Group) -> Group | None:
        return next((each for each in self.groups if each.model == group.model and each.cards == 1), None)


def _rounded(value: float) -> float:
    """Rounded by numpy, as DLPerf's scripts do."""
    return float(np.round(value, _DECIMALS))


def read_groups(folder: Path, asked: Mapping[LogSetting, Stated], format: str = AUTO, rule: str = AUTO) -> GroupReport:
    """The groups of a folder that has one folder for each number of cards. Raises LogError if there is no log, or if
    runs of one group differ in a setting."""
    check_rule(rule)
    paths = [each for each in sorted(folder.glob("*/*"), key=_natural) if each.name.endswith(_SUFFIXES)]
    if not paths:
        raise LogError(f"folder {folder}", got="no logs", expected="folders by cards (1n1g, 1n8g) with logs in them")
    groups: dict[tuple[str, str], list[tuple[Imported, GroupRun]]] = {}
    unread: list[tuple[str, ...]] = []
    notes: list[str] = []
    read: dict[str, Path] = {}
    for path in paths:
        try:
            found = _only(path, import_file(path, asked, format, rule))
            if (first := read.setdefault(found.sha256, path)) != path:
                notes.append(f"{path}: the same bytes as {first}: counted as a run, although it is a copy")
            figure = found.usual_figure
            if figure is None or figure.samples_per_s is None:
                raise LogError(f"log {path}", got=figure.reason if figure else "no rule", expected="a figure")
        except (SuiteError, OSError) as error:
            unread.append(lines_of(error))
            continue
        name = _NAME.match(path.name)
        model = name["model"] if name else found.settings[LogSetting.MODEL].value
        runs = groups.setdefault((model, path.parent.name), [])
        number = int(name["number"]) if name else len(runs) + 1
        runs.append((found, GroupRun(path, number, _rounded(figure.samples_per_s))))
    made = [_group(*key, runs) for key, runs in groups.items()]
    return GroupReport(tuple(sorted(made, key=lambda each: (each.model, each.cards))), tuple(unread), tuple(notes))


def _only(path: Path, runs: Sequence[Imported]) -> Imported:
    if len(runs) != 1:
        raise LogError(f"log {path}", got=f"{len(runs)} runs", expected="one in each log of a group")
    return runs[0]


def _group(model: str, folder: str, runs: Sequence[tuple[Imported, GroupRun]]) -> Group:
    about = f"group {folder} of {model}"
    batch = _one(about, LogSetting.BATCH_SIZE_PER_CARD, (found for found, _ in runs))
    precision = _one(about, LogSetting.PRECISION, (found for found, _ in runs))
    cards = _one(about, LogSetting.CARDS, (found for found, _ in runs))
    rules = list(dict.fromkeys(found.usual for found, _ in runs))
    if len(rules) > 1:
        raise LogError(about, field="rule", got=rules, expected="one for all runs", remedy="Name it with --rule")
    numbers = [run.number for _, run in runs]
    if twice := sorted({each for each in numbers if numbers.count(each) > 1}):
        raise LogError(about, field="run", got=f"number {twice[0]} twice", expected="each run once")
    return Group(model, folder, int(batch), precision, int(cards), rules[0], tuple(run for _, run in runs))


def _one(about: str, setting: LogSetting, runs: Iterable[Imported]) -> str:
    values = list(dict.fromkeys(each.settings[setting].value for each in runs))
    if len(values) > 1:
        remedy = "Give each configuration a folder of its own"
        raise LogError(about, field=setting.value, got=values, expected="the same in all runs", remedy=remedy)
    return values[0]


def _natural(path: Path) -> list[tuple[int, str]]:
    """A sort key that puts ``run_10`` behind ``run_9``."""
    parts = _BY_NAME.split(path.as_posix())
    return [(int(each), "") if each.isdecimal() else (-1, each) for each in parts]
