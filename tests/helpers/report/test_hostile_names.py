"""Whatever a commit, host, process, case or reason is called, no report is forged, coloured, cut or turned by it."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
import xml.etree.ElementTree
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers.doctor.diagnosis import Diagnosis
from helpers.doctor.finding import Finding, Severity
from helpers.errors import ConfigError, HistoryError, SuiteError, printable
from helpers.judging.night import NightVerdict
from helpers.report.case_table import render as render_cases
from helpers.report.case_table import render_markdown
from helpers.report.compare_text import render_comparisons
from helpers.report.escaping import markdown_text
from helpers.report.history_plot import plot_history
from helpers.report.history_text import render_history
from helpers.report.night import night_lines
from helpers.report.results_json import document
from helpers.report.scaling_tables import to_text
from helpers.report.system_text import doctor_markdown, doctor_record, doctor_text
from helpers.report.text import render
from helpers.report.trend_text import next_command, render_trends
from helpers.system_report import SystemReport
from helpers.trend.otava import Sensitivity
from helpers.trend.trends import Trend
from helpers.verdict import Reason, Status
from tests.helpers.report.test_case_table import PEER
from tests.helpers.report.test_compare_text import ANSWER
from tests.helpers.report.test_history_text import LINE
from tests.helpers.report.test_scaling_tables import row, scaled
from tests.helpers.report.test_text import PASSED, comparison
from tests.helpers.report.test_trend_text import KNOWN, POINTS, SERIES, STEP

NAMES = (
    "a b", "a'b\"c", "a;rm -rf /", "$(touch owned)", "`touch owned`", "../../etc/passwd", "a\nFORGED: PASS",
    "a\rFORGED",
    "\x1b[2J\x1b[31mred", "\x9b31m", "\x00", "\u202egnp.exe", "\u2066x\u2069", "\u200b", "\u2028FORGED", "\x85FORGED",
    "a|b|c", "<script>alert(1)</script>", "![x](http://evil/t.png)", "::error file=x::FORGED", "]]>", "&amp;",
    "%s {0} %n",
    "\udc80", "图像 ü", "x" * 100_000,
)  # fmt: skip
hostile = st.one_of(st.sampled_from(NAMES[:-1]), st.text(max_size=30))


def texts(name: str) -> dict[str, str]:
    """Every report with ``name`` wherever foreign text may stand."""
    told = replace(PASSED, reason=name, warnings=(name,), marks=(name,), reference_build=name, why_no_reference=name,
                   recorded=comparison(3.4, 3.412, label=name), reader_share=0.5)  # fmt: skip
    skipped = replace(PASSED, status="not run", effect="skip", reason=name, images_per_s=None, recorded=None)
    point = replace(POINTS[5], build=name, commit=name)
    step = replace(STEP, before=point, after=replace(point, commit=f"{name}2"), known=None)
    known = replace(step, known=replace(KNOWN, who=name, reason=name, commit=name))
    line = replace(LINE, session=name, build=name, reason=name, notes=(name,))
    report = SystemReport({"CPU": {"CPU": name, printable(name)[:20]: "x"}})
    diagnosis = Diagnosis(report, (Finding(Severity.WARNING, "x", name, name, name),))
    peer = replace(PEER, here=name, build_note=name, needs=name, twin_note=name, not_applied=(name,))
    night = NightVerdict(Status.INCONCLUSIVE, Reason("c", name), 3)
    compared = replace(ANSWER, reason=Reason("c", name))
    return {
        "table": render([told, skipped], 80, details=True),
        "colour": re.sub(r"\x1b\[\d*m", "", render([told], 200, colour=True)),
        "night": "\n".join(night_lines(night, 80)),
        "scaling": to_text(scaled(row(1, "1x1", 3.0, marks=(name,)), row(1, "1x2", None, reason=name)), 80),
        "compare": render_comparisons([compared], [f"A: {name}"], 100),
        "history": render_history(name, [line, line], 1, 100),
        "trend": render_trends([Trend(SERIES, (step, known))], Sensitivity(), 100),
        "doctor": doctor_text(diagnosis),
        "doctor.md": doctor_markdown(diagnosis),
        "cases": render_cases([peer], {"machine": name}),
        "cases.md": render_markdown([peer], {"machine": name}),
    }


def check_harmless(text: str, name: str) -> None:
    lines = text.split("\n")
    for line in lines:
        assert line.isprintable(), (name, line[:200])
        # Nothing that a terminal or a reader takes for another direction, another line or a command.
        assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in line)
        assert not line.lstrip().startswith(("FORGED", "::error file=x::FORGED\n"))


@given(hostile)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example("a\nFORGED: PASS")
@example("\x1b[2J")
def test_no_report_is_forged(name: str) -> None:
    for report, text in texts(name).items():
        check_harmless(text, f"{report}: {name!r}")


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_each_known_trick(name: str) -> None:
    for report, text in texts(name).items():
        check_harmless(text, f"{report}: {name[:50]!r}")


@given(hostile)
@settings(max_examples=100, deadline=None)
def test_what_is_escaped_can_be_told_from_what_was_written(name: str) -> None:
    shown = printable(name)
    assert shown.isprintable()
    assert printable(shown) == shown
    if name.isprintable():
        assert shown == name


@given(hostile)
@settings(max_examples=60, deadline=None)
def test_an_error_is_one_printable_line_that_names_what_it_must(name: str) -> None:
    for kind in (SuiteError, ConfigError, HistoryError):
        text = str(kind(f"file {name}", field=name, got=name, expected=name, remedy=name))
        assert text.isprintable()
        assert text.startswith("file ")


def test_an_error_about_a_megabyte_can_still_be_read() -> None:
    told = str(ConfigError(f"key {'k' * 1_000_000}", got="v" * 1_000_000, expected="a short one", remedy="Shorten it"))
    assert len(told) < 10_000
    assert told.startswith("key kkk") and told.endswith("expected a short one. Shorten it")


@pytest.mark.parametrize("name", NAMES[:-2], ids=range(len(NAMES) - 2))
def test_a_picture_stays_well_formed_and_runs_nothing(name: str) -> None:
    line = replace(LINE, session=name, build=name, status=name)
    root = xml.etree.ElementTree.fromstring(plot_history(name, [line, line]))
    words = " ".join(root.itertext())
    assert printable(words.replace("\n", " ")) == words.replace("\n", " ")
    assert [each.tag for each in root.iter() if each.tag.endswith(("script", "image"))] == []


@given(hostile)
@settings(max_examples=60, deadline=None)
def test_json_holds_what_there_was_in_ascii(name: str) -> None:
    told = replace(PASSED, reason=name)
    text = document([told], session="s", exit_code=0, machine={"host": name}, command=("pytest", name), not_reached=0)
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
