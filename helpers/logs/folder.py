"""The logs of a folder, each with what its INDEX.csv says of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers.logs.importer import IndexRow, ToImport
from helpers.logs.published import INDEX, IndexEntry, check_inside, read_index
from helpers.logs.sources.source import MOST_MEMBERS, no_log_by_name
from helpers.trainers.contract.errors import LogError


@dataclass(frozen=True)
class FolderOfLogs:
    """What a folder has for an import."""

    logs: tuple[ToImport, ...]
    # Files that are no logs by their names, and links, each with the reason.
    left_out: tuple[str, ...] = ()


def logs_of(folder: Path) -> FolderOfLogs:
    """Every file in ``folder`` and below it that may be a log, and those that its index names, by path.

    Raises LogError on an index that cannot be read or leaves the folder, and on a folder without a log.
    """
    entries: dict[Path, list[IndexEntry]] = {}
    if (folder / INDEX).exists():
        for entry in read_index(folder / INDEX):
            check_inside(folder, entry.file)
            entries.setdefault(folder / entry.file, []).append(entry)
    found = {path: ToImport(path, tuple(map(_row, rows))) for path, rows in entries.items()}
    left_out = []
    for path in sorted(folder.rglob("*")):
        if path in found or (path.is_dir() and not path.is_symlink()):
            continue
        reason = "a link" if path.is_symlink() else no_log_by_name(path.relative_to(folder).as_posix())
        if not reason:
            found[path] = ToImport(path)
        elif path != folder / INDEX:
            left_out.append(f"{path}: left out, {reason}")
        if len(found) > MOST_MEMBERS:
            raise LogError(f"folder {folder}", got="more files", expected=f"at most {MOST_MEMBERS}")
    if not found:
        raise LogError(f"folder {folder}", got="no log", expected="training logs in it")
    return FolderOfLogs(tuple(found[path] for path in sorted(found)), tuple(left_out))


def _row(entry: IndexEntry) -> IndexRow:
    return IndexRow(entry.settings, entry.rule, entry.day, f"{INDEX} line {entry.line}")
