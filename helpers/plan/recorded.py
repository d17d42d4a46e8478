"""Recorded entries: what this machine delivered, ``baselines/recorded/<machine-key>.json``; loaded and checked here.

They are written by baseline_update only.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helpers.judging.rules import RULES
from helpers.plan.baseline_files import RECORDED, FigureStatus, read_document
from helpers.trainers.contract.errors import BaselineError

# The format, described by the schema.json beside the files:
#   1  entries by case id: images_per_s, rule, replicates, interval, tolerance, environment, segment, provenance, status
#   2  protocol: the steps of each run and the number of runs; empty in an entry of version 1
RECORDED_VERSION = 2

# One run says nothing of how far the next one may lie from it; three have a median that no single one moves.
LEAST_RUNS = 3
# Of a protocol, what changes the figure itself. The number of runs does not, nor does how long warm-up may go on.
_COMPARED_STEPS = ("warmup_steps", "window_steps", "steady_window_steps")

# No machine trains a billion images a second; a larger number is a wrong unit or a damaged file.
_LARGEST_IMAGES_PER_S = 1e9
# What fromisoformat takes beyond this differs between versions of Python.
_ISO_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


@dataclass(frozen=True)
class Provenance:
    """Where a recorded entry comes from; ``date`` is an ISO 8601 date with or without time."""

    commit: str
    date: str
    machine: str
    reason: str


@dataclass(frozen=True)
class RecordedEntry:
    """What this machine delivered for a case when it was recorded; samples/s of all cards.

    ``replicates`` are the runs' images_per_s, ``interval`` (low, high) the confidence interval where
    one was computed, ``tolerance`` a fraction or None for the configuration's, ``segment`` the facts
    that have to be equal for two results to be compared (driver, CUDA, power cap, framework line),
    ``protocol`` the steps of each run and the number of runs, empty where the entry does not tell.
    Raises BaselineError on numbers no measurement gives, on an unknown rule and on a date that is none.
    """

    case_id: str
    samples_per_s: float
    rule: str
    replicates: tuple[float, ...]
    interval: tuple[float, float] | None
    tolerance: float | None
    environment: Mapping[str, str]
    segment: Mapping[str, str]
    provenance: Provenance
    status: FigureStatus = FigureStatus.GATE
    protocol: Mapping[str, int] = dataclass_field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_figure("images_per_s", self.samples_per_s)
        if not self.replicates:
            raise self._wrong("replicates", "none", "images_per_s of one run or more")
        for index, value in enumerate(self.replicates):
            self._check_figure(f"replicates[{index}]", value)
        if self.interval is not None:
            for index, value in enumerate(self.interval):
                self._check_figure(f"interval[{index}]", value)
            if len(self.interval) != 2 or self.interval[0] > self.interval[1]:
                raise self._wrong("interval", self.interval, "(low, high) with low <= high")
        if self.tolerance is not None and not 0 <= self.tolerance < 1:
            raise self._wrong("tolerance", self.tolerance, "a fraction from 0 to below 1")
        for name, number in self.protocol.items():
            if type(number) is not int or number < 0:
                raise self._wrong(f"protocol.{name}", number, "a whole number from 0")
        self._check_texts()

    def other_protocol(self, protocol: Mapping[str, int]) -> tuple[str, ...]:
        """In what runs of ``protocol`` are measured otherwise than the entry's; an unstated number is none."""
        return tuple(
            f"protocol {name}: {self.protocol[name]} → {protocol[name]}"
            for name in _COMPARED_STEPS
            if name in self.protocol and name in protocol and self.protocol[name] != protocol[name]
        )

    def _check_texts(self) -> None:
        if not self.segment:
            raise self._wrong("segment", "none", "at least one fact: without any, nothing can be compared")
        for field in ("environment", "segment"):
            for name, value in getattr(self, field).items():
                if not isinstance(value, str):
                    raise self._wrong(f"{field}.{name}", value, "a text")
        texts = {"rule": self.rule, **{f"provenance.{key}": text for key, text in vars(self.provenance).items()}}
        for field, text in texts.items():
            if not isinstance(text, str) or not text.strip():
                raise self._wrong(field, text, "a text that is not empty")
        if self.rule not in RULES:
            raise self._wrong("rule", self.rule, "a rule that runs are measured by: " + ", ".join(RULES))
        if not _is_date(self.provenance.date):
            raise self._wrong("provenance.date", self.provenance.date, "an ISO 8601 date")

    def to_json(self) -> dict[str, Any]:
        """The entry as the file holds it, without its case id, which is its key there."""
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

    def _check_figure(self, field: str, value: float) -> None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not 0 < value <= _LARGEST_IMAGES_PER_S:
            raise self._wrong(field, value, "images/s above 0 and up to 1e9")

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
    """The entries recorded for ``machine_key`` in ``path``; a missing file is an empty set. ``places`` is what hosts
    of segments are called now that this same machine was known by when they were written.

    Raises BaselineError on a damaged, merge-conflicted or linked file, on repeated keys, NaN, another
    unit, a future version, and on the file of another machine. Never skips an entry it cannot read.
    """
    data = read_document(
        path,
        schema=RECORDED / "schema.json",
        version=RECORDED_VERSION,
        remedy="Restore it from version control, or move it away and record again with --update-baselines",
        older={1: _without_protocol},
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
            entry = RecordedEntry.from_json(case_id, data["entries"][case_id])
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


def _without_protocol(data: dict[str, Any]) -> None:
    """Version 1 to 2. What is no entry is left to the schema."""
    entries = data.get("entries")
    for entry in entries.values() if isinstance(entries, dict) else ():
        if isinstance(entry, dict):
            entry.setdefault("protocol", {})


def _is_date(text: str) -> bool:
    if _ISO_DATE.fullmatch(text) is None:
        return False
    try:
        datetime.date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True
