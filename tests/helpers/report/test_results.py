"""The machine-readable results: all that the table tells, and no NaN."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.judging.case.verdict import Reason, Status
from helpers.judging.night.verdict import NightVerdict
from helpers.judging.rules.own import CaseFigure
from helpers.report.formats import rendered
from helpers.report.markdown import results_markdown
from helpers.report.results import RESULTS_SCHEMA_VERSION, SessionReport, results_json
from helpers.report.row import CaseRow
from helpers.report.scaling import scalings
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


def test_holds_the_speed_ups() -> None:
    one = replace(PASSED, case_id="paddle-vgg16-fp32-bs8-1x1-dali-static", rule="wall-clock")
    two = replace(one, case_id=one.case_id.replace("1x1", "1x2"), samples_per_s=7.0)
    found = scalings((one, two))
    written = text(one, two, scaling=found)
    (scaling,) = json.loads(written)["scaling"]
    assert [each["speed_up"] for each in scaling["rows"]] == [1.0, 2.0]


def test_holds_the_verdict_on_the_night() -> None:
    night = NightVerdict(Status.PASS, Reason("quiet", "no group fell together"), cases=4)
    written = text(PASSED, night=night)
    assert json.loads(written)["night"] == {
        "status": "PASS",
        "reason": {"code": "quiet", "text": "no group fell together", "findings": []},
        "cases": 4,
        "suspect": "",
        "groups": [],
        "common": None,
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_refuses_to_write_nan(value: float) -> None:
    with pytest.raises(ResultError, match="session s"):
        text(replace(PASSED, samples_per_s=value))


def test_the_name_s_ending_chooses_the_format_and_any_other_gets_json() -> None:
    report = report_of(PASSED)
    for name in ("results", "results.json"):
        assert rendered(report, Path(name)) == results_json(report)
    assert rendered(report, Path("results.md")) == results_markdown(report)
    assert "<!doctype html>" in rendered(report, Path("results.html"))
