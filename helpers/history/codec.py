"""Runs and nights as rows of the history, and back: what goes in comes out equal."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from helpers.history import record_schemas
from helpers.history.records import NightRecord
from helpers.history.results import (
    CONTENDED,
    MACHINE_SHARED,
    RESULT_SCHEMA_VERSION,
    SLOWED,
    RunResult,
    result_of_record,
)
from helpers.history.results_check import MEASURED
from helpers.judging.evidence import Build, Compared, Stage
from helpers.judging.verdict import Standing
from helpers.machine.environment import POOL
from helpers.machine.opening import MOST_NIGHT_BYTES, MOST_RESULT_BYTES
from helpers.plan.segments import segment_of
from helpers.trainers.contract.errors import ConfigError, HistoryError, SuiteError

# Stored once for all runs that have them alike. The rest of a run stands in its row.
_SETUP = ("settings", "overrides", "protocol", "facts")
_STEPS = {"step_seconds": "d", "samples_per_step": "q", "losses": "d"}
_COLUMNS = ("uuid", "session", "case_id", "target", "role", "stage")
# A step has 3 characters or more in a result's file, and 8 bytes here.
_MOST_STEP_BYTES = 3 * MOST_RESULT_BYTES
# Log rates; two runs that are nearer to each other say the same.
_LAST_DIGITS = 1e-12
_UPDATE = "A newer suite may have written it: update this one"
_NIGHTS = uuid.UUID("5b6f6a0e-3a55-4c1e-9d0b-6a1a6f0f4b1e")


@dataclass(frozen=True)
class RunRow:
    """A run for the database: its own columns, the documents by column, the raw steps."""

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
    """The run of a row of ``results`` with its documents and steps; ResultError where it is damaged."""
    record = _object(row["body"])
    record.update({name: row[name] for name in (*_COLUMNS, "replicate")})
    record.update(_object(row["setup"]))
    record.update({name: _object(row[name]) for name in ("build", "environment", "system")})
    record.update({name: list(unpack(row[name], kind)) for name, kind in _STEPS.items()})
    version = record.get("schema_version")
    if isinstance(version, int) and version < RESULT_SCHEMA_VERSION:
        # Stored by an older suite: fields that came since have the values they had without saying so.
        record = {**_defaults(), **record, "schema_version": RESULT_SCHEMA_VERSION}
    return result_of_record(record, f"history: result {row['uuid']}")


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{type(found).__name__}, no JSON object")
    return found


def _defaults() -> dict[str, Any]:
    return json.loads(RunResult("", "", "", "", 0, "").to_json())  # type: ignore[no-any-return]


def why_unlearned(result: RunResult) -> str:
    """Why no later night may learn from this run, empty where it may (only like is held against like)."""
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


# ---- nights

# 1: first format, without its number.
# 2: "compared", the interleaved runs of both builds; of "standing" level, level_error, good_shift, teaches_level and
#    teaches_good.
NIGHT_SCHEMA_VERSION = 2


def night_uuid(night: NightRecord) -> str:
    """The same for the same session, case, target and host: two hosts may give their sessions one name."""
    host = night.segment.get("host", night.host)
    # Two nodes of a pool may give their sessions one name too.
    host = night.host if host.startswith(POOL) else host
    return uuid.uuid5(_NIGHTS, json.dumps([night.session, night.case_id, night.target, host])).hex


def night_text(night: NightRecord) -> str:
    """A night as JSON text: what ``night_of`` reads. Raises ValueError on NaN."""
    return to_text({**asdict(night), "schema_version": NIGHT_SCHEMA_VERSION})


def night_of(text: str, about: str) -> NightRecord:
    """Raises HistoryError on what no suite of this version writes, by field; numbers within what hardware gives."""
    try:
        record = json.loads(text, parse_constant=_no_constant) if len(text) <= MOST_NIGHT_BYTES else None
    except (ValueError, RecursionError) as error:
        raise _no_night(about, None, str(error), "a night as JSON") from error
    if not isinstance(record, dict):
        got = f"{len(text)} characters" if record is None else type(record).__name__
        raise _no_night(about, None, got, f"a JSON object of at most {MOST_NIGHT_BYTES} characters")
    version = record.pop("schema_version", 1)
    if isinstance(version, bool) or version not in range(1, NIGHT_SCHEMA_VERSION + 1):
        raise _no_night(about, "schema_version", version, f"1 to {NIGHT_SCHEMA_VERSION}", _UPDATE)
    for name, checker, part in (
        ("", record_schemas.NIGHT, record),
        ("standing.", record_schemas.STANDING, record.get("standing")),
        ("compared.", record_schemas.COMPARED, record.get("compared")),
    ):
        if part is not None and (wrong := checker.violation(part)) is not None:
            remedy = _UPDATE if wrong.got == "an unknown key" else None
            raise _no_night(about, name + wrong.field, wrong.got, wrong.expected, remedy)
    standing, compared = record.pop("standing"), record.pop("compared", None)
    for name in ("log_rates", "run_uuids"):
        record[name] = tuple(record[name])
    try:
        return NightRecord(
            **record,
            standing=None if standing is None else Standing(**standing),
            compared=None if compared is None else compared_of(compared),
        )
    except SuiteError as error:
        raise _no_night(about, "compared", error.got, error.expected or "") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _no_night(about: str, field: str | None, got: object, expected: str, remedy: str | None = None) -> HistoryError:
    return HistoryError(about, field=field, got=got, expected=expected, remedy=remedy)


def stored_name(uuid: str) -> str:
    """A stored night as its errors name it: with what takes it out."""
    return f"history: night {uuid} (perfgate exclude {uuid[:12]} --reason ... leaves it out)"


def compared_of(record: Mapping[str, Any]) -> Compared:
    """Raises TypeError, KeyError or SuiteError on what ``asdict`` did not make of one."""
    return Compared(**{**record, "new": tuple(record["new"]), "reference": tuple(record["reference"])})


def without(rates: Sequence[float], taken_out: Iterable[float]) -> tuple[float, ...]:
    """``rates`` less one of each of ``taken_out`` that it holds.

    A run's own is the logarithm of its figure anew, of which another mathematical library may make another last digit.
    """
    left = list(rates)
    for rate in taken_out:
        nearest = min(left, key=lambda each: abs(each - rate), default=math.inf)
        if abs(nearest - rate) <= _LAST_DIGITS:
            left.remove(nearest)
    return tuple(left)


# ---- values


def to_text(value: Any) -> str:
    """JSON with sorted keys and ASCII only, so that equal values are equal texts. ValueError on NaN."""
    return json.dumps(value, sort_keys=True, allow_nan=False, default=dict, separators=(",", ":"))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plain(value: str) -> str:
    """A text that every database takes: PostgreSQL refuses NUL, and what is no Unicode."""
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
