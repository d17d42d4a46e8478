"""A session as one HTML file. It needs no other file, and all text from outside is escaped.

The templates escape what they are given (Jinja's autoescape), and whatever is not printable is written as an escape
before that. A content security policy in the page names its one style and its one script by their digests, and allows
nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from helpers.common.words import counted
from helpers.drawing.axes import shortened
from helpers.drawing.axes import style as drawing_style
from helpers.judging.case.evidence import CaseKey
from helpers.judging.case.verdict import Status
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.report.html.case_view import case_view
from helpers.report.html.comparison_drawings import draw_efficiency, draw_ratios
from helpers.report.html.marks import badge_shape, definitions, markup, name_of, picture
from helpers.report.reasons import reason_text
from helpers.report.row import CaseRow, share_cell
from helpers.report.scaling import AGAINST
from helpers.report.sentences import (
    NO_RESULT,
    badness,
    doubts_of,
    gate_rules,
    headline,
    in_short,
    lost_cases,
    needs_someone,
    pairs_in_short,
    urgent,
)
from helpers.report.shown_figures import common_rule, measured_rule, published_rule, recorded_rule, shown_published
from helpers.report.side_by_side import frameworks_table
from helpers.report.table import Align
from helpers.report.text import summary_line
from helpers.session.case_details import RUN_SECTION, CaseDetails, environment_of
from helpers.session.night import EnvironmentChange
from helpers.session.outcome import CaseOutcome
from helpers.trainers.contract.errors import printable

if TYPE_CHECKING:
    from helpers.report.results import SessionReport

_TEMPLATES = Path(__file__).parent / "templates"
_PAGE, _STYLE, _SCRIPT = "night.html", "style.css", "page.js"
# A longer text is folded after so many characters.
FOLDED_AFTER = 300


def night_page(report: SessionReport) -> str:
    """The page of a session. ``report.details`` is called for each case with an outcome."""
    style, script = page_style(), page_script()
    return (
        environment()
        .get_template(_PAGE)
        .render(
            page=page_of(report),
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
            definitions=markup(definitions()),
        )
    )


def page_style() -> str:
    """The stylesheet of every page."""
    return drawing_style() + source(_STYLE)


def page_script() -> str:
    """The script of every page: it sorts and filters tables, and shows a night's values. A page is read without it."""
    return source(_SCRIPT)


def source(name: str) -> str:
    """A file of the templates as it is."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]


def page_of(report: SessionReport) -> dict[str, Any]:
    """What the page's template is given."""
    rows = list(report.rows)
    outcomes = {(each.target, each.case.id): each for each in report.outcomes}
    machine = _machine_tables(report.outcomes)
    rules = gate_rules(report)
    cases = tuple(
        _view(place, row, outcomes.get((row.target, row.case_id)), report, machine, rules)
        for place, row in enumerate(rows, 1)
    )
    view_of = {(each["row"].target, each["row"].case_id): each for each in cases}
    words, tone = headline(rows, report.gate, report.exit_code, report.frameworks, report.not_reached, report.busy)
    counts = Counter(row.status for row in rows)
    frameworks, notes = frameworks_table(report.frameworks)
    return {
        "title": f"{words} · {report.machine['host']} · {report.session}",
        "headline": words,
        # ``pass``, ``warn`` or ``fail``.
        "tone": tone,
        "short": list(in_short(report)),
        "about": list(_about(report)),
        "command": shlex.join(report.command),
        "counted": summary_line(rows) if rows else "",
        "unit": rate_unit(*(row.case_id for row in rows)),
        # The rule of a column's figures, if it is the same in all cases.
        "rules": {
            "tonight": common_rule(rows, measured_rule),
            "recorded": common_rule(rows, recorded_rule),
            "published": common_rule(rows, published_rule),
        },
        "cases": cases,
        # The worst first.
        "urgent": [view_of[row.target, row.case_id] for row in urgent(rows, report.gate)],
        "busy": report.busy,
        # Nobody answers for a case that the session did not begin.
        "lost": () if report.busy else lost_cases(rows, report.gate),
        "statuses": {status.value: counts[status.value] for status in Status if counts[status.value]},
        "night": None if report.night is None else (report.night.status.value, reason_text(report.night.reason)),
        "changes": _common_changes(cases),
        "not_reached": report.not_reached,
        "scaling": [(each, picture(draw_efficiency, each)) for each in report.scaling],
        "frameworks": frameworks if report.frameworks else None,
        "framework_notes": notes,
        "ratios": picture(draw_ratios, report.frameworks),
        # The tables of the machine that are the same for all cases, by section.
        "machine": machine,
    }


def _view(
    place: int,
    row: CaseRow,
    outcome: CaseOutcome | None,
    report: SessionReport,
    machine: Mapping[str, Any],
    rules: Mapping[CaseKey, str],
) -> dict[str, Any]:
    details, key = report.details(outcome) if outcome is not None else CaseDetails(), (row.target, row.case_id)
    return case_view(place, row, outcome, details, report.explanations.get(key), machine, rules.get(key, ""))


def _common_changes(cases: Sequence[Mapping[str, Any]]) -> tuple[EnvironmentChange, ...]:
    """What is new in the environment of more than half of the cases that were compared with the night before."""
    compared = [each for each in cases if each["compared_with"]]
    counts = Counter(change for case in compared for change in case["changes"])
    return tuple(change for change, count in counts.items() if 2 * count > len(compared))


def _about(report: SessionReport) -> Iterator[tuple[str, str]]:
    if report.gate is not None:
        yield "verdict", report.gate.line
    yield "machine", f"{report.machine['host']}: {report.machine['found']}"
    yield "session", report.session
    for line in report.header():
        name, colon, value = line.partition(": ")
        if colon and name in ("build", "baselines", "history"):
            yield name, value
    yield "exit code", str(report.exit_code)


def _machine_tables(outcomes: Sequence[CaseOutcome]) -> dict[str, dict[str, str]]:
    """The tables of the first run that has any, without that run's own section."""
    found = (environment_of(run) for outcome in outcomes for run in outcome.runs if run.system)
    tables = next(found, {})
    return {section: table for section, table in tables.items() if section != RUN_SECTION}


@cache
def environment() -> Environment:
    """The templates, in which every text is escaped."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=number,
        shape=badge_shape,
        status_class=name_of,
        badness=badness,
        needs_someone=needs_someone,
        doubts=doubts_of,
        cut=shortened,
        counted=counted,
    )
    made.globals.update(
        folded_after=FOLDED_AFTER,
        share_cell=share_cell,
        no_result=NO_RESULT,
        against=AGAINST,
        published_of=shown_published,
        pairs_in_short=pairs_in_short,
        right=Align.RIGHT,
    )
    return made


def _shown(value: object) -> object:
    """Foreign text on one line, with what is not printable as an escape. Markup is this package's own."""
    return printable(value) if type(value) is str else value


def _policy(style: str, script: str) -> str:
    """The content security policy: this style, this script, and nothing that is elsewhere."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
