"""Whatever a commit, host, process, case or reason is called, no report is forged, coloured, cut or turned by it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.commands.calibrate import render_noise
from helpers.commands.case_sheet import render as render_sheet
from helpers.commands.cases import CaseTable, render_markdown
from helpers.commands.cases import render as render_cases
from helpers.commands.compare import render_comparisons
from helpers.commands.doctor import doctor_record, doctor_text
from helpers.commands.history import ShownSeries, render_history
from helpers.judging.case.verdict import Reason, Status
from helpers.judging.finding import Code, found
from helpers.judging.night.verdict import NightVerdict
from helpers.machine.doctor import Diagnosis
from helpers.machine.doctor.issue import Issue, Severity
from helpers.plan.matrix import MeasuringProtocol
from helpers.report.html.night_drawings import draw_nights
from helpers.report.results import SessionReport, results_json
from helpers.report.scaling import scalings, to_text
from helpers.report.side_by_side import render_frameworks
from helpers.report.text import night_lines, render
from helpers.session.side_by_side.comparison import Cell
from helpers.trainers.contract.errors import ConfigError, HistoryError, LogError, SuiteError, printable
from helpers.trainers.contract.frameworks import Framework
from tests.for_each import for_each
from tests.helpers.commands.test_calibrate import NOISE
from tests.helpers.commands.test_cases_text import REFUSED
from tests.helpers.commands.test_compare_text import ANSWER
from tests.helpers.commands.test_history_text import LINE
from tests.helpers.report.test_scaling import row
from tests.helpers.report.test_side_by_side import PADDLE, PYTORCH
from tests.helpers.report.test_side_by_side import ROW as FRAMEWORKS_ROW
from tests.helpers.report.test_text import PASSED, comparison
from tests.hostile_strings import TEXTS, check_json, check_lines, check_markdown, check_xml

pytestmark = pytest.mark.slow

NAMES = tuple(TEXTS.values())
hostile = st.one_of(st.sampled_from(NAMES), st.text(max_size=30))


def texts(name: str) -> dict[str, str]:
    """Every report with ``name`` wherever foreign text may stand."""
    told = replace(PASSED, reason=name, warnings=(name,), marks=(name,), reference_build=name, why_no_reference=name,
                   recorded=comparison(3.4, 3.412, label=name), reader_share=0.5)  # fmt: skip
    skipped = replace(PASSED, status="not run", effect="skip", reason=name, samples_per_s=None, recorded=None)
    line = replace(LINE, session=name, build=name, reason=name, notes=(name,))
    report = {"CPU": {"CPU": name, printable(name)[:20]: "x"}}
    diagnosis = Diagnosis(report, (Issue(Severity.WARNING, "x", name, name, name),))
    refused = replace(REFUSED, here=name, needs=name)
    night = NightVerdict(Status.INCONCLUSIVE, Reason("c", name), 3)
    compared = replace(ANSWER, reason=Reason("c", name))
    return {
        "table": render([told, skipped], 80, details=True),
        "colour": re.sub(r"\x1b\[\d*m", "", render([told], 200, colour=True)),
        "night": "\n".join(night_lines(night, 80)),
        "scaling": to_text(scalings([row("1x1", 3.0, marks=(name,)), row("1x2", 5.0, marks=(name,))]), 80),
        "compare": render_comparisons([compared], [f"A: {name}"], 100),
        "history": render_history(ShownSeries("c", "cpu", name, (line, line), 1), 100),
        "doctor": doctor_text(diagnosis),
        "cases": render_cases(CaseTable([refused], name)),
        "cases.md": render_markdown(CaseTable([refused], name)),
        **_frameworks(name),
        "calibration": render_noise(replace(NOISE, warnings=(found(Code.REFUSED, why=name),)), 100),
        "sheet": render_sheet(_sheet(name)),
        "error": str(LogError(name, field=name, got=name, expected=name, remedy=name)),
    }


def _frameworks(name: str) -> dict[str, str]:
    lost = Cell(Framework.PYTORCH, PYTORCH.case_id, status="INVALID", reason=Reason("", name), runs_here=True)
    row = replace(FRAMEWORKS_ROW, cells=(replace(PADDLE, build=name, reason=Reason("", name)), lost))
    return {"frameworks": render_frameworks([row], 110), "narrow frameworks": render_frameworks([row], 60)}


def _sheet(name: str) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(("figures", "fixed", "departures"), ())
    protocol = MeasuringProtocol("p", 4, 6, 1)
    texts = dict.fromkeys(("here", "machine", "problem", "recorded", "images_needed", "operators_source"), name)
    case = {"case_id": "paddle-vgg16-fp32-bs32-1x8-native-static", "target": "v100", "protocol": protocol}
    return {**nothing, **texts, **case, "published_tolerance": 0.05, "recorded_tolerance": 0.08, "settings": {},
            "environment": {"X": name}, "commands": ((name,),), "operators": None}  # fmt: skip


def check_harmless(report: str, text: str, name: str) -> None:
    check = check_markdown if report.endswith(".md") else check_json if report.endswith(".json") else check_lines
    check(text, f"{report}: {name[:50]!r}")


@settings(max_examples=20)
@given(st.text(max_size=30))
@example("a\nFORGED: PASS")
def test_no_report_is_forged(name: str) -> None:
    for report, text in texts(name).items():
        check_harmless(report, text, name)


@for_each("trick", TEXTS)
def test_no_report_is_forged_by_a_known_trick(trick: str) -> None:
    for report, text in texts(TEXTS[trick]).items():
        check_harmless(report, text, TEXTS[trick])


@given(hostile)
def test_what_is_escaped_can_be_told_from_what_was_written(name: str) -> None:
    shown = printable(name)
    assert shown.isprintable()
    assert printable(shown) == shown
    if name.isprintable() and "::" not in name and "##" not in name:
        assert shown == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error file=x::y", r"\x3a:error file=x::y"),
        ("a\n::error::b", r"a\n::error::b"),
        ("a-::error::b", r"a-\x3a:error::b"),
        ("a ##[error]b", r"a \x23#[error]b"),
        ("##vso[task]", r"\x23#vso[task]"),
    ],
)
def test_no_word_is_a_command_of_a_ci(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(hostile)
def test_an_error_is_one_printable_line_that_names_what_it_must(name: str) -> None:
    for kind in (SuiteError, ConfigError, HistoryError):
        text = str(kind(f"file {name}", field=name, got=name, expected=name, remedy=name))
        assert text.isprintable()
        assert text.startswith("file ")


@for_each("trick", TEXTS)
def test_a_picture_stays_well_formed_and_runs_nothing(trick: str) -> None:
    name = TEXTS[trick]
    line = replace(LINE, session=name, build=name, status=name, created=name, notes=(name,))
    check_xml(str(draw_nights(name, [line, line], ())), trick)


@given(hostile)
def test_json_holds_what_there_was_in_ascii(name: str) -> None:
    told = replace(PASSED, reason=name)
    text = results_json(
        SessionReport([told], session="s", exit_code=0, machine={"host": name}, command=("pytest", name), not_reached=0)
    )
    assert text.isascii() and all(line.isprintable() for line in text.split("\n"))
    record = json.loads(text)
    assert (record["machine"]["host"], record["command"][1], record["cases"][0]["reason"]) == (name, name, name)
    diagnosis = Diagnosis({"CPU": {"CPU": name}}, (Issue(Severity.NOTE, "x", name, name, name),))
    assert json.loads(json.dumps(doctor_record(diagnosis)))["findings"][0]["found"] == name
