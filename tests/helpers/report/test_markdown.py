"""The Markdown of a session: what is read first, what is folded, and that text from outside stays text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.made_sessions import session_of
from helpers.judging.case.verdict import Reason, Status
from helpers.judging.night.verdict import NightVerdict
from helpers.report.markdown import results_markdown
from helpers.report.scaling import scalings
from helpers.session.gate_verdict import NOT_REACHED, GateCase, GateState, GateVerdict
from tests.for_each import for_each
from tests.helpers.report.test_results import PASSED, SKIPPED, report_of
from tests.helpers.report.test_side_by_side import ROW
from tests.hostile_strings import TEXTS, check_markdown

pytestmark = pytest.mark.slow

FAILED = replace(PASSED, case_id="c-case", status="REGRESSION", effect="fail", reason="slow; 3.1%", owner="ada",
                 marks=("contended in 1 of 2 runs: make",))  # fmt: skip


def test_the_verdict_and_the_cases_that_need_someone_come_first_and_all_else_is_folded() -> None:
    text = results_markdown(report_of(PASSED, FAILED, SKIPPED))
    first, *folded = text.split("<details>")
    assert first.splitlines() == [
        "# 1 of 2 cases did not pass",
        "",
        "h · s",
        "",
        "## 1 case needs someone",
        "",
        "| status | case | owner | what happened |",
        "| --- | --- | --- | --- |",
        "| REGRESSION | c-case [cpu] | ada | slow (contended in 1 of 2 runs) |",
        "",
        "Selected cases without a result, skipped or not reached: 2",
        "",
    ]
    table, verdicts, machine = folded
    assert table.startswith("<summary>All 3 cases: 1 REGRESSION, 1 PASS, 1 not run</summary>\n\n| case |")
    assert "- c-case [cpu]: slow; 3.1%" in verdicts and "- a-case [cpu]: fine" in verdicts
    assert "2 cores" in machine


def test_a_gate_s_line_stands_below_the_verdict_and_a_lost_case_needs_someone() -> None:
    lost = GateCase("l-case", "v100", NOT_REACHED, "", "bob")
    kept = GateCase("q-case", "v100", "REGRESSION", "known", "")
    gate = GateVerdict(GateState.FAILED, 1, 0, (lost,), (kept,))
    first, *folded = results_markdown(report_of(PASSED, gate=gate)).split("<details>")
    assert first.startswith(f"# The gate failed: 1 of 2 cases did not pass\n\n**{gate.line}**\n")
    assert "| not reached | l-case [v100] | bob | The session has no result of this case. |" in first
    assert "1 case in quarantine" in folded[0] and "| REGRESSION | q-case [v100] | - | known |" in folded[0]


def test_a_case_that_was_recorded_needs_nobody() -> None:
    row = replace(PASSED, status="NO_BASELINE", effect="error")
    recorded = GateCase(row.case_id, row.target, row.status, "nothing recorded", "")
    gate = GateVerdict(GateState.RECORDED, 0, 0, (), (), recorded=(recorded,))
    head, *_ = results_markdown(report_of(row, gate=gate)).split("<details>")
    assert head.startswith("# The gate recorded 1 of 1 case\n") and row.case_id not in head
    head, *_ = results_markdown(report_of(row)).split("<details>")
    assert row.case_id in head


def test_the_gate_s_rule_stands_after_the_case_s_own_reason() -> None:
    text = results_markdown(session_of(12, 1, steps=5))
    own = "no such device: 16 cards asked, 8 found"
    assert f"| {own} · The gate does not let a case pass that was not run (needs: recorded). |" in text
    assert ": open after all 6 pairs (budgets: pairs). · The gate does not let INCONCLUSIVE pass" in text


def test_the_table_names_the_rule_of_its_figures() -> None:
    text = results_markdown(session_of(2, 1, steps=5))
    assert "| by rule | wall-clock |  | wall-clock |  | median-step |  |  |\n| paddle-" in text


def test_the_night_speed_ups_and_frameworks_are_there() -> None:
    one = replace(PASSED, case_id="paddle-vgg16-fp32-bs8-1x1-dali-static", rule="wall-clock")
    two = replace(one, case_id=one.case_id.replace("1x1", "1x2"), samples_per_s=7.0)
    night = NightVerdict(Status.PASS, Reason("quiet", "no group fell together"), cases=4)
    found = scalings((one, two))
    text = results_markdown(report_of(one, two, night=night, scaling=found, frameworks=(ROW,)))
    assert "The night as a whole: PASS: no group fell together" in text
    assert "\n\n### paddle-vgg16-fp32-dali-static [cpu], batch size = 8\n\n| nodes | cards |" in text
    assert "Frameworks side by side</summary>" in text


@for_each("name", [name for name, text in TEXTS.items() if text])
def test_text_from_outside_stays_text(name: str) -> None:
    text = results_markdown(session_of(3, 1, steps=5, hostile=TEXTS[name]))
    own = ("<details><summary>", "</summary>", "</details>")
    plain = text
    for each in own:
        plain = plain.replace(each, "")
    check_markdown(plain, name)
    harmless = results_markdown(session_of(3, 1, steps=5, hostile="word"))
    assert [text.count(each) for each in own] == [harmless.count(each) for each in own]
    assert text.count("\n#") == harmless.count("\n#")
