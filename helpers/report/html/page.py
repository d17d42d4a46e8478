"""A session as one HTML file: nothing is fetched, and all text from outside stays text.

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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from helpers.judging.evidence import Build
from helpers.judging.statistics import number
from helpers.judging.verdict import Status
from helpers.report.frameworks import frameworks_tables
from helpers.report.html.case_view import CaseView, case_view
from helpers.report.html.marks import badge_shape, definitions, name_of
from helpers.report.html.sentences import headline
from helpers.report.nights import build_text
from helpers.report.row import CaseRow, share_cell
from helpers.report.scaling import ScalingTable, scaling_tables
from helpers.report.table import Align, Table
from helpers.report.text import shown_published, summary_line
from helpers.session.case_details import RUN_SECTION, CaseDetails, environment_of
from helpers.session.gate_verdict import GateCase
from helpers.session.outcome import CaseOutcome
from helpers.trainers.contract.errors import printable

if TYPE_CHECKING:
    from helpers.report.results import SessionReport

_TEMPLATES = Path(__file__).parent / "templates"
_PAGE, _STYLES, _SCRIPT = "night.html", ("drawing.css", "style.css"), "page.js"
# A longer text is folded after so many characters.
FOLDED_AFTER = 300


@dataclass(frozen=True)
class Page:
    """What the page's template is given."""

    title: str
    headline: str
    # ``pass``, ``warn`` or ``fail``.
    tone: str
    # Machine, build and time, for the first look.
    short: tuple[str, ...]
    about: tuple[tuple[str, str], ...]
    command: str
    counted: str
    cases: tuple[CaseView, ...]
    # Those that need someone, the worst first.
    urgent: tuple[CaseView, ...]
    # Cases of the gate of which nothing is known.
    lost: tuple[GateCase, ...]
    # The number of cases by status, the worst first.
    statuses: tuple[tuple[str, int], ...]
    night: tuple[str, str] | None
    not_reached: int
    scaling: tuple[ScalingTable, ...]
    frameworks: tuple[tuple[str, Table], ...]
    framework_notes: tuple[str, ...]
    # The tables of the machine that all cases share, by section.
    machine: Mapping[str, Mapping[str, str]]


def night_page(report: SessionReport) -> str:
    """The page of a session. ``report.details`` is asked for each case that it has an outcome of."""
    environment = _environment()
    style, script = "".join(map(_source, _STYLES)), _source(_SCRIPT)
    return environment.get_template(_PAGE).render(
        page=page_of(report),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        definitions=Markup(definitions().as_str()),
    )


def drawing_style() -> str:
    """The style of a drawing that stands in a file of its own."""
    return _source(_STYLES[0])


def _source(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def page_of(report: SessionReport) -> Page:
    """The page's content."""
    rows = list(report.rows)
    outcomes = {(each.target, each.case.id): each for each in report.outcomes}
    machine = _machine_tables(report.outcomes)
    cases = tuple(
        _view(place, row, outcomes.get((row.target, row.case_id)), report, machine) for place, row in enumerate(rows, 1)
    )
    words, tone = headline(rows, report.gate, report.exit_code)
    counts = Counter(row.status for row in rows)
    known = {(row.target, row.case_id) for row in rows}
    frameworks, notes = frameworks_tables(report.frameworks)
    return Page(
        title=f"{words} · {report.machine['host']} · {report.session}",
        headline=words,
        tone=tone,
        short=tuple(_short(report)),
        about=tuple(_about(report)),
        command=shlex.join(report.command),
        counted=summary_line(rows) if rows else "",
        cases=cases,
        urgent=tuple(sorted((each for each in cases if each.needs), key=lambda case: case.badness)),
        lost=tuple(each for each in (report.gate.failed if report.gate else ()) if each.key not in known),
        statuses=tuple((status.value, counts[status.value]) for status in Status if counts[status.value]),
        night=None if report.night is None else (report.night.status.value, report.night.reason.message),
        not_reached=report.not_reached,
        scaling=scaling_tables(report.scaling),
        frameworks=frameworks,
        framework_notes=notes,
        machine=machine,
    )


def _view(
    place: int, row: CaseRow, outcome: CaseOutcome | None, report: SessionReport, machine: Mapping[str, Any]
) -> CaseView:
    details = report.details(outcome) if outcome is not None else CaseDetails()
    return case_view(place, row, outcome, details, machine)


def _short(report: SessionReport) -> Iterator[str]:
    yield report.machine["host"]
    for outcome in report.outcomes:
        build = next((run.build for run in outcome.runs if run.role == Build.CANDIDATE.value and run.build), None)
        if build is not None:
            yield f"{build.get('framework', '')} {build_text(build)}"
            break
    if last := _last_run(report):
        yield last
    yield report.session


def _last_run(report: SessionReport) -> str:
    created = max((run.created for outcome in report.outcomes for run in outcome.runs), default="")
    return f"{created.replace('T', ' ')[:16]} UTC" if created else ""


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
    """The tables of the first run that has any."""
    found = (environment_of(run) for outcome in outcomes for run in outcome.runs if run.system)
    tables = next(found, {})
    return {section: table for section, table in tables.items() if section != RUN_SECTION}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, shape=_shape, status_class=name_of)
    environment.globals.update(
        folded_after=FOLDED_AFTER, share_cell=share_cell, published_of=shown_published, right=Align.RIGHT
    )
    return environment


def _shown(value: object) -> object:
    """Foreign text on one line, with what is not printable as an escape. Markup is this package's own."""
    return printable(value) if type(value) is str else value


def _shape(status: str) -> Markup:
    return Markup(badge_shape(status).as_str())


def _policy(style: str, script: str) -> str:
    """The content security policy: this style, this script, and nothing that is elsewhere."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
