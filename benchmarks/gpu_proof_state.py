"""What is finished, in a file that every step rewrites whole: a second call goes on from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from helpers.machine.files import write_whole
from helpers.trainers.contract.errors import ResultError

# 1: first format.
STATE_VERSION = 1
STATE_FILE = "state.json"
# What a record's ``extra`` calls a case's share of the card's peak, in words.
UTILISATION = "utilisation"


@dataclass(frozen=True)
class Record:
    """How a step ended.

    ``status`` is the suite's, or a word of the step's own; ``right``: it showed what it was to show; ``settled``: a
    second call would find the same and does not try. ``told`` is for the reader. ``case_id`` to ``run_folders`` are of
    a measured case; ``extra`` is the step's own.
    """

    key: str
    status: str
    right: bool
    settled: bool
    told: str
    seconds: float = 0.0
    case_id: str = ""
    target: str = ""
    images_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    run_images_per_s: tuple[float, ...] = ()
    reader_share: float | None = None
    run_folders: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """The records so far, by key, of one machine's proof; ``about`` is what must be the same to go on with it."""

    about: Mapping[str, str]
    records: Mapping[str, Record] = field(default_factory=dict)

    def with_record(self, record: Record) -> State:
        return replace(self, records={**self.records, record.key: record})

    def settled(self, key: str) -> bool:
        return key in self.records and self.records[key].settled

    def write(self, folder: Path) -> None:
        values = {
            "state_version": STATE_VERSION,
            "about": dict(self.about),
            "records": [asdict(record) for record in self.records.values()],
        }
        text = json.dumps(values, indent=1, allow_nan=False, default=dict) + "\n"
        write_whole(folder / STATE_FILE, text.encode())


def read_state(folder: Path, about: Mapping[str, str]) -> State:
    """The state in ``folder``, an empty one where there is none. ResultError on another machine's, or a damaged one."""
    path = folder / STATE_FILE
    remedy = "Name another folder with --out, or move this one away"
    if not path.exists():
        return State(dict(about))
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        version, told, records = values["state_version"], values["about"], values["records"]
        found = [_record(each) for each in records]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultError(
            str(path), got=repr(error), expected="a state that this program wrote", remedy=remedy
        ) from error
    if version != STATE_VERSION:
        raise ResultError(str(path), field="state_version", got=version, expected=str(STATE_VERSION), remedy=remedy)
    for name, value in about.items():
        if told.get(name) != value:
            raise ResultError(str(path), field=name, got=told.get(name), expected=value, remedy=remedy)
    return State(told, {record.key: record for record in found})


def _record(values: dict[str, Any]) -> Record:
    if set(values) != {item.name for item in fields(Record)}:
        raise KeyError(f"a record with the keys {sorted(values)}")
    lists = {name: tuple(values[name]) for name in ("run_images_per_s", "run_folders")}
    return Record(**{**values, **lists})
