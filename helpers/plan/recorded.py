"""Loads and checks recorded entries, the figures that this machine reached: ``baselines/recorded/<machine-key>.json``.

Only helpers/plan/proposals.py writes them.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helpers.judging.rules import RULES
from helpers.machine.records_check import Checker
from helpers.plan.baseline_files import RECORDED, UNIT, FigureStatus, read_document, read_schema
from helpers.trainers.contract.errors import BaselineError

# The format, described by the schema.json beside the files:
#   1  entries by case id: images_per_s, rule, replicates, interval, tolerance, environment, segment, provenance, status
#   2  protocol: the steps of each run and the number of runs; empty in an entry of version 1
#   3  shared: what entries have in common stands once; one line an entry; figures have 5 digits
RECORDED_VERSION = 3

# One run does not say how far the next one may lie from it. The median of three is not moved by a single one.
LEAST_RUNS = 3
# These numbers of a protocol change the figure. The number of runs and the longest warm-up do not.
_COMPARED_STEPS = ("warmup_steps", "window_steps", "steady_window_steps")

_SCHEMA = RECORDED / "schema.json"
# The parts of an entry that stand under ``shared``, and what all entries have there.
_SHARED, _COMMON = ("environment", "segment", "provenance", "protocol"), "common"
_NAME_DIGITS = 8


def compared_steps(protocol: Mapping[str, int]) -> dict[str, int]:
    """The numbers of a protocol that change the figure, by their names in perf.yaml, as far as it states them."""
    return {name: protocol[name] for name in _COMPARED_STEPS if name in protocol}


@dataclass(frozen=True)
class Provenance:
    """Where a recorded entry comes from."""

    commit: str
    # ISO 8601, with or without time.
    date: str
    machine: str
    reason: str
    # When the segment of its nights begins: UTC, ISO 8601. Empty if the entry does not say.
    begins: str = ""


@dataclass(frozen=True)
class RecordedEntry:
    """The figure that this machine reached for a case when it was recorded.

    Raises BaselineError, with the field, for numbers that no measurement gives, an unknown rule and a wrong date.
    """

    case_id: str
    # Of all cards.
    samples_per_s: float
    rule: str
    # The runs' samples_per_s.
    replicates: tuple[float, ...]
    # The bounds of the confidence interval, if one was computed.
    interval: tuple[float, float] | None
    # The smallest change that counts, as a fraction; None means perf.yaml's.
    tolerance: float | None
    environment: Mapping[str, str]
    # The facts that must be equal for two results to be compared (driver, CUDA, power cap, framework line).
    segment: Mapping[str, str]
    provenance: Provenance
    status: FigureStatus = FigureStatus.GATE
    # The steps of each run and the number of runs; empty if the entry does not say.
    protocol: Mapping[str, int] = dataclass_field(default_factory=dict)

    def __post_init__(self) -> None:
        if (wrong := _entry_checker().violation(self.to_json())) is not None:
            raise self._wrong(wrong.field, wrong.got, wrong.expected)
        # These rules cannot be written in the schema.
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise self._wrong("interval", self.interval, "(low, high) with low <= high")
        for name, text in vars(self.provenance).items():
            if not text.strip() and name != "begins":
                raise self._wrong(f"provenance.{name}", text, "a text that is not empty")
        if self.rule not in RULES:
            raise self._wrong("rule", self.rule, "a rule that runs are measured by: " + ", ".join(RULES))
        if not _is_in_the_calendar(self.provenance.date):
            raise self._wrong("provenance.date", self.provenance.date, "an ISO 8601 date")

    def other_protocol(self, protocol: Mapping[str, int]) -> tuple[str, ...]:
        """The differences between ``protocol`` and the entry's. A number that the entry does not state is no
        difference."""
        mine, other = compared_steps(self.protocol), compared_steps(protocol)
        return tuple(
            f"protocol {name}: {steps} → {other[name]}"
            for name, steps in mine.items()
            if other.get(name, steps) != steps
        )

    def to_json(self) -> dict[str, Any]:
        """The whole entry without its case id."""
        return {
            "images_per_s": self.samples_per_s,
            "rule": self.rule,
            "replicates": list(self.replicates),
            "interval": None if self.interval is None else list(self.interval),
            "tolerance": self.tolerance,
            "environment": dict(self.environment),
            "segment": dict(self.segment),
            "provenance": {name: text for name, text in vars(self.provenance).items() if text or name != "begins"},
            "status": self.status.value,
            "protocol": dict(self.protocol),
        }

    @staticmethod
    def from_json(case_id: str, data: Mapping[str, Any]) -> RecordedEntry:
        """The inverse of ``to_json``; ``data`` is valid under the schema."""
        interval = data["interval"]
        return RecordedEntry(
            case_id=case_id,
            samples_per_s=float(data["images_per_s"]),
            rule=data["rule"],
            replicates=tuple(float(value) for value in data["replicates"]),
            interval=None if interval is None else (float(interval[0]), float(interval[1])),
            tolerance=data["tolerance"],
            environment=dict(data["environment"]),
            segment=dict(data["segment"]),
            provenance=Provenance(**data["provenance"]),
            status=FigureStatus(data["status"]),
            protocol=dict(data["protocol"]),
        )

    def _wrong(self, field: str, got: object, expected: str) -> BaselineError:
        return BaselineError(
            f"baseline entry {self.case_id!r}",
            field=field,
            got=got,
            expected=expected,
            remedy="Measure the case again and record it with --update-baselines",
        )


@dataclass(frozen=True)
class RecordedSet:
    """The recorded entries of one machine, by case id."""

    machine_key: str
    entries: Mapping[str, RecordedEntry]


def load_recorded(path: Path, machine_key: str, places: Mapping[str, str] = MappingProxyType({})) -> RecordedSet:
    """The entries recorded for ``machine_key`` in ``path``; a missing file is an empty set. ``places`` has the present
    name for each former name of this machine that segments may contain.

    Raises BaselineError for a file that is damaged, merge-conflicted or a link, for repeated keys, NaN, another unit, a
    future version, and for the file of another machine. It never skips an entry that it cannot read.
    """
    data = read_document(
        path,
        schema=_SCHEMA,
        version=RECORDED_VERSION,
        remedy="Restore it from version control, or move it away and record again with --update-baselines",
        older={1: _without_protocol, 2: lambda _: None},
    )
    if data is None:
        return RecordedSet(machine_key, {})
    if data["machine_key"] != machine_key:
        raise BaselineError(
            str(path),
            field="machine_key",
            got=data["machine_key"],
            expected=f"{machine_key!r}, the machine this run is on",
            remedy="Another machine's file: move it back there and record this machine with --update-baselines",
        )
    entries = {}
    for case_id in sorted(data["entries"]):
        try:
            entry = RecordedEntry.from_json(case_id, _whole(data["entries"][case_id], data.get("shared", {}), case_id))
            host = entry.segment.get("host", "")
            renamed = {**entry.segment, "host": places[host]} if host in places else entry.segment
            entries[case_id] = replace(entry, segment=renamed)
        except BaselineError as error:
            raise BaselineError(
                str(path),
                field=f"entries.{case_id}.{error.field}",
                got=error.got,
                expected=error.expected,
                remedy="Restore the file from version control, or take this entry out and record the case again "
                "with --update-baselines",
            ) from error
    return RecordedSet(machine_key, entries)


def document_of(machine_key: str, entries: Mapping[str, RecordedEntry]) -> dict[str, Any]:
    """The entries of a machine as their file holds them."""
    whole = {case_id: entry.to_json() for case_id, entry in entries.items()}
    return {
        "schema_version": RECORDED_VERSION,
        "machine_key": machine_key,
        "unit": UNIT,
        "shared": {part: _table([each[part] for each in whole.values()]) for part in _SHARED if whole},
        "entries": {
            case_id: {**each, **{part: _name_of(each[part]) for part in _SHARED}} for case_id, each in whole.items()
        },
    }


def _table(several: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Each of the facts under its name, without those that all have, which stand once."""
    first, *others = several
    common = {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}
    return {
        _COMMON: common,
        **{_name_of(each): {name: each[name] for name in each if name not in common} for each in several},
    }


def _name_of(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:_NAME_DIGITS]


def _whole(
    entry: Mapping[str, Any], shared: Mapping[str, Mapping[str, Mapping[str, Any]]], about: str
) -> dict[str, Any]:
    """The entry with what it shares with others. Raises BaselineError for a name that is not there, and for facts that
    are not those of their name: after two branches were merged, the common ones may be those of another file."""
    found = dict(entry)
    for part in _SHARED:
        name, table = entry[part], shared.get(part, {})
        if not isinstance(name, str):
            continue
        facts = {**table[_COMMON], **table[name]} if name in table else {}
        if _name_of(facts) != name:
            raise BaselineError(
                about,
                field=part,
                got=f"{name}, "
                + ("whose facts were changed" if name in table else f"which shared.{part} does not have"),
                expected="the facts that were recorded under this name",
            )
        found[part] = facts
    return found


def _without_protocol(data: dict[str, Any]) -> None:
    """Version 1 to 2. Anything that is no entry is left to the schema."""
    entries = data.get("entries")
    for entry in entries.values() if isinstance(entries, dict) else ():
        if isinstance(entry, dict):
            entry.setdefault("protocol", {})


def _is_in_the_calendar(date: str) -> bool:
    try:
        datetime.date.fromisoformat(date[:10])
    except ValueError:
        return False
    return True


@functools.cache
def _entry_checker() -> Checker:
    return Checker({"$ref": "#/$defs/entry", "$defs": read_schema(_SCHEMA)["$defs"]})
