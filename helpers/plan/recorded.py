"""Loads and checks recorded entries, the figures that this machine reached: ``baselines/recorded/<machine-key>.json``.

Only helpers/plan/proposals.py writes them.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from helpers.common.records import Count, WrongRecord, matching, one_of, read_as
from helpers.judging.rules.own import RULES
from helpers.plan.baseline_files import UNIT, FigureStatus, Named, SamplesPerS, read_document
from helpers.trainers.contract.errors import BaselineError

# 1: entries by case id, whose facts stand once under "shared"; one line an entry; figures have 5 digits.
RECORDED_VERSION = 1

# One run does not say how far the next one may lie from it. The median of three is not moved by a single one.
LEAST_RUNS = 3
# Figures have five digits, so each of two may be wrong by half a unit of the last.
_ROUNDING = 1e-4
# These numbers of a protocol change the figure. The number of runs and the longest warm-up do not.
_COMPARED_STEPS = ("warmup_steps", "window_steps", "steady_window_steps")

# The parts of an entry that stand under ``shared``, and what all entries have there.
_SHARED, _COMMON = ("environment", "segment", "provenance", "protocol"), "common"
_NAME_DIGITS = 8
_DAY, _TIME = r"\d{4}-\d{2}-\d{2}", r"\d{2}:\d{2}(:\d{2}([.]\d+)?)?"
_Date = Annotated[str, matching(rf"^{_DAY}(T{_TIME}(Z|[+-]\d{{2}}:\d{{2}})?)?$(?!\n)", "an ISO 8601 date")]
_Moment = Annotated[str, matching(rf"^({_DAY}T{_TIME}(Z|\+00:00))?$(?!\n)", "UTC in ISO 8601, or an empty text")]
# As helpers/trainers/contract/case.py writes it.
_CaseId = Annotated[str, matching(r"^[a-z0-9_.]+(-[a-z0-9_.]+)+$(?!\n)", "a case id")]
# An entry's name for its figure, and the file's.
_FIGURE, _FIGURE_IN_FILE = "samples_per_s", "images_per_s"


def compared_steps(protocol: Mapping[str, int]) -> dict[str, int]:
    """The numbers of a protocol that change the figure, by their names in perf.yaml, as far as it states them."""
    return {name: protocol[name] for name in _COMPARED_STEPS if name in protocol}


@dataclass(frozen=True)
class Provenance:
    """Where a recorded entry comes from."""

    commit: Named
    # ISO 8601, with or without time.
    date: _Date
    machine: Named
    reason: Named
    # When the segment of its nights begins: UTC, ISO 8601. Empty if the entry does not say.
    begins: _Moment = ""


@dataclass(frozen=True)
class RecordedDocument:
    """A file of recorded entries. An entry gives the name of facts that stand in ``shared``, or the facts."""

    schema_version: int
    machine_key: Named
    unit: Annotated[str, one_of(UNIT)]
    shared: Mapping[str, Mapping[str, Mapping[str, str | int]]]
    entries: Mapping[_CaseId, dict[str, Any]]


@dataclass(frozen=True)
class RecordedEntry:
    """The figure that this machine reached for a case when it was recorded."""

    case_id: _CaseId
    # Of all cards.
    samples_per_s: SamplesPerS
    rule: Annotated[str, one_of(*RULES)]
    # The runs' samples_per_s.
    replicates: Annotated[tuple[SamplesPerS, ...], Meta(min_length=1)]
    # The smallest change that counts, as a fraction; None means perf.yaml's.
    tolerance: Annotated[float, Meta(ge=0, lt=1)] | None
    environment: Mapping[Named, str]
    # The facts that must be equal for two results to be compared (driver, CUDA, power cap, framework line).
    segment: Annotated[Mapping[Named, str], Meta(min_length=1)]
    provenance: Provenance
    status: FigureStatus = FigureStatus.GATE
    # The steps of each run and the number of runs; empty if the entry does not say.
    protocol: Mapping[Named, Count] = dataclass_field(default_factory=dict)

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
        values: dict[str, Any] = msgspec.to_builtins(self)
        del values["case_id"]
        return {_FIGURE_IN_FILE: values.pop(_FIGURE), **values}

    @staticmethod
    def from_json(case_id: str, data: Mapping[str, Any]) -> RecordedEntry:
        """The inverse of ``to_json``. Raises WrongRecord, also if the figure is not that of the replicates, or the
        protocol has another number of runs: the file was edited by hand."""
        values = {_FIGURE if name == _FIGURE_IN_FILE else name: value for name, value in data.items()}
        try:
            entry = read_as({**values, "case_id": case_id}, RecordedEntry)
        except WrongRecord as wrong:
            field = _FIGURE_IN_FILE if wrong.field == _FIGURE else wrong.field
            raise WrongRecord(field, wrong.got, wrong.expected) from wrong
        runs, median = len(entry.replicates), statistics.median(entry.replicates)
        if abs(math.log(entry.samples_per_s / median)) > _ROUNDING:
            raise WrongRecord(_FIGURE_IN_FILE, entry.samples_per_s, f"{median:.5g}, the median of its replicates")
        if entry.protocol.get("runs", runs) != runs:
            raise WrongRecord("protocol.runs", entry.protocol["runs"], f"{runs}, one for each of its replicates")
        return entry


@dataclass(frozen=True)
class RecordedSet:
    """The recorded entries of one machine, by case id."""

    machine_key: str
    entries: Mapping[str, RecordedEntry]


def load_recorded(path: Path, machine_key: str, places: Mapping[str, str] = MappingProxyType({})) -> RecordedSet:
    """The entries recorded for ``machine_key`` in ``path``; a missing file is an empty set. ``places`` has the present
    name for each former name of this machine that segments may contain.

    Raises BaselineError for a file that is damaged or a link, for repeated keys, NaN, another unit or version, for the
    file of another machine, and for an entry whose figure, replicates and number of runs disagree. It never skips an
    entry that it cannot read.
    """
    data = read_document(
        path,
        RecordedDocument,
        version=RECORDED_VERSION,
        remedy="Restore it from version control, or move it away and record again with --update-baselines",
    )
    if data is None:
        return RecordedSet(machine_key, {})
    if data.machine_key != machine_key:
        raise BaselineError(
            str(path),
            field="machine_key",
            got=data.machine_key,
            expected=f"{machine_key!r}, the machine this run is on",
            remedy="Another machine's file: move it back there and record this machine with --update-baselines",
        )
    entries = {}
    for case_id in sorted(data.entries):
        try:
            entry = RecordedEntry.from_json(case_id, _whole(data.entries[case_id], data.shared))
        except WrongRecord as wrong:
            raise BaselineError(
                str(path),
                field=f"entries.{case_id}.{wrong.field}",
                got=wrong.got,
                expected=wrong.expected,
                remedy="Restore the file from version control, or take this entry out and record the case again "
                "with --update-baselines",
            ) from wrong
        host = entry.segment.get("host", "")
        entries[case_id] = replace(entry, segment={**entry.segment, "host": places[host]}) if host in places else entry
    return RecordedSet(machine_key, entries)


def document_of(machine_key: str, entries: Mapping[str, RecordedEntry]) -> dict[str, Any]:
    """The entries of a machine as their file holds them. Raises WrongRecord for one that could not be read again."""
    whole = {case_id: entry.to_json() for case_id, entry in entries.items()}
    for case_id, each in whole.items():
        RecordedEntry.from_json(case_id, each)
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


def _whole(entry: Mapping[str, Any], shared: Mapping[str, Mapping[str, Mapping[str, str | int]]]) -> dict[str, Any]:
    """The entry with what it shares with others. Raises WrongRecord for a name that is not there, and for facts that
    are not those of their name: after two branches were merged, the common ones may be those of another file."""
    found = dict(entry)
    for part in _SHARED:
        name, table = entry.get(part), shared.get(part, {})
        if not isinstance(name, str):
            continue
        facts = {**table.get(_COMMON, {}), **table.get(name, {})}
        if _name_of(facts) != name:
            raise WrongRecord(part, name, f"the name of facts that shared.{part} has, unchanged")
        found[part] = facts
    return found
