"""Finds the logs of a folder, and what the folder's INDEX.csv says of them."""

from __future__ import annotations

import csv
import datetime
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from helpers.common.files import MOST_INDEX_BYTES, named_by_user, read_text_limited
from helpers.logs.importer import IndexRow, ToImport
from helpers.logs.settings import LogSetting, Stated
from helpers.trainers.contract.errors import LogError

INDEX = "INDEX.csv"
# More files are no folder of logs, but a disk.
_MOST_FILES = 100_000
_FILE, _RULE, _DAY = "file", "rule", "date"
_SETTINGS = (
    LogSetting.FRAMEWORK,
    LogSetting.MODEL,
    LogSetting.GPU,
    LogSetting.PRECISION,
    LogSetting.BATCH_SIZE_PER_CARD,
    LogSetting.CARDS,
)
_NEEDED = (_FILE, *(each.value for each in _SETTINGS), _RULE)
# Names of files that are no logs but often beside logs.
_NO_LOG_NAMES = re.compile(
    r"\.(png|jpe?g|gif|svg|pdf|html|css|js|json|csv|tsv|xml|ya?ml|toml|ini|cfg|md|rst|pyc?|ipynb|sh|bat|zip|tar|pb|h5)$",
    re.IGNORECASE,
)


def logs_of(folder: Path) -> tuple[list[ToImport], list[str]]:
    """All files in ``folder`` and below that may be logs, and those that its index names, sorted by path; and those
    that were left out (links, and names that are not those of logs), each with the reason.

    Raises LogError if the index cannot be read or names a file outside the folder, if there is no log, and if there are
    too many files.
    """
    found = read_index(folder) if (folder / INDEX).exists() else {}
    left_out: list[str] = []
    for count, path in enumerate(folder.rglob("*")):
        if count >= _MOST_FILES:
            raise LogError(f"folder {folder}", got="more files", expected=f"at most {_MOST_FILES}")
        if path in found or path == folder / INDEX or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() or not path.is_file():
            left_out.append(f"{path}: left out, {'a link' if path.is_symlink() else 'no file'}")
        elif _NO_LOG_NAMES.search(path.name) or path.name.startswith("."):
            left_out.append(f"{path}: left out, {path.suffix or path.name} is no log")
        else:
            found[path] = ToImport(path)
    if not found:
        raise LogError(f"folder {folder}", got="no log", expected="training logs in it")
    return [found[path] for path in sorted(found)], sorted(left_out)


def read_index(folder: Path) -> dict[Path, ToImport]:
    """The files that the folder's index names, each with its rows. Raises LogError with line and column."""
    path = folder / INDEX
    try:
        text = read_text_limited(named_by_user(path), MOST_INDEX_BYTES, encoding="utf-8-sig")
        with StringIO(text, newline="") as lines:
            # Strict, since else a quotation mark that is never closed would make one value of all rows after it.
            table = csv.DictReader(lines, strict=True)
            columns, rows = list(table.fieldnames or ()), [(table.line_num, row) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LogError(str(path), got=str(error), expected="a table of logs (CSV, UTF-8)") from error
    if wrong := [each for each in (*_NEEDED, _DAY) if columns.count(each) != 1 and (each != _DAY or each in columns)]:
        raise LogError(str(path), got=columns, expected=f"the column {wrong[0]} once")
    if not rows:
        raise LogError(str(path), got="no rows", expected="one or more")
    found: dict[Path, list[IndexRow]] = {}
    for line, row in rows:
        about = f"{path}:{line}"
        # DictReader keeps values beyond the last column under None.
        if row.get(None):
            raise LogError(about, got="more values than columns", expected="as many")
        values = {column: (row.get(column) or "").strip() for column in (*_NEEDED, _DAY)}
        if empty := [column for column in _NEEDED if not values[column]]:
            raise LogError(about, field=empty[0], got=row.get(empty[0]), expected="a value")
        for column in (LogSetting.BATCH_SIZE_PER_CARD.value, LogSetting.CARDS.value):
            if not re.fullmatch("[1-9][0-9]{0,6}", values[column]):
                raise LogError(about, field=column, got=values[column][:200], expected="a whole number")
        _check_inside(folder, values[_FILE])
        settings = {each: Stated(values[each.value], f"{INDEX} line {line}") for each in _SETTINGS}
        entry = IndexRow(settings, values[_RULE], _day(about, values), f"{INDEX} line {line}")
        found.setdefault(folder / values[_FILE], []).append(entry)
    return {file: ToImport(file, tuple(of_file)) for file, of_file in found.items()}


def _day(about: str, values: Mapping[str, str]) -> str:
    try:
        return datetime.date.fromisoformat(values[_DAY]).isoformat() if values[_DAY] else ""
    except ValueError as error:
        raise LogError(about, field=_DAY, got=values[_DAY][:200], expected="a day, as 2026-11-21") from error


def _check_inside(folder: Path, file: str) -> None:
    """Raises LogError if the file of a row is outside the folder of the index."""
    try:
        inside = (folder / file).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        # A loop of links (Python 3.12 and older raise RuntimeError for it), or a NUL.
        inside = False
    if not inside:
        raise LogError(f"log {file}", got="a path that leaves the folder", expected=f"a file in {folder}")
