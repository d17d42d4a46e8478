"""Whatever a commit, host, process, case or reason is called, no report is forged, coloured, cut or turned by it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.commands.calibrate import render_noise
from helpers.commands.cases import CaseTable, render_markdown
from helpers.commands.cases import render as render_cases
from helpers.commands.compare import render_comparisons
from helpers.commands.doctor import doctor_markdown, doctor_record, doctor_text
from helpers.commands.history import ShownSeries, render_history
from helpers.commands.show import CaseSheet
from helpers.commands.show import render as render_sheet
from helpers.commands.trend import next_command, render_trends
from helpers.commands.verify_published import render_verified, verified_record
from helpers.history.trend import Sensitivity, Trend
from helpers.judging.night import NightVerdict
from helpers.judging.verdict import Reason, Status
from helpers.logs.published import IndexEntry, Verified
from helpers.logs.settings import LogSetting, Stated
from helpers.machine.doctor import Diagnosis
from helpers.machine.doctor.finding import Finding, Severity
from helpers.machine.tables import SystemReport
from helpers.report.frameworks import FrameworksReport, frameworks_json, render_frameworks, render_frameworks_markdown
from helpers.report.html.night_drawings import night_picture
from helpers.report.results import SessionReport, results_json
from helpers.report.scaling import to_text
from helpers.report.table import markdown_text
from helpers.report.text import night_lines, render
from helpers.session.frameworks.comparison import Cell
from helpers.trainers.contract.errors import ConfigError, HistoryError, LogError, SuiteError, lines_of, printable
from tests.for_each import for_each
from tests.helpers.commands.test_calibrate import NOISE
from tests.helpers.commands.test_cases_text import REFUSED
from tests.helpers.commands.test_compare_text import ANSWER
from tests.helpers.commands.test_history_text import LINE
from tests.helpers.commands.test_show_text import SHEET
from tests.helpers.commands.test_trend import KNOWN, POINTS, SERIES, STEP
from tests.helpers.report.test_frameworks import PADDLE, PYTORCH
from tests.helpers.report.test_frameworks import ROW as FRAMEWORKS_ROW
from tests.helpers.report.test_scaling_tables import row, scaled
from tests.helpers.report.test_text import PASSED, comparison
from tests.hostile_strings import TEXTS, check_json, check_lines, check_markdown, check_xml

NAMES = tuple(TEXTS.values())
hostile = st.one_of(st.sampled_from(NAMES), st.text(max_size=30))


def texts(name: str) -> dict[str, str]:
    """Every report with ``name`` wherever foreign text may stand."""
    told = replace(PASSED, reason=name, warnings=(name,), marks=(name,), reference_build=name, why_no_reference=name,
                   recorded=comparison(3.4, 3.412, label=name), reader_share=0.5)  # fmt: skip
    skipped = replace(PASSED, status="not run", effect="skip", reason=name, samples_per_s=None, recorded=None)
    point = replace(POINTS[5], build=name, commit=name)
    step = replace(STEP, before=point, after=replace(point, commit=f"{name}2"), known=None)
    known = replace(step, known=replace(KNOWN, who=name, reason=name, commit=name))
    line = replace(LINE, session=name, build=name, reason=name, notes=(name,))
    report = SystemReport({"CPU": {"CPU": name, printable(name)[:20]: "x"}})
    diagnosis = Diagnosis(report, (Finding(Severity.WARNING, "x", name, name, name),))
    refused = replace(REFUSED, here=name, build_note=name, needs=name, twin_note=name, not_applied=(name,))
    night = NightVerdict(Status.INCONCLUSIVE, Reason("c", name), 3)
    compared = replace(ANSWER, reason=Reason("c", name))
    return {
        "table": render([told, skipped], 80, details=True),
        "colour": re.sub(r"\x1b\[\d*m", "", render([told], 200, colour=True)),
        "night": "\n".join(night_lines(night, 80)),
        "scaling": to_text(scaled(row(1, "1x1", 3.0, marks=(name,)), row(1, "1x2", None, reason=name)), 80),
        "compare": render_comparisons([compared], [f"A: {name}"], 100),
        "history": render_history(ShownSeries("c", "cpu", name, (line, line), 1), 100),
        "trend": render_trends([Trend(SERIES, (step, known))], Sensitivity(), 100),
        "doctor": doctor_text(diagnosis),
        "doctor.md": doctor_markdown(diagnosis),
        "cases": render_cases(CaseTable([refused], {"machine": name})),
        "cases.md": render_markdown(CaseTable([refused], {"machine": name})),
        **_frameworks(name),
        "calibration": render_noise(replace(NOISE, warnings=(name,)), 100),
        "published": render_verified([_verified(name)], 100),
        "published.json": json.dumps(verified_record(_verified(name))),
        "sheet": render_sheet(_sheet(name)),
        "error": "\n".join(lines_of(LogError(name, field=name, got=name, expected=name, remedy=name, lines=(name,)))),
    }


def _frameworks(name: str) -> dict[str, str]:
    lost = Cell("pytorch", PYTORCH.case_id, status="INVALID", reason=name, runs_here=True)
    row = replace(FRAMEWORKS_ROW, cells=(replace(PADDLE, build=name, reason=name), lost))
    told = {"machine": name}
    return {
        "frameworks": render_frameworks(FrameworksReport([row]), 110),
        "narrow frameworks": render_frameworks(FrameworksReport([row]), 60),
        "frameworks.md": render_frameworks_markdown(FrameworksReport([row], told)),
        "frameworks.json": frameworks_json(FrameworksReport([row], told, pairs=3)),
    }


def _verified(name: str) -> Verified:
    settings = dict.fromkeys(LogSetting, Stated(name, name))
    entry = IndexEntry(1, name, settings, Decimal(10), None, name)
    return Verified(entry, 9.0, name, name, (name,))


def _sheet(name: str) -> CaseSheet:
    return replace(
        SHEET,
        machine=name,
        here=name,
        problem=name,
        words={"model": name},
        environment={"X": name},
        commands=((name,),),
    )


def check_harmless(report: str, text: str, name: str) -> None:
    check = check_markdown if report.endswith(".md") else check_json if report.endswith(".json") else check_lines
    check(text, f"{report}: {name[:50]!r}")


@given(hostile)
@example("a\nFORGED: PASS")
@example("\x1b[2J")
def test_no_report_is_forged(name: str) -> None:
    for report, text in texts(name).items():
        check_harmless(report, text, name)


@for_each("trick", TEXTS)
def test_each_known_trick(trick: str) -> None:
    for report, text in texts(TEXTS[trick]).items():
        check_harmless(report, text, TEXTS[trick])


@given(hostile)
def test_what_is_escaped_can_be_told_from_what_was_written(name: str) -> None:
    shown = printable(name)
    assert shown.isprintable()
    assert printable(shown) == shown
    if name.isprintable() and "::" not in name and "##" not in name:
        assert shown == name


@pytest.mark.parametrize("text", ["std::bad_alloc", "a<b>::c", "test_a.py::test_b", "::1", "## x", "x:::y", "a ::"])
def test_names_with_colons_are_shown_as_they_are(text: str) -> None:
    assert printable(text) == text


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


def test_an_error_about_a_megabyte_can_still_be_read() -> None:
    told = str(ConfigError(f"key {'k' * 1_000_000}", got="v" * 1_000_000, expected="a short one", remedy="Shorten it"))
    assert len(told) < 10_000
    assert told.startswith("key kkk") and told.endswith("expected a short one. Shorten it")


@for_each("trick", TEXTS)
def test_a_picture_stays_well_formed_and_runs_nothing(trick: str) -> None:
    name = TEXTS[trick]
    line = replace(LINE, session=name, build=name, status=name, created=name, notes=(name,))
    check_xml(night_picture(name, name, [line, line]), trick)


@given(hostile)
def test_json_holds_what_there_was_in_ascii(name: str) -> None:
    told = replace(PASSED, reason=name)
    text = results_json(
        SessionReport([told], session="s", exit_code=0, machine={"host": name}, command=("pytest", name), not_reached=0)
    )
    assert text.isascii() and all(line.isprintable() for line in text.split("\n"))
    record = json.loads(text)
    assert (record["machine"]["host"], record["command"][1], record["cases"][0]["reason"]) == (name, name, name)
    diagnosis = Diagnosis(SystemReport({"CPU": {"CPU": name}}), (Finding(Severity.NOTE, "x", name, name, name),))
    assert json.loads(json.dumps(doctor_record(diagnosis)))["findings"][0]["found"] == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("a\\|b", "a\\\\\\|b"),
        ("<img src=x>", "&lt;img src=x>"),
        ("![x](http://evil)", "![x\\](http://evil)"),
        ("```\n## FORGED", "\\`\\`\\`\\n## FORGED"),
        ("paddle-vgg16-amp_o1 [v100] C:\\x", "paddle-vgg16-amp_o1 [v100] C:\\x"),
    ],
)
def test_markdown_shows_it_as_it_stands(text: str, shown: str) -> None:
    assert markdown_text(text) == shown


@pytest.mark.parametrize("name", ["$(touch owned)", "`x`", "a'b", "a;b", "a b", "--upload-pack=x"])
def test_a_command_to_paste_has_its_words_in_quotes(name: str) -> None:
    before, after = replace(POINTS[5], build=name, commit=name), replace(POINTS[5], build="y", commit="c" * 40)
    command = next_command(replace(SERIES, case_id=name), replace(STEP, before=before, after=after))
    words = command.split(" (in the framework's sources)")[0]

    assert shlex.split(words)[3:] == ["c" * 12, name[:12]]
    assert shlex.split(command.split(" -k ")[1].split(" --reference-env")[0]) == [name]
