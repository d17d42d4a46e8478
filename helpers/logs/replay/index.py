"""INDEX.csv of a folder of logs: what people know of a log that the log itself does not say."""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from helpers.logs.record import Said, Setting
from helpers.machine.opening import MOST_INDEX_BYTES, named_by_user, read_text_limited
from helpers.trainers.contract.errors import LogError

INDEX = "INDEX.csv"

Index = Mapping[str, Mapping[Setting, Said]]


def read_index(path: Path) -> Index:
    """By file (its path within the folder), what all of its rows agree on; empty where there is no such table.

    The columns are named as the settings are (``gpu``, ``batch_size_per_card``). Raises LogError on a table without
    the column ``file``.
    """
    if not path.exists():
        return {}
    try:
        text = read_text_limited(named_by_user(path), MOST_INDEX_BYTES, encoding="utf-8-sig")
        with StringIO(text, newline="") as lines:
            # Strict, or a quotation mark that is never closed takes all rows after it for one value.
            table = csv.DictReader(lines, strict=True)
            rows = [(table.line_num, row) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LogError(str(path), got=str(error), expected="a table of logs (CSV, UTF-8)") from error
    if "file" not in (table.fieldnames or ()):
        raise LogError(str(path), field="file", got=table.fieldnames or "nothing", expected="a column of that name")
    found: dict[str, dict[Setting, list[Said]]] = {}
    for number, row in rows:
        said = found.setdefault(posixpath.normpath(row["file"] or ""), {})
        for setting in Setting:
            if value := (row.get(setting.value) or "").strip():
                said.setdefault(setting, []).append(Said(value, f"{INDEX} line {number}"))
    # Two rows of one file are two runs of it; what differs between them is said of neither.
    return {
        file: {setting: every[0] for setting, every in said.items() if len({each.value for each in every}) == 1}
        for file, said in found.items()
    }
