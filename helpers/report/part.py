"""The file of one job of a gate that is split among several jobs, as JSON. The report on the whole gate is made from
these files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.judging.verdict import Status
from helpers.machine.files import named_by_user, read_text_limited
from helpers.machine.records_check import COUNT, TEXT, Checker, Schema, list_of, object_of, one_of
from helpers.report.explanation_record import explanation_of, explanation_record
from helpers.session.explain import CaseExplanation
from helpers.session.gate_verdict import GateState
from helpers.session.outcome import CaseOutcome
from helpers.trainers.contract.errors import ResultError

if TYPE_CHECKING:
    from helpers.report.results import SessionReport

# 1: first format.
PART_SCHEMA_VERSION = 1
_MOST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class GatePart:
    """The session of one job."""

    session: str
    # The exit code of pytest.
    exit_code: int
    machine: Mapping[str, str]
    header: tuple[str, ...]
    state: GateState
    # Why the session fails its gate for a reason other than its cases.
    other: tuple[str, ...]
    # How many selected cases have no outcome.
    not_reached: int
    # The verdict on the cases together; None if there is none.
    night: NightOfPart | None
    outcomes: tuple[CaseOutcome, ...]
    explanations: tuple[CaseExplanation, ...]


@dataclass(frozen=True)
class NightOfPart:
    """The verdict on a night (NightVerdict) as far as the report on the whole gate shows it."""

    status: Status
    message: str
    cases: int


def part_json(report: SessionReport) -> str:
    """The file of the session of one job. Raises ResultError for a session without a gate, and on a number that is not
    finite."""
    if report.gate is None:
        raise ResultError(f"session {report.session}", got="no gate", expected="--gate: only a gate has parts")
    night = report.night
    record = {
        "schema_version": PART_SCHEMA_VERSION,
        "session": report.session,
        "exit_code": report.exit_code,
        "machine": dict(report.machine),
        "header": list(report.header()),
        "state": report.gate.state.value,
        "other": list(report.gate.other),
        "not_reached": report.not_reached,
        "night": None if night is None else [night.status.value, night.reason.message, night.cases],
        "outcomes": [outcome.to_record() for outcome in report.outcomes],
        "explanations": [explanation_record(each) for each in report.explanations.values()],
    }
    try:
        return json.dumps(record, default=dict, allow_nan=False)
    except ValueError as error:
        raise ResultError(f"session {report.session}", got=str(error), expected="finite numbers") from error


def read_part(path: Path) -> GatePart:
    """Read what ``part_json`` wrote. Raises OSError, and ResultError for anything else."""
    try:
        record: Any = json.loads(read_text_limited(named_by_user(path), _MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise ResultError(str(path), got=str(error)[:200], expected="a part of a gate as JSON") from error
    if (wrong := _PART.violation(record)) is not None:
        raise ResultError(str(path), field=wrong.field, got=wrong.got, expected=wrong.expected)
    night = record["night"]
    return GatePart(
        record["session"],
        record["exit_code"],
        record["machine"],
        tuple(record["header"]),
        GateState(record["state"]),
        tuple(record["other"]),
        record["not_reached"],
        None if night is None else NightOfPart(Status(night[0]), night[1], night[2]),
        tuple(map(CaseOutcome.from_record, record["outcomes"])),
        tuple(map(explanation_of, record["explanations"])),
    )


_LINES = list_of(TEXT, "a list of texts", maxItems=10_000)
_FIELDS: Mapping[str, Schema] = {
    "schema_version": {"const": PART_SCHEMA_VERSION},
    "session": TEXT,
    "exit_code": COUNT,
    "machine": object_of({"host": TEXT, "found": TEXT}, "a host, and what was found on it"),
    "header": _LINES,
    "state": one_of(GateState, "a known state"),
    "other": _LINES,
    "not_reached": COUNT,
    "night": {
        "anyOf": [
            {"type": "null"},
            {
                "type": "array",
                "prefixItems": [{"enum": [each.value for each in Status]}, TEXT, COUNT],
                "minItems": 3,
                "maxItems": 3,
            },
        ],
        "description": "null, or a status, a text and a number of cases",
    },
    # Each is checked by the reader of outcomes, or of explanations.
    "outcomes": list_of({}, "a list of outcomes"),
    "explanations": list_of({}, "a list of explanations"),
}
_PART = Checker(object_of(_FIELDS, "a JSON object"))
