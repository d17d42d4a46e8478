"""The runs of one file, for tests that read files one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from helpers.logs.importer import Imported, ToImport, import_each
from helpers.logs.settings import AUTO, LogSetting, Stated
from helpers.trainers.contract.errors import LogError


def import_file(
    path: Path, asked: Mapping[LogSetting, Stated], format: str = AUTO, rule: str = AUTO
) -> tuple[Imported, ...]:
    """Raises LogError if the log cannot be read."""
    batch = import_each((ToImport(path),), asked, format, rule)
    for each in batch.unread:
        raise LogError(each.error)
    return batch.imported
