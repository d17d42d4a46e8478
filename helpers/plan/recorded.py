"""Loads and checks recorded entries, the figures that this machine reached: ``baselines/recorded/<machine-key>.json``.

Only helpers/plan/proposals.py writes them.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from helpers.common.records import Count, WrongRecord, one_of, read_as
from helpers.judging.rules.own import RULES
from helpers.judging.statistics import NORMAL_95, student_t_95, summarise
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
# As helpers/trainers/contract/case.py writes it.
_CaseId = Annotated[str, Meta(pattern=r"^[a-z0-9_.]+(-[a-z0-9_.]+)+$(?!\n)")]


def compared_steps(protocol: Mapping[str, int]) -> dict[str, int]:
    """The numbers of a protocol that change the figure, by their names in perf.yaml, as far as it states them."""
    return {name: protocol[name] for name in _COMPARED_STEPS if name in protocol}


@dataclass(frozen=True)
class Provenance:
    """Where a recorded entry comes from."""

    commit: Named
    # ISO 8601, with or without time.
    date: Annotated[str, Meta(pattern=rf"^{_DAY}(T{_TIME}(Z|[+-]\d{{2}}:\d{{2}})?)?$")]
    machine: Named
    reason: Named
    # When the segment of its nights begins: UTC, ISO 8601. Empty if the entry does not say.
    begins: Annotated[str, Meta(pattern=rf"^({_DAY}T{_TIME}(Z|\+00:00))?$")] = ""


@dataclass(frozen=True)
class _WholeEntry:
    """An entry as JSON, with its facts."""

    images_per_s: SamplesPerS
    rule: Named
    replicates: Annotated[tuple[SamplesPerS, ...], Meta(min_length=1)]
    interval: tuple[SamplesPerS, SamplesPerS] | None
    tolerance: Annotated[float, Meta(ge=0, lt=1)] | None
    environment: Mapping[Named, str]
    segment: Annotated[Mapping[Named, str], Meta(min_length=1)]
    provenance: Provenance
    status: FigureStatus
    protocol: Mapping[Named, Count]


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
        try:
            read_as(self.to_json(), _WholeEntry)
        except WrongRecord as wrong:
            raise self._wrong(wrong.field, wrong.got, wrong.expected) from wrong
        # These rules cannot be written as types.
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

    def refuse_disagreement(self) -> None:
        """Raises BaselineError if the figure or its interval is not that of the replicates, or if the protocol has
        another number of runs: the file was edited by hand."""
        runs, found = len(self.replicates), summarise(self.replicates)
        if not _agree(self.samples_per_s, found.centre, _ROUNDING):
            expected = f"{found.centre:.5g}, the median of its replicates"
            raise self._wrong("images_per_s", self.samples_per_s, expected)
        if self.protocol.get("runs", runs) != runs:
            raise self._wrong("protocol.runs", self.protocol["runs"], f"{runs}, one for each of its replicates")
        if self.interval is None:
            return
        if found.low is None or found.high is None:
            raise self._wrong("interval", list(self.interval), "null, since one replicate has none")
        # Where the replicates were rounded their scatter was, too.
        error = _ROUNDING * (1 + math.hypot(student_t_95(runs - 1), NORMAL_95) / math.sqrt(runs))
        if not all(map(_agree, self.interval, (found.low, found.high), (error, error))):
            expected = f"[{found.low:.5g}, {found.high:.5g}], the 95% interval of its replicates"
            raise self._wrong("interval", list(self.interval), expected)

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
            "provenance": dict(vars(self.provenance)),
            "status": self.status.value,
            "protocol": dict(self.protocol),
        }

    @staticmethod
    def from_json(case_id: str, data: Mapping[str, Any]) -> RecordedEntry:
        """The inverse of ``to_json``. Raises BaselineError."""
        try:
            found = read_as(data, _WholeEntry)
        except WrongRecord as wrong:
            raise BaselineError(
                f"baseline entry {case_id!r}", field=wrong.field, got=wrong.got, expected=wrong.expected
            ) from wrong
        own = {name: value for name, value in vars(found).items() if name != "images_per_s"}
        return RecordedEntry(case_id, found.images_per_s, **own)

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
    future version, for the file of another machine, and for an entry whose figure, replicates, interval and number of
    runs disagree. It never skips an entry that it cannot read.
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
            entry = RecordedEntry.from_json(case_id, _whole(data.entries[case_id], data.shared, case_id))
            entry.refuse_disagreement()
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
    entry: Mapping[str, Any], shared: Mapping[str, Mapping[str, Mapping[str, str | int]]], about: str
) -> dict[str, Any]:
    """The entry with what it shares with others. Raises BaselineError for a name that is not there, and for facts that
    are not those of their name: after two branches were merged, the common ones may be those of another file."""
    found = dict(entry)
    for part in _SHARED:
        name, table = entry.get(part), shared.get(part, {})
        if not isinstance(name, str):
            continue
        facts = {**table.get(_COMMON, {}), **table[name]} if name in table else {}
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


def _agree(one: float, other: float, error: float) -> bool:
    return abs(math.log(one / other)) <= error


def _is_in_the_calendar(date: str) -> bool:
    try:
        datetime.date.fromisoformat(date[:10])
    except ValueError:
        return False
    return True
