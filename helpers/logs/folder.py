"""Finds the logs of a folder, each with its rows in the folder's INDEX.csv."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers.logs.importer import IndexRow, ToImport
from helpers.logs.published import INDEX, IndexEntry, check_inside, read_index
from helpers.logs.sources.source import MOST_MEMBERS, no_log_by_name
from helpers.trainers.contract.errors import LogError

# The most files of a folder that are looked at, logs or not: more are no folder of logs, but a disk.
_MOST_FILES = 10 * MOST_MEMBERS


@dataclass(frozen=True)
class FolderOfLogs:
    """The files of a folder for an import."""

    logs: tuple[ToImport, ...]
    # Files that were left out (links, and names that are not those of logs), each with the reason.
    left_out: tuple[str, ...] = ()


def logs_of(folder: Path) -> FolderOfLogs:
    """All files in ``folder`` and below that may be logs, and those that its index names, sorted by path.

    Raises LogError if the index cannot be read or names a file outside the folder, if there is no log, and if there are
    too many files.
    """
    entries: dict[Path, list[IndexEntry]] = {}
    if (folder / INDEX).exists():
        for entry in read_index(folder / INDEX):
            check_inside(folder, entry.file)
            entries.setdefault(folder / entry.file, []).append(entry)
    found = {path: ToImport(path, tuple(map(_row, rows))) for path, rows in entries.items()}
    left_out: dict[Path, str] = {}
    # Sorted at the end: the limits must hold before every path is in memory.
    for path in folder.rglob("*"):
        if path in found or (path.is_dir() and not path.is_symlink()):
            continue
        reason = "a link" if path.is_symlink() else no_log_by_name(path.relative_to(folder).as_posix())
        if not reason:
            found[path] = ToImport(path)
        elif path != folder / INDEX:
            left_out[path] = f"{path}: left out, {reason}"
        if len(found) > MOST_MEMBERS or len(found) + len(left_out) > _MOST_FILES:
            expected = f"at most {MOST_MEMBERS} logs among at most {_MOST_FILES} files"
            raise LogError(f"folder {folder}", got="more files", expected=expected)
    if not found:
        raise LogError(f"folder {folder}", got="no log", expected="training logs in it")
    return FolderOfLogs(
        tuple(found[path] for path in sorted(found)), tuple(left_out[path] for path in sorted(left_out))
    )


def _row(entry: IndexEntry) -> IndexRow:
    return IndexRow(entry.settings, entry.rule, entry.day, f"{INDEX} line {entry.line}")
