"""Writes the site of a history: pages by templates, the feed, badges, stylesheet and script, every file anew, each
whole, and only into a folder that is the site's alone.

A content security policy in each page allows only the site's own files, and all links are relative.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import svg
from jinja2 import Environment
from markupsafe import Markup

from helpers.common.files import of_everybody, write_whole
from helpers.common.words import counted
from helpers.drawing.axes import shortened, words
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.report.html.case_view import Fact
from helpers.report.html.marks import definitions, markup, picture
from helpers.report.html.night_drawings import LevelLine, draw_nights, draw_small
from helpers.report.html.page import environment, page_script, page_style, source
from helpers.report.nights import slope_text
from helpers.report.site.content import (
    Site,
    SiteCase,
    SiteNight,
    SiteSession,
    counts_of,
    site_of,
)
from helpers.trainers.contract.errors import ConfigError

if TYPE_CHECKING:
    from helpers.history.history import History

_GENERATOR = "perfgate publish"
_POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
_FEED = uuid.UUID("3f1de7a2-6f0f-4c5c-8f0b-9c1d7a6f2c55")
_SMALL_NIGHTS, _DRAWN_NIGHTS, _LISTED_NIGHTS = 30, 120, 500
_SESSIONS, _ENTRIES = 100, 50
# A folder that has this file is a site's.
OWN_FILE = "perfgate-site.txt"
FOLDERS = ("badges", "cases", "nights")


@dataclass(frozen=True)
class Look:
    """The user's choices for a site."""

    title: str
    # The address of the site, for the feed; empty if it is not known.
    url: str


@dataclass(frozen=True)
class Published:
    """How many nights the site shows, how many files it has, and how many of an earlier one were removed."""

    nights: int
    files: int
    removed: int


def publish(history: History, folder: Path, look: Look, say: Callable[[str], None]) -> Published:
    """Write the site of the history into ``folder``. Raises ConfigError, HistoryError and OSError."""
    folder.mkdir(mode=0o775, parents=True, exist_ok=True)
    if note := of_everybody(folder):
        say(f"note: {note}")
    site = site_of(history)
    files = files_of(site, history, look)
    return Published(len(site.sessions), len(files), _write(folder, files))


def _write(folder: Path, files: Mapping[str, str]) -> int:
    """Write all files, and remove those of an earlier site. Returns how many were removed."""
    links = [name for name in FOLDERS if (folder / name).is_symlink()]
    if links or (any(folder.iterdir()) and not (folder / OWN_FILE).is_file()):
        raise ConfigError(
            "perfgate publish",
            field="FOLDER",
            got=f"{folder}, which has {f'the link {links[0]}' if links else 'files of others'}",
            expected="a folder for the site alone",
            remedy="Name an empty or a new folder",
        )
    write_whole(folder / OWN_FILE, b"perfgate publish writes this folder anew each time.\n")
    for name in FOLDERS:
        (folder / name).mkdir(mode=0o775, exist_ok=True)
    for path, text in files.items():
        write_whole(folder / path, text.encode("utf-8", "backslashreplace"))
    gone = [path for name in FOLDERS for path in (folder / name).iterdir() if f"{name}/{path.name}" not in files]
    for each in gone:
        each.unlink()
    return len(gone)


def files_of(site: Site, history: History, look: Look) -> dict[str, str]:
    """The text of every file, by its path in the site's folder."""
    headline, tone = site.headline()
    files = {
        "index.html": _index(site, look),
        "feed.xml": _feed(site, look),
        "style.css": f"{page_style()}{source('site/site.css')}",
        "script.js": page_script(),
        "badges/all.svg": badge(look.title, headline, tone),
    }
    for case in site.cases:
        files[f"{case.page}.html"] = _case(case, history, look)
        effect = case.newest.line.effect
        text = case.status if effect is None else f"{case.status} {effect:+.1%}"
        files[case.badge] = badge(case.newest.case_id, text, case.tone)
    files |= {f"{each.worst.session_page}.html": _session(each, look) for each in site.sessions}
    return files


@cache
def _templates() -> Environment:
    made = environment().overlay()
    made.filters["rate"] = lambda value: "-" if value is None else number(value)
    made.filters["percent"] = lambda value: "-" if value is None else f"{value:+.2%}"
    return made


def _page(look: Look, path: str, template: str, *, title: str, tone: str, **values: Any) -> str:
    """The page at ``path`` (without its ending)."""
    made = _templates().get_template(f"site/{template}.html")
    return made.render(
        policy=_POLICY,
        marker=_GENERATOR,
        definitions=_definitions(),
        root="../" if "/" in path else "",
        site_title=look.title,
        page_title=f"{title} · {look.title}",
        tone=tone,
        **values,
    )


@cache
def _definitions() -> Markup:
    return markup(definitions())


def _index(site: Site, look: Look) -> str:
    headline, tone = site.headline()
    return _page(
        look,
        "index",
        "index",
        title=headline,
        tone=tone,
        headline=headline,
        extent=site.extent(),
        statuses=counts_of(each.status for each in site.cases),
        unit=rate_unit(*dict.fromkeys(each.newest.case_id for each in site.cases)),
        cases=[(each, _small(each)) for each in site.cases],
        sessions=site.sessions[:_SESSIONS],
        sessions_left_out=max(0, len(site.sessions) - _SESSIONS),
    )


def _small(case: SiteCase) -> Markup | None:
    return picture(draw_small, case.newest.case_id, [each.line for each in case.nights[-_SMALL_NIGHTS:]], _levels(case))


def _levels(case: SiteCase) -> tuple[LevelLine, ...]:
    """The reference build's newest level; empty if the nights have none."""
    for each in reversed(case.nights):
        if (rate := each.line.good_samples_per_s) is not None:
            return (LevelLine("good", "reference build", f"the reference build's runs, {each.line.date}", rate),)
    return ()


def _case(case: SiteCase, history: History, look: Look) -> str:
    levels, drawn = _levels(case), case.nights[-_DRAWN_NIGHTS:]
    return _page(
        look,
        case.page,
        "case",
        title=f"{case.newest.case_id} {case.newest.target}",
        tone=case.tone,
        case=case,
        facts=_facts(case, history),
        drawn=len(drawn),
        picture=picture(draw_nights, case.newest.case_id, [each.line for each in drawn], levels),
        levels=levels,
        statuses=list(counts_of(each.line.status for each in drawn)),
        nights=case.nights[: -_LISTED_NIGHTS - 1 : -1],
        left_out=max(0, len(case.nights) - _LISTED_NIGHTS),
        command=f"perfgate history {case.newest.case_id} --target {case.newest.target}",
    )


def _facts(case: SiteCase, history: History) -> list[Fact]:
    line = case.newest.line
    facts = []
    if line.samples_per_s is not None:
        interval = "" if line.low is None or line.high is None else f"95% {number(line.low)} to {number(line.high)}, "
        facts.append(Fact("newest night", f"{number(line.samples_per_s)} {case.newest.unit}", f"{interval}{line.date}"))
    if line.effect is not None:
        facts.append(Fact("change", f"{line.effect:+.2%}", "against its reference that night"))
    if case.smallest_drop is not None:
        drop, date = case.smallest_drop
        facts.append(Fact("smallest drop", f"{drop:.2%}", f"the night of {date} would have found it with 80% power"))
    if text := slope_text([each.line for each in case.nights]):
        facts.append(Fact("slope", *text))
    measured = history.calibration(case.newest.case_id, case.newest.target, case.newest.night.record.segment)
    if measured is not None:
        text_of = f"{counted(measured.runs, 'run')} on {measured.created[:10]}: what a night would find with 80% power"
        facts.append(Fact("smallest drop by calibration", f"{measured.smallest_drop:.2%}", text_of))
    return facts


def _session(session: SiteSession, look: Look) -> str:
    return _page(
        look,
        session.worst.session_page,
        "session",
        title=f"{session.worst.line.session}, {session.began}",
        tone=session.tone,
        session=session,
        unit=rate_unit(*dict.fromkeys(each.case_id for each in session.nights)),
        excluded=sum(each.line.excluded for each in session.nights),
    )


def _feed(site: Site, look: Look) -> str:
    """The beginnings of regressions in Atom, the newest first."""
    found = sorted(
        (each for case in site.cases for each in case.regressions()),
        key=lambda each: (each.line.created, each.line.uuid),
        reverse=True,
    )
    created = sorted(each.line.created for case in site.cases for each in case.nights)
    first = next(iter(sorted((each.line.created, each.line.uuid) for case in site.cases for each in case.nights)), None)
    newest = found[0].line.created if found else created[-1] if created else "1970-01-01T00:00:00+00:00"
    return (
        _templates()
        .get_template("site/feed.xml")
        .render(
            marker=_GENERATOR,
            base=f"{look.url.rstrip('/')}/" if look.url else "",
            # The first night makes it unique, and stays.
            feed_id=str(uuid.uuid5(_FEED, first[1] if first else "")),
            site_title=look.title,
            updated=newest,
            entries=[_entry(each) for each in found[:_ENTRIES]],
        )
    )


def _entry(night: SiteNight) -> dict[str, str]:
    line = night.line
    change = "" if line.effect is None else f" {line.effect:+.2%}"
    return {
        "urn": str(uuid.uuid5(_FEED, line.uuid)),
        "title": f"{line.status}{change}: {night.case_id} [{night.target}] on {night.host or '?'}",
        "summary": f"build {night.build or '?'}: {line.reason}",
        "status": line.status,
        "created": line.created,
        "page": night.case_page,
    }


# ---- badges

_HEIGHT, _LETTER, _ROOM = 20, 6.6, 7
_BADGE_COLOURS = {"fail": "#b3261e", "warn": "#7d5a00", "pass": "#1a7340"}


def badge(name: str, status: str, tone: str) -> str:
    """A small picture with a name and a status, for a README or a dashboard."""
    left, right = shortened(name, 70), shortened(status, 90)
    first, second = (round(len(text) * _LETTER + 2 * _ROOM) for text in (left, right))
    width = first + second
    elements: list[svg.Element] = [
        svg.Title(text=words(f"{left}: {right}")),
        svg.Rect(width=first, height=_HEIGHT, fill="#3b444d"),
        svg.Rect(x=first, width=second, height=_HEIGHT, fill=_BADGE_COLOURS[tone]),
        *_badge_text(left, first / 2, first - 2 * _ROOM),
        *_badge_text(right, first + second / 2, second - 2 * _ROOM),
    ]
    picture = svg.SVG(
        width=width,
        height=_HEIGHT,
        viewBox=svg.ViewBoxSpec(0, 0, width, _HEIGHT),
        extra={"role": "img", "aria-label": words(f"{left}: {right}")},
        elements=elements,
    )
    return f"{picture}\n"


def _badge_text(text: str, middle: float, length: float) -> Iterator[svg.Element]:
    """A text of fixed width, whatever font the browser uses."""
    yield svg.Text(
        text=words(text),
        x=middle,
        y=14,
        fill="#fff",
        font_family="Verdana, DejaVu Sans, sans-serif",
        font_size=11,
        text_anchor="middle",
        textLength=round(length, 1),
    )
