"""The machine-readable results: all that the table tells, and no NaN."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from helpers.errors import ResultError
from helpers.report.results_json import RESULTS_SCHEMA_VERSION, document
from helpers.report.rows import CaseRow

PASSED = CaseRow("a-case", "cpu", "PASS", "pass", "within-recorded", "fine", images_per_s=3.5, step_seconds=((0.5,),))
SKIPPED = CaseRow("b-case", "a100", "not run", "skip", "not-run", "no A100")


def text(*rows: CaseRow) -> str:
    return document(
        rows, session="s", exit_code=6, machine={"host": "h"}, command=("pytest", "-m", "cpu"), not_reached=2
    )


def test_holds_the_session_and_every_case() -> None:
    record = json.loads(text(PASSED, SKIPPED, replace(SKIPPED, case_id="c-case")))
    cases = record.pop("cases")
    assert record == {
        "schema_version": RESULTS_SCHEMA_VERSION,
        "session": "s",
        "exit_code": 6,
        "machine": {"host": "h"},
        "command": ["pytest", "-m", "cpu"],
        "totals": {"PASS": 1, "not run": 2},
        "not_reached": 2,
    }
    assert [case["case_id"] for case in cases] == ["a-case", "b-case", "c-case"]
    assert cases[0]["images_per_s"] == 3.5


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_refuses_to_write_nan(value: float) -> None:
    with pytest.raises(ResultError, match="session s"):
        text(replace(PASSED, images_per_s=value))
