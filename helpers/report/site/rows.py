"""The rows of nights; a site has two for each night of the history.

They are made here, since a template takes ten times as long. Each text from outside goes through ``text``, which
escapes it; everything else is a number or a name that the suite gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from markupsafe import Markup, escape

from helpers.drawing.axes import shortened
from helpers.history.listing import BuildKey, CaseKey, ListedNight, SessionKey, build_of
from helpers.judging.statistics import number
from helpers.report.html.page import FOLDED_AFTER
from helpers.report.nights import NightLine
from helpers.report.sentences import badness
from helpers.report.site import names, rendering
from helpers.report.site.lines import unit_of

_LONGEST_REASON = 20_000
_LONGEST_NOTE = 160
_NOTES = 3
# On the page of a session, where a night has more room.
_LONGEST_OWN_NOTE, _OWN_NOTES = 1000, 10
_ACKNOWLEDGED = " <small>acknowledged</small>"


@lru_cache(maxsize=2**14)
def text(value: str, most: int) -> str:
    """Foreign text on one line, of at most so many characters, escaped."""
    return str(escape(shortened(value, most)))


def of_case(key: CaseKey, night: ListedNight, line: NightLine) -> Markup:
    """A night on a page of its case."""
    session = f"../{names.row_in_session(night.session, key)}"
    build = _build_link(build_of(night.night.record), line.build)
    notes = "; ".join(text(note, _LONGEST_NOTE) for note in line.notes[:_NOTES])
    if len(line.notes) > _NOTES:
        notes += f"; and {len(line.notes) - _NOTES} more"
    kind = ' class="excluded-night"' if line.excluded else ""
    return Markup(
        f'<tr{kind}><td><a href="{session}">{text(line.date, 10)}</a>'
        f"<td>{text(line.session, 40)}<td>{build}<td>{_rate(line.samples_per_s)}<td>{_interval(line)}<td>{line.runs}"
        f"<td>{_percent(line.effect)}<td>{_status(line)}<td>{notes}\n"
    )


def of_session(night: ListedNight, line: NightLine) -> Markup:
    """A case on the page of the session that judged it."""
    key = night.case
    notes = [text(each, _LONGEST_OWN_NOTE) for each in line.notes[:_OWN_NOTES]]
    reason = "; ".join([_folded(line.reason), *notes])
    known = _ACKNOWLEDGED if line.acknowledged else ""
    return Markup(
        f'<tr id="{names.anchor(key)}" data-status="{text(line.status, 40)}">'
        f'<td data-v="{badness(line.status)}">{_status(line)}{known}'
        f'<td><a href="../{names.case_page(key)}.html">{text(key.case_id, 160)}</a>'
        f" <small>{text(key.target, 40)}</small>"
        f'<td class="n" data-l="{unit_of([key.case_id])}" data-v="{_value(line.samples_per_s)}">'
        f'{_rate(line.samples_per_s)}<td class="n" data-l="95%">{_interval(line)}'
        f'<td class="n" data-l="runs" data-v="{line.runs}">{line.runs}'
        f'<td class="n" data-l="change" data-v="{_value(line.effect)}">{_percent(line.effect)}'
        f'<td class="name">{_build_link(build_of(night.night.record), line.build)}<td>{reason}\n'
    )


def of_build(page: str, record: Mapping[str, Any]) -> Markup:
    """A case on the page of a build, by its newest night in the build's record."""
    host, words = record["host"], record["status"]
    case = CaseKey(record["case_id"], record["target"], host)
    session = f"../{names.row_in_session(SessionKey(record['session'], host), case)}"
    known = _ACKNOWLEDGED if record["acknowledged"] else ""
    kind, known = (' class="excluded-night"', f"{known} (excluded)") if record["excluded"] else ("", known)
    return Markup(
        f'<tr{kind} data-status="{text(words, 40)}"><td data-v="{badness(words)}">{_badge(words)}{known}'
        f'<td><a href="../{page}.html">{text(case.case_id, 160)}</a> <small>{text(case.target, 40)}</small>'
        f'<td class="name">{_machine_link(host)}'
        f'<td class="n" data-l="{unit_of([case.case_id])}" data-v="{_value(record["images_per_s"])}">'
        f"{_rate(record['images_per_s'])}"
        f'<td class="n" data-l="change" data-v="{_value(record["effect"])}">{_percent(record["effect"])}'
        f'<td class="day"><a href="{session}">{text(record["created"][:10], 10)}</a>\n'
    )


@lru_cache(maxsize=2**12)
def _machine_link(host: str) -> str:
    return f'<a href="../{names.machine_page(host)}.html">{text(host, 60) or "?"}</a>'


@lru_cache(maxsize=64)
def _badge(status: str) -> str:
    return rendering.row("badge", status)


def _status(line: NightLine) -> str:
    return f"{_badge(line.status)} (excluded)" if line.excluded else _badge(line.status)


@lru_cache(maxsize=2**12)
def _build_link(key: BuildKey, words: str) -> str:
    return f'<a href="../{names.build_page(key)}.html">{text(words, 40)}</a>'


def _rate(samples_per_s: float | None) -> str:
    return "-" if samples_per_s is None else number(samples_per_s)


def _interval(line: NightLine) -> str:
    return "" if line.low is None or line.high is None else f"{number(line.low)}–{number(line.high)}"


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:+.2%}"


def _value(number_of: float | None) -> str:
    return "" if number_of is None else str(number_of)


@lru_cache(maxsize=2**12)
def _folded(value: str) -> str:
    """A text, folded if it is long, and cut only at a length that no normal text has."""
    shown = shortened(value, _LONGEST_REASON)
    if len(shown) <= FOLDED_AFTER:
        return str(escape(shown))
    return str(
        Markup('<details class="long"><summary>{}…</summary><span>{}</span></details>').format(
            shown[:FOLDED_AFTER], shown
        )
    )
