"""The machine-readable results: all that the table tells, and no NaN."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from helpers.errors import ResultError
from helpers.report.results_json import RESULTS_SCHEMA_VERSION, document, read_rows
from helpers.report.rows import CaseRow

PASSED = CaseRow("a-case", "cpu", "PASS", "pass", "within-recorded", "fine", images_per_s=3.5, step_seconds=((0.5,),))
SKIPPED = CaseRow("b-case", "a100", "not run", "skip", "not-run", "no A100")


def text(*rows: CaseRow) -> str:
    return document(rows, session="s", exit_code=6, machine={"host": "h"}, command=("pytest", "-m", "cpu"))


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
    }
    assert [case["case_id"] for case in cases] == ["a-case", "b-case", "c-case"]
    assert cases[0]["images_per_s"] == 3.5


def test_reads_back_the_rows_it_wrote() -> None:
    assert read_rows(text(PASSED, SKIPPED), "results.json") == (PASSED, SKIPPED)
    assert read_rows(text(), "results.json") == ()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_refuses_to_write_nan(value: float) -> None:
    with pytest.raises(ResultError, match="session s"):
        text(replace(PASSED, images_per_s=value))


@pytest.mark.parametrize("damaged", ["", "{", "[" * 100_000, "[]", "null", "{}", '{"schema_version": 2, "cases": []}'])
def test_refuses_damaged_text_and_another_version(damaged: str) -> None:
    with pytest.raises(ResultError, match=r"results\.json"):
        read_rows(damaged, "results.json")


def test_refuses_to_read_nan() -> None:
    with pytest.raises(ResultError, match="NaN"):
        read_rows(text(PASSED).replace("3.5", "NaN"), "results.json")


@pytest.mark.parametrize("cases", ["null", "{}", "[1]", '"text"'])
def test_refuses_cases_that_are_no_records(cases: str) -> None:
    with pytest.raises(ResultError) as caught:
        read_rows(f'{{"schema_version": {RESULTS_SCHEMA_VERSION}, "cases": {cases}}}', "results.json")
    assert caught.value.field == "cases"
