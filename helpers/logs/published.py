"""Checks published figures: recomputes each log of an index by its rule, and compares."""

from __future__ import annotations

import csv
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import StringIO
from pathlib import Path, PurePosixPath

from helpers.logs.figures.rules import figure
from helpers.logs.importer import contradictions, runs_with, silent_on
from helpers.logs.record import LogRun
from helpers.logs.settings import NEEDED, LogSetting, Stated, agrees
from helpers.logs.sources.source import open_logs
from helpers.machine.files import MOST_INDEX_BYTES, named_by_user, read_text_limited
from helpers.trainers.contract.errors import LogError, SuiteError, lines_of

INDEX = "INDEX.csv"
# The longest value of any column except a file's name (Python refuses to parse a number of 5,000 digits).
_MOST_CHARACTERS = 200
# Checked before Decimal, which also accepts 5_17 and digits of other scripts.
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_FILE, _RULE, _PUBLISHED, _COMPUTED = "file", "rule", "published_images_per_s", "computed_images_per_s"
_DAY = "date"
_SETTINGS = (
    LogSetting.FRAMEWORK,
    LogSetting.MODEL,
    LogSetting.GPU,
    LogSetting.PRECISION,
    LogSetting.BATCH_SIZE_PER_CARD,
    LogSetting.CARDS,
)
NEEDED_COLUMNS = (_FILE, *(each.value for each in _SETTINGS), _PUBLISHED, _RULE)


@dataclass(frozen=True)
class IndexEntry:
    """One row of an index."""

    line: int
    file: str
    settings: Mapping[LogSetting, Stated]
    published: Decimal
    # The figure that the index's author recomputed; None if the row has none.
    computed: Decimal | None
    rule: str
    # The day on which the log was written, in ISO 8601; empty if the index does not state it.
    day: str = ""


@dataclass(frozen=True)
class Verified:
    """An entry of the index and the figure of its log by its rule."""

    entry: IndexEntry
    samples_per_s: float | None
    rule: str
    # What is wrong; empty if the two agree.
    problem: str = ""
    # The problem in several lines for people; empty if one line is enough.
    lines: tuple[str, ...] = ()

    @property
    def difference(self) -> Decimal | None:
        return None if self.samples_per_s is None else Decimal(repr(self.samples_per_s)) - self.entry.published


def read_index(path: Path) -> tuple[IndexEntry, ...]:
    """The rows of an index. Raises LogError on a row that cannot be read, with its line and column."""
    columns, rows = index_rows(path)
    if twice := [each for each in (*NEEDED_COLUMNS, _COMPUTED, _DAY) if columns.count(each) > 1]:
        raise LogError(str(path), got=f"the column {twice[0]} twice", expected="each once")
    if missing := [each for each in NEEDED_COLUMNS if each not in columns]:
        raise LogError(str(path), got=columns, expected="columns " + ", ".join(missing))
    if not rows:
        raise LogError(str(path), got="no rows", expected="one or more")
    return tuple(_entry(path, line, row) for line, row in rows)


def index_rows(path: Path) -> tuple[Sequence[str], Sequence[tuple[int, Mapping[str, str | None]]]]:
    """The columns of an INDEX.csv, and its rows with their line numbers. Raises LogError if it cannot be read."""
    try:
        text = read_text_limited(named_by_user(path), MOST_INDEX_BYTES, encoding="utf-8-sig")
        with StringIO(text, newline="") as lines:
            # Strict, since else a quotation mark that is never closed would make one value of all rows after it.
            table = csv.DictReader(lines, strict=True)
            return list(table.fieldnames or ()), [(table.line_num, row) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LogError(str(path), got=str(error), expected="a table of logs (CSV, UTF-8)") from error


def _entry(path: Path, line: int, row: Mapping[str, str | None]) -> IndexEntry:
    about = f"{path}:{line}"
    # DictReader keeps values beyond the last column under None.
    if row.get(None):  # type: ignore[call-overload]
        raise LogError(about, got="more values than columns", expected="as many", remedy='Write "1,323.1" as 1323.1')
    for column in NEEDED_COLUMNS:
        if not (row.get(column) or "").strip():
            raise LogError(about, field=column, got=row.get(column), expected="a value")
    for column in (*NEEDED_COLUMNS, _COMPUTED):
        if column != _FILE and len(row.get(column) or "") > _MOST_CHARACTERS:
            got = f"{len(row[column] or '')} characters"
            raise LogError(about, field=column, got=got, expected=f"at most {_MOST_CHARACTERS}")
    values = {column: (row.get(column) or "").strip() for column in (*NEEDED_COLUMNS, _COMPUTED)}
    settings = {each: Stated(values[each.value], f"{path.name} line {line}") for each in _SETTINGS}
    published = _figure(about, _PUBLISHED, values[_PUBLISHED])
    computed = _figure(about, _COMPUTED, values[_COMPUTED]) if values[_COMPUTED] else None
    return IndexEntry(line, values[_FILE], settings, published, computed, values[_RULE], _day(about, row))


def _day(about: str, row: Mapping[str, str | None]) -> str:
    text = (row.get(_DAY) or "").strip()
    try:
        return datetime.date.fromisoformat(text).isoformat() if text else ""
    except ValueError as error:
        raise LogError(about, field=_DAY, got=text[:_MOST_CHARACTERS], expected="a day, as 2026-11-21") from error


def _figure(about: str, column: str, text: str) -> Decimal:
    value = Decimal(text) if _NUMBER.fullmatch(text) else Decimal(0)
    if value <= 0:
        raise LogError(about, field=column, got=text, expected="images/s above 0")
    return value


def verify(folder: Path, entries: Sequence[IndexEntry]) -> tuple[Verified, ...]:
    """All entries recomputed, in their order. An entry that cannot be recomputed has the reason; the others are not
    affected."""
    by_file: dict[str, list[IndexEntry]] = {}
    for entry in entries:
        by_file.setdefault(entry.file, []).append(entry)
    found = {id(verified.entry): verified for each in by_file.values() for verified in _verify_file(folder, each)}
    return tuple(found[id(entry)] for entry in entries)


def _verify_file(folder: Path, entries: Sequence[IndexEntry]) -> Iterable[Verified]:
    """Verifies the rows of one file. The file is read once if it states its own configuration, else once for each
    row."""
    path = folder / entries[0].file
    runs: tuple[LogRun, ...] | None = None
    try:
        check_inside(folder, entries[0].file)
        runs = _runs(path, {})
    except LogError as error:
        if not silent_on(error):
            return [_failed(each, error) for each in entries]
    except (SuiteError, OSError) as error:
        return [_failed(each, error) for each in entries]
    verified = []
    for entry in entries:
        try:
            verified.append(_verify(entry, _runs(path, entry.settings) if runs is None else runs))
        except (SuiteError, OSError) as error:
            verified.append(_failed(entry, error))
    return verified


def _failed(entry: IndexEntry, error: Exception) -> Verified:
    return Verified(entry, None, entry.rule, str(error), lines_of(error))


def check_inside(folder: Path, file: str) -> None:
    """Raises LogError if the file of a row is outside the folder of the index."""
    pure = PurePosixPath(file)
    inside = not (pure.is_absolute() or ".." in pure.parts or "\\" in file or "\0" in file)
    try:
        inside = inside and (folder / file).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        # A loop of links; Python 3.12 and older raise RuntimeError for it.
        inside = False
    if not inside:
        raise LogError(f"log {file}", got="a path that leaves the folder", expected=f"a file in {folder}")


def _runs(path: Path, known: Mapping[LogSetting, Stated]) -> tuple[LogRun, ...]:
    """The runs, with those settings from the index that the log does not state. Settings that both state are compared
    later."""
    needed = {each: known[each] for each in NEEDED if each in known}
    return tuple(run for log in open_logs(path) for run in runs_with(log, {}, needed))


def _verify(entry: IndexEntry, runs: Sequence[LogRun]) -> Verified:
    run = _run_of(entry, runs)
    if against := contradictions(entry.settings, run):
        raise LogError(f"log {entry.file}", got="; ".join(against), expected="what the index says")
    found = figure(run, entry.rule)
    if found.samples_per_s is None:
        return Verified(entry, None, found.rule, found.reason)
    return Verified(entry, found.samples_per_s, found.rule, _problem(entry, found.samples_per_s))


def _run_of(entry: IndexEntry, runs: Sequence[LogRun]) -> LogRun:
    """The one run on as many cards as the entry states. Raises LogError if there is none, or if several fit equally
    well."""
    if len(runs) == 1:
        return runs[0]
    cards = entry.settings[LogSetting.CARDS]
    fitting = [run for run in runs if agrees(LogSetting.CARDS, run.stated(LogSetting.CARDS) or "", cards.value)]
    if not fitting:
        have = ", ".join(dict.fromkeys(run.stated(LogSetting.CARDS) or "an unsaid number" for run in runs))
        raise LogError(f"log {entry.file}", got=f"runs of {have} cards", expected=f"one of {cards.value}")
    if len(fitting) > 1:
        fitting = [run for run in fitting if not contradictions(entry.settings, run)] or fitting
    if len(fitting) > 1:
        where = ", ".join(f"lines {run.first_line} to {run.last_line}" for run in fitting)
        raise LogError(
            f"log {entry.file}",
            got=f"{len(fitting)} runs of {cards.value} cards ({where})",
            expected="one",
            remedy="Cut the log so that each file holds one of them",
        )
    return fitting[0]


def _problem(entry: IndexEntry, samples_per_s: float) -> str:
    problems = []
    for what, value in (("published", entry.published), ("computed in the index", entry.computed)):
        if value is not None and (difference := abs(Decimal(repr(samples_per_s)) - value)) > unit_of(value):
            by = f"{float(difference):.6g}, more than {unit_of(value)}"
            problems.append(f"differs from the figure {what}, {value}, by {by}")
    return "; ".join(problems)


def unit_of(value: Decimal) -> Decimal:
    """One unit in the last printed digit: 0.01 for ``1323.10``, 1 for ``10336``."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return Decimal(1).scaleb(exponent)
