"""Turns runs into rows of the history and back; a run that is read is equal to the one that was written. Also has the
values that all rows share."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from helpers.common.files import MOST_RESULT_BYTES
from helpers.history.results import CONTENDED, MACHINE_SHARED, MEASURED, SLOWED, RunResult, result_of_record
from helpers.judging.case.evidence import Build, Stage
from helpers.trainers.contract.errors import HistoryError

# Two log rates that differ by less are the same.
_LAST_DIGITS = 1e-12


def run_row(result: RunResult) -> dict[str, Any]:
    """The columns of a run. Raises ValueError and TypeError on a value that no result may hold."""
    names = ("uuid", "session", "case_id", "target", "role", "stage")
    return {
        **{name: plain(getattr(result, name)) for name in names},
        "created": utc(result.created, f"result {result.uuid}"),
        "log_rate": result.log_rate if result.measured else None,
        "unlearned": why_unlearned(result),
        "body": zlib.compress(to_text(result.to_record()).encode()),
    }


def run_of(uuid: str, body: bytes) -> RunResult:
    """The run of a row. Raises ResultError, ValueError or zlib.error for a damaged one."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(body, MOST_RESULT_BYTES)
    if not unpacker.eof:
        raise zlib.error(f"cut off, or more than {MOST_RESULT_BYTES} bytes")
    return result_of_record(json.loads(text), f"history: result {uuid}")


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
