"""Turns runs into rows of the history and back; a run that is read is equal to the one that was written. Also has the
values that all rows share."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from helpers.common.files import MOST_RESULT_BYTES
from helpers.history.results import (
    CONTENDED,
    MACHINE_SHARED,
    MEASURED,
    SLOWED,
    RunResult,
    result_of_record,
)
from helpers.judging.case.evidence import Build, Stage
from helpers.plan.overrides import segment_of
from helpers.trainers.contract.errors import ConfigError, HistoryError

# Equal values of these are stored once for all runs. The rest of a run is in its row.
_SETUP = ("settings", "overrides", "protocol", "facts")
_STEPS = {"step_seconds": "d", "samples_per_step": "q", "losses": "d"}
_COLUMNS = ("uuid", "session", "case_id", "target", "role", "stage")
# A step has 3 characters or more in a result's file, and 8 bytes here.
_MOST_STEP_BYTES = 3 * MOST_RESULT_BYTES
# Two log rates that differ by less are the same.
_LAST_DIGITS = 1e-12


@dataclass(frozen=True)
class RunRow:
    """A run for the database: its columns, the documents by column, the raw steps."""

    columns: Mapping[str, Any]
    documents: Mapping[str, str | None]
    steps: Mapping[str, bytes]


def run_row(result: RunResult) -> RunRow:
    """Raises ValueError, TypeError or struct.error on a value that no result may hold."""
    record = result.to_record()
    setup = {name: record.pop(name) for name in _SETUP}
    documents = {
        "build_id": to_text(record.pop("build")),
        "environment_id": to_text(record.pop("environment")),
        "system_id": to_text(record.pop("system")),
        "setup_id": to_text(setup),
        "segment_id": _segment_text(result),
    }
    steps = {name: pack(record.pop(name), kind) for name, kind in _STEPS.items()}
    columns: dict[str, Any] = {name: plain(record.pop(name)) for name in _COLUMNS}
    columns.update(
        replicate=record.pop("replicate"),
        host=plain(result.environment.get("host_id", "")),
        created=utc(result.created, f"result {result.uuid}"),
        log_rate=result.log_rate if result.measured else None,
        unlearned=why_unlearned(result),
        body=to_text(record),
    )
    return RunRow(columns, documents, steps)


def run_of(row: Mapping[str, Any]) -> RunResult:
    """The run of a row of ``results`` with its documents and steps. Raises ResultError for a damaged row."""
    record = _object(row["body"])
    record.update({name: row[name] for name in (*_COLUMNS, "replicate")})
    record.update(_object(row["setup"]))
    record.update({name: _object(row[name]) for name in ("build", "environment", "system")})
    record.update({name: list(unpack(row[name], kind)) for name, kind in _STEPS.items()})
    return result_of_record(record, f"history: result {row['uuid']}")


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{type(found).__name__}, no JSON object")
    return found


def why_unlearned(result: RunResult) -> str:
    """Why no later night may learn from this run; empty if it may. Only runs of equal conditions are compared."""
    reasons = [mark for mark in (CONTENDED, MACHINE_SHARED, SLOWED) if mark in result.marks]
    if result.overrides:
        reasons.append(f"settings changed ({', '.join(sorted(result.overrides))})")
    if result.origin != MEASURED:
        reasons.append(result.origin)
    return plain("; ".join(reasons))


def is_screening(role: str, stage: str) -> bool:
    return role == Build.CANDIDATE.value and stage == Stage.SCREEN.value


def _segment_text(result: RunResult) -> str | None:
    try:
        return to_text(segment_of(result.environment, result.settings, f"result {result.uuid}"))
    except ConfigError:
        return None


def without(rates: Sequence[float], taken_out: Iterable[float]) -> tuple[float, ...]:
    """``rates`` without the values of ``taken_out``, each of which removes one value.

    A run's log rate is computed again from its figure, and another mathematical library may give another last digit.
    """
    left = list(rates)
    for rate in taken_out:
        nearest = min(left, key=lambda each: abs(each - rate), default=math.inf)
        if abs(nearest - rate) <= _LAST_DIGITS:
            left.remove(nearest)
    return tuple(left)


# ---- values


def to_text(value: Any) -> str:
    """The value as JSON with sorted keys and ASCII only, so that equal values give equal texts. Raises ValueError for
    NaN."""
    return json.dumps(value, sort_keys=True, allow_nan=False, default=dict, separators=(",", ":"))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plain(value: str) -> str:
    """A text that every database takes: PostgreSQL refuses NUL and half surrogates."""
    return value.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def utc(created: str, about: str, field: str = "created") -> str:
    """A moment in ISO 8601 as 32 characters of UTC. Raises HistoryError without a date, a time or a zone."""
    try:
        moment = datetime.fromisoformat(created)
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError, TypeError) as error:
        raise HistoryError(
            about, field=field, got=created, expected="UTC in ISO 8601, as 2024-05-06T07:08:09+00:00"
        ) from error


def pack(values: Sequence[float], kind: str) -> bytes:
    """Little-endian 8-byte numbers, ``d`` floats or ``q`` whole ones, compressed. Raises struct.error."""
    return zlib.compress(struct.pack(f"<{len(values)}{kind}", *values), 1)


def unpack(content: bytes, kind: str) -> tuple[Any, ...]:
    """Raises zlib.error or struct.error on bytes that ``pack`` did not make, or that no result has room for."""
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(content, _MOST_STEP_BYTES)
    if not unpacker.eof:
        raise zlib.error(f"cut off, or more than {_MOST_STEP_BYTES} bytes of steps")
    return struct.unpack(f"<{len(raw) // 8}{kind}", raw)
