"""The machine-readable results of a session: ``--results FILE.json``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from helpers.errors import ResultError
from helpers.report.rows import CaseRow

# 1: first format.
RESULTS_SCHEMA_VERSION = 1


def document(
    rows: Sequence[CaseRow], *, session: str, exit_code: int, machine: Mapping[str, str], command: Sequence[str]
) -> str:
    """The same table as the terminal's, with every number behind it, as JSON text.

    ``cases`` holds a record a case (CaseRow), ``totals`` the number of cases by status.
    """
    record: dict[str, Any] = {
        "schema_version": RESULTS_SCHEMA_VERSION,
        "session": session,
        "exit_code": exit_code,
        "machine": dict(machine),
        "command": list(command),
        "totals": dict(Counter(row.status for row in rows)),
        "cases": [row.to_record() for row in rows],
    }
    try:
        return json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"
    except ValueError as error:
        raise ResultError(f"results of session {session}", got=str(error), expected="finite numbers") from error


def read_rows(text: str, about: str) -> tuple[CaseRow, ...]:
    """The rows of a document; ResultError on another schema or damaged text."""
    try:
        record = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ResultError(about, got=str(error), expected="results as JSON") from error
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != RESULTS_SCHEMA_VERSION:
        raise ResultError(about, field="schema_version", got=version, expected=str(RESULTS_SCHEMA_VERSION))
    cases = record.get("cases")
    if not isinstance(cases, list) or not all(isinstance(item, dict) for item in cases):
        raise ResultError(about, field="cases", got=cases, expected="a list of objects")
    return tuple(CaseRow.from_record(item) for item in cases)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
