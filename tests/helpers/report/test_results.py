"""The machine-readable results: all that the table tells, and no NaN."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.rules.own import CaseFigure
from helpers.report.results import RESULTS_SCHEMA_VERSION, SessionReport, results_json
from helpers.report.row import CaseRow
from helpers.trainers.contract.errors import ResultError

PASSED = CaseRow("a-case", "cpu", "PASS", "pass", "within-recorded", "fine", samples_per_s=3.5, step_seconds=((0.5,),))
SKIPPED = CaseRow("b-case", "a100", "not run", "skip", "not-run", "no A100")


def report_of(*rows: CaseRow, **values: Any) -> SessionReport:
    machine = {"host": "h", "found": "2 cores"}
    return SessionReport(rows, "s", 6, machine, ("pytest", "-m", "cpu"), 2, **values)


def text(*rows: CaseRow, **values: Any) -> str:
    return results_json(report_of(*rows, **values))


def test_holds_the_session_and_every_case() -> None:
    record = json.loads(text(PASSED, SKIPPED, replace(SKIPPED, case_id="c-case")))
    cases = record.pop("cases")
    assert record == {
        "schema_version": RESULTS_SCHEMA_VERSION,
        "gate": None,
        "session": "s",
        "exit_code": 6,
        "machine": {"host": "h", "found": "2 cores"},
        "command": ["pytest", "-m", "cpu"],
        "totals": {"PASS": 1, "not run": 2},
        "not_reached": 2,
        "reader_bound_share": 0.1,
        "scaling": [],
        "night": None,
    }
    assert [case["case_id"] for case in cases] == ["a-case", "b-case", "c-case"]
    assert cases[0]["images_per_s"] == 3.5


def test_holds_every_rule_with_its_reason_and_whether_a_case_is_reader_bound() -> None:
    figures = (CaseFigure("wall-clock", 3.5, 3.5, (3.5,)), CaseFigure("dlperf-log", None, None, (), "too short"))
    cases = json.loads(text(replace(PASSED, figures=figures, reader_share=0.3), PASSED))["cases"]
    assert [(each["rule"], each["images_per_s"], each["reason"]) for each in cases[0]["figures"]] == [
        ("wall-clock", 3.5, ""),
        ("dlperf-log", None, "too short"),
    ]
    assert [case["reader_bound"] for case in cases] == [True, False]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_refuses_to_write_nan(value: float) -> None:
    with pytest.raises(ResultError, match="session s"):
        text(replace(PASSED, samples_per_s=value))
