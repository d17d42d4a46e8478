"""The terminal's table: one line for each case with its reason, and a summary at the end."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from helpers.common.words import counted
from helpers.judging.case.evidence import Build
from helpers.judging.case.verdict import Status
from helpers.judging.night.verdict import NightVerdict
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.plan.baseline_files import UNIT
from helpers.plan.proposals import Proposal, ProposalKind, figure_text
from helpers.report.colours import OF_EFFECT, PLAIN
from helpers.report.reasons import reason_text
from helpers.report.row import CaseRow, ReferenceAnswer, reader_note, share_cell
from helpers.report.shown_figures import common_rule, measured_rule, published_rule, recorded_rule, shown_published
from helpers.report.table import Align, Column, Grid, Table
from helpers.trainers.contract.errors import printable

_REASON_INDENT = "    "
_NARROWEST_REASON = 40


def render(rows: Sequence[CaseRow], width: int, colour: bool = False, details: bool = False) -> str:
    """The table of a session, ``width`` columns wide; an empty string if there are no rows.

    Below the headings stands the measuring rule of each column's figures; if a column has several, it stands beside
    each figure. The column ``data`` is the share of the window spent waiting for data. The id of each case is on a line
    of its own, its figures and its reason are below. Then there may be one line with the differences of a
    confirmation's pairs and one with the share of the cards' measured peak. ``details`` adds the numbers behind both,
    the runs that were not used, and the case's figures by all measuring rules. Cases that were not run for the same
    reason share a line.
    """
    shown = [row for row in rows if row.status != Status.NOT_RUN.value]
    parts: list[str] = []
    if shown:
        parts.append(_table(shown, width, colour, details))
    parts.extend(_not_run(rows))
    if rows:
        parts.append(summary_line(rows))
    return "\n".join(parts)


def case_table(rows: Sequence[CaseRow]) -> Table:
    """A line with the measuring rule of each column, if it has one, and one line for each case, without its reason."""
    columns, rules = _columns(rows)
    table = Table.of(columns, rows)
    line = ("by rule", rules[0], "", rules[1], "", rules[2], "", "")
    return Table(table.columns, (line, *table.cells)) if any(rules) else table


def summary_line(rows: Sequence[CaseRow]) -> str:
    """How many cases have each status, such as ``4 cases: 3 PASS, 1 not run``. The worst status comes first."""
    counts = Counter(row.status for row in rows)
    parts = [f"{counts[status.value]} {status.value}" for status in Status if status.value in counts]
    return f"{counted(len(rows), 'case')}: {', '.join(parts)}"


def rules_line(row: CaseRow) -> str:
    """The figures by all rules, such as ``by rule: wall-clock 102; dlperf-log 101.3; fleetx-20-100-median7: WHY NOT``;
    with the average if it differs from the median.

    Only the first sentence of a reason is shown; the results file has all of it. Empty if nothing was measured.
    """
    parts, reasons = [], dict[str, list[str]]()
    for each in row.figures:
        if each.samples_per_s is None or each.average_samples_per_s is None:
            reason = each.reason.split(". ")[0].removeprefix(f"rule {each.rule}").removeprefix(":").strip()
            reasons.setdefault(reason, []).append(each.rule)
            continue
        median, average = number(each.samples_per_s), number(each.average_samples_per_s)
        parts.append(f"{each.rule} {median}" + ("" if average == median else f" (average {average})"))
    parts += [f"{', '.join(rules)}: {reason}" for reason, rules in reasons.items()]
    return printable(f"by rule: {'; '.join(parts)}") if parts else ""


def _table(rows: Sequence[CaseRow], width: int, colour: bool, details: bool) -> str:
    (case, *columns), rules = _columns(rows)
    grid = Table.of(columns, rows).grid(_REASON_INDENT)
    lines = [case.heading, grid.heading, *_rules_line(grid, rules), "-" * width]
    for row, line in zip(rows, grid.lines, strict=True):
        if colour and (code := OF_EFFECT[row.effect]):
            line = line.replace(row.status, f"{code}{row.status}{PLAIN}", 1)
        reason = "; ".join([row.reason, *row.marks, *_notes(row)])
        below = [*_wrapped(reason, width - len(_REASON_INDENT)), *_detail_lines(row, width, details)]
        lines += [case.cell(row), line, *(_REASON_INDENT + text for text in below)]
    return "\n".join(lines)


def _rules_line(grid: Grid, rules: Sequence[str]) -> list[str]:
    """The line with the rules of the measured rate, of the published and of the recorded figure: each ends below the
    last of its columns, so that a long one needs no more room. None without a rule."""
    if not any(rules):
        return []
    line = "by"
    ends = [found.end() for found in re.finditer(r"± spread|ratio", grid.heading)]
    for rule, end in zip(rules, ends, strict=True):
        line = f"{line} {rule.rjust(end - len(line) - 1)}" if rule else line
    return [line]


def pairs_line(row: CaseRow) -> str:
    """The difference of each pair, such as ``A/B, new against reference, 3 pairs: -2.1 -1.9 -2.0%``; empty without a
    confirmation."""
    if not row.pairs:
        return ""
    text = " ".join(f"{100 * pair.difference:+.1f}" for pair in row.pairs)
    return f"A/B, new against reference, {counted(len(row.pairs), 'pair')}: {text}%"


def pairs_table(row: CaseRow) -> list[str]:
    """All pairs in the order in which they ran: the build that ran first, samples/s of both builds, the difference."""
    lines = ["pair  first      reference        new  difference"]
    for place, pair in enumerate(row.pairs, start=1):
        first = "reference" if pair.first == Build.REFERENCE.value else "new"
        rates = (number(pair.reference_samples_per_s), number(pair.candidate_samples_per_s))
        lines.append(f"{place:>4}  {first:<9}  {rates[0]:>9}  {rates[1]:>9}  {pair.difference:>+10.2%}")
    return lines if row.pairs else []


def _detail_lines(row: CaseRow, width: int, details: bool) -> list[str]:
    """The lines below the line of a case: its confirmation, and with ``details`` everything else that was measured."""
    room = width - len(_REASON_INDENT)
    lines = _wrapped(pairs_line(row), room)
    if details:
        if row.pairs:
            build = row.reference_build or "the reference build"
            lines = _wrapped(f"A/B, new against {build}; {rate_unit(row.case_id)} by {MEDIAN_STEP}", room)
        lines += pairs_table(row)
        for text in row.set_aside:
            lines += _wrapped(f"set aside {text}", room)
        lines += _wrapped(rules_line(row), room)
    if row.utilisation is not None:
        share = row.utilisation
        lines += _wrapped(f"utilisation: {share.share:.1%} of {share.limit} (data sheet of {share.chip})", room)
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    """Lines broken only at spaces, since a case id or an option that is broken at a hyphen cannot be pasted."""
    return hanging(text, max(width, _NARROWEST_REASON))


def _case(row: CaseRow) -> str:
    owner = f" owner: {row.owner}" if row.owner else ""
    return printable(f"{row.case_id} [{row.target}]{owner}")


def _measured(row: CaseRow) -> str:
    if row.samples_per_s is None:
        return "-" if row.invalid_samples_per_s is None else f"(invalid: {number(row.invalid_samples_per_s)})"
    if row.spread is None:
        return f"{number(row.samples_per_s)} (n=1)"
    return f"{number(row.samples_per_s)} ± {row.spread:.1%} (n={row.runs})"


def _reference(row: CaseRow, comparison: ReferenceAnswer | None) -> str:
    """The reference's figure; a star marks a figure that is only shown. ``5.131 of 5.505`` if the case's figure by the
    reference's rule, of which the ratio is made, is so far from the row's that the row's would give another ratio."""
    if comparison is None or comparison.reference_samples_per_s is None:
        return "-"
    text = f"{number(comparison.reference_samples_per_s)}{'' if comparison.sets_status else '*'}"
    measured = comparison.measured_samples_per_s
    shown = (row.samples_per_s or math.nan) / comparison.reference_samples_per_s
    if measured is None or f"{shown:.3f}" == _ratio(comparison):
        return text
    return f"{number(measured)} of {text}"


def _ratio(comparison: ReferenceAnswer | None) -> str:
    if comparison is None or comparison.reference_samples_per_s is None or comparison.ratio is None:
        return "-"
    return f"{comparison.ratio:.3f}"


def _notes(row: CaseRow) -> list[str]:
    notes = [*row.warnings, *([note] if (note := reader_note(row)) else [])]
    for each in row.published:
        if not each.sets_status and each.reference_samples_per_s is not None:
            ratio = "" if each.ratio is None else f", ratio {each.ratio:.3f}"
            notes.append(f"* shown only: {number(each.reference_samples_per_s)} by {each.rule} ({each.label}{ratio})")
    if row.set_aside and row.samples_per_s is not None:
        notes.append(f"{len(row.set_aside)} of {_all_runs(row)} runs set aside (-v lists them)")
    if row.resumed:
        notes.append(f"{row.resumed} of {_all_runs(row)} runs taken from the resumed session")
    return notes


def _all_runs(row: CaseRow) -> int:
    """The number of all runs of both builds, usable or not."""
    return max(len(row.run_folders), row.runs)


def _not_run(rows: Sequence[CaseRow]) -> list[str]:
    """Cases that were not run, grouped by reason."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.status == Status.NOT_RUN.value:
            groups.setdefault(printable(row.reason), []).append(row.case_id)
    lines = []
    for reason, case_ids in groups.items():
        which = printable(case_ids[0]) if len(case_ids) == 1 else f"{len(case_ids)} cases"
        lines.append(f"not run: {which}: {reason}")
    return lines


def _columns(rows: Sequence[CaseRow]) -> tuple[tuple[Column[CaseRow], ...], tuple[str, str, str]]:
    """The columns of the session's table, without the reason, and the rules of the measured rate, of the published and
    of the recorded figure; a rule is empty if not all figures of its column have it."""
    unit = rate_unit(*(row.case_id for row in rows))
    measured, of_measured = _ruled(rows, f"{unit} ± spread", _measured, measured_rule)
    published, of_published = _ruled(
        rows, "published", lambda row: _reference(row, shown_published(row)), published_rule
    )
    recorded, of_recorded = _ruled(rows, "recorded", lambda row: _reference(row, row.recorded), recorded_rule)
    columns: tuple[Column[CaseRow], ...] = (
        Column("case", _case),
        measured,
        Column("data", share_cell, Align.RIGHT),
        published,
        Column("ratio", lambda row: _ratio(shown_published(row)), Align.RIGHT),
        recorded,
        Column("ratio", lambda row: _ratio(row.recorded), Align.RIGHT),
        Column("status", lambda row: row.status),
    )
    return columns, (of_measured, of_published, of_recorded)


def _ruled(
    rows: Sequence[CaseRow], heading: str, cell: Callable[[CaseRow], str], rule: Callable[[CaseRow], str]
) -> tuple[Column[CaseRow], str]:
    """A column of figures and their rule. If there are several rules, each stands in its cell."""
    if common := common_rule(rows, rule):
        return Column(heading, cell, Align.RIGHT), common
    return Column(heading, lambda row: f"{cell(row)} {rule(row)}".rstrip(), Align.RIGHT), ""


def hanging(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """``text`` in lines of at most ``width``; the first line begins with ``first``, the others with ``rest``. Words are
    not broken."""
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )


def format_proposals(proposals: Iterable[Proposal]) -> str:
    """The table of a session's proposals for the recorded baselines (in samples/s), and a line that counts them."""
    proposals = tuple(proposals)
    if not proposals:
        return "Baselines: nothing proposed, no case was measured"
    grid = Table.of(_PROPOSAL_COLUMNS, proposals).grid()
    kinds = Counter(proposal.kind for proposal in proposals)
    counts = ", ".join(f"{kinds[kind]} {kind.value}" for kind in ProposalKind if kinds[kind])
    return "\n".join([grid.heading, *grid.lines, f"Baselines: {counts}"])


_PROPOSAL_COLUMNS: tuple[Column[Proposal], ...] = (
    Column("case", lambda proposal: proposal.case_id),
    Column("old", lambda proposal: figure_text(proposal.old), Align.RIGHT),
    Column(f"new {UNIT}", lambda proposal: figure_text(proposal.new), gap=" → "),
    Column("change %", lambda each: "" if each.change is None else f"{each.change * 100:+.2f}", Align.RIGHT),
    Column("what", lambda proposal: proposal.kind.value),
    Column("reason", lambda proposal: printable(proposal.reason)),
)


def night_lines(night: NightVerdict, width: int) -> list[str]:
    """The verdict on the night, such as ``the night: PASS (12 cases)``, and its reason below."""
    text = night.status.value if not night.suspect else f"{night.status.value}, suspect: the {night.suspect}"
    wrapped = _wrapped(reason_text(night.reason), width - len(_REASON_INDENT))
    return [f"the night: {text} ({counted(night.cases, 'case')})", *(_REASON_INDENT + line for line in wrapped)]
