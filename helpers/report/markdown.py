"""A session as Markdown, for a step's summary or a pull request: the verdict and the cases that need attention;
everything else is folded."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from helpers.common.words import counted
from helpers.report.next_steps import after_drops
from helpers.report.reasons import reason_text
from helpers.report.results import SessionReport
from helpers.report.row import CaseRow
from helpers.report.scaling import AGAINST, Scaling
from helpers.report.sentences import (
    NO_RESULT,
    doubts_of,
    gate_rules,
    headline,
    in_short,
    lost_cases,
    sentence_of,
    urgent,
)
from helpers.report.side_by_side import frameworks_table
from helpers.report.table import Column, Table, markdown_list, markdown_text
from helpers.report.text import case_table, summary_line
from helpers.session.gate_verdict import GateCase
from helpers.session.outcome import OUT_OF_TIME
from helpers.trainers.contract.errors import printable


def results_markdown(report: SessionReport) -> str:
    """The report for a page on GitHub."""
    return "\n\n".join([*_first(report), *_folded(report)]) + "\n"


def _first(report: SessionReport) -> Iterator[str]:
    words, _ = headline(report.rows, report.gate, report.exit_code, report.frameworks, report.not_reached, report.busy)
    yield f"# {markdown_text(words)}"
    if report.gate is not None:
        yield f"**{markdown_text(report.gate.line)}**"
    yield markdown_text(" · ".join(in_short(report)))
    if report.busy:
        yield markdown_text(report.busy)
    if needed := list(_needed(report)):
        yield f"## {counted(len(needed), 'case needs', 'cases need')} someone"
        yield _laid_out(Table.of_texts(("status", "case", "owner", "what happened"), needed))
    if commands := after_drops(report.outcomes):
        yield "\n".join(["```sh", *map(printable, commands), "```"])
    if report.night is not None:
        yield f"The night as a whole: {report.night.status.value}: {markdown_text(reason_text(report.night.reason))}"
    if report.not_reached:
        yield f"Selected cases without a result, skipped or not reached: {report.not_reached}"


def _folded(report: SessionReport) -> Iterator[str]:
    rows = report.rows
    if report.gate is not None and report.gate.quarantined:
        kept = report.gate.quarantined
        yield _fold(f"{counted(len(kept), 'case')} in quarantine", _laid_out(Table.of(_QUARANTINED, kept)))
    if later := [row for row in rows if row.code == OUT_OF_TIME]:
        lines = [f"{row.case_id} [{row.target}]: {row.reason}" for row in later]
        yield _fold(f"{counted(len(later), 'case')} not tonight", markdown_list(lines))
    if rows:
        yield _fold(f"All {summary_line(rows)}", _laid_out(case_table(rows)))
        reasons = [f"{row.case_id} [{row.target}]: {row.reason}" for row in rows]
        yield _fold("The verdicts, with every number", markdown_list(reasons))
    if report.scaling:
        yield _fold(f"Speed-up and efficiency {AGAINST}", "\n\n".join(_speed_ups(report.scaling)))
    if report.frameworks:
        table, notes = frameworks_table(report.frameworks)
        yield _fold("Frameworks side by side", "\n\n".join([_laid_out(table), markdown_list(notes)]))
    yield _fold("The machine", markdown_text(report.machine["found"]))


def _needed(report: SessionReport) -> Iterator[tuple[str, ...]]:
    """Status, case, owner and sentence of each case that needs attention."""
    rules = gate_rules(report)
    for row in urgent(report.rows, report.gate):
        happened = _what_happened(row, rules.get((row.target, row.case_id), ""))
        yield row.status, f"{row.case_id} [{row.target}]", row.owner or "-", happened
    for case in () if report.busy else lost_cases(report.rows, report.gate):
        yield case.status, f"{case.case_id} [{case.target}]", case.owner or "-", case.reason or NO_RESULT


def _what_happened(row: CaseRow, rule: str) -> str:
    """The case's own reason, why it is to be doubted, and the gate's ``rule`` after both."""
    parts = (sentence_of(row), f"({doubts})" if (doubts := doubts_of(row)) else "")
    return " · ".join(filter(None, (" ".join(filter(None, parts)), rule)))


def _fold(title: str, content: str) -> str:
    """A folded section. GitHub reads Markdown in it only between empty lines; the summary line is HTML."""
    return f"<details><summary>{html.escape(printable(title))}</summary>\n\n{content}\n\n</details>"


def _speed_ups(found: Sequence[Scaling]) -> Iterator[str]:
    for each in found:
        yield f"### {markdown_text(each.title)}"
        yield _laid_out(each.table)
        if each.notes:
            yield markdown_list(each.notes)


def _laid_out(table: Table) -> str:
    return "\n".join(table.markdown(markdown_text))


_QUARANTINED = (
    Column[GateCase]("status", lambda each: each.status),
    Column[GateCase]("case", lambda each: f"{each.case_id} [{each.target}]"),
    Column[GateCase]("owner", lambda each: each.owner or "-"),
    Column[GateCase]("reason", lambda each: each.reason or "-"),
)
