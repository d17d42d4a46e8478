"""Makes the text of a site's pages: fills templates, and splits lists into parts so that no page is too large.

The stylesheet and the script are files beside the pages. A content security policy in each page allows only these
files, and all links are relative.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import svg
from jinja2 import Environment
from markupsafe import Markup

from helpers.drawing.axes import shortened, words
from helpers.report.html.marks import definitions, markup
from helpers.report.html.page import environment, page_script, page_style, source
from helpers.report.site import names
from helpers.report.site.folder import MARKER, Item
from helpers.report.site.lines import SITE_SCHEMA_VERSION
from helpers.report.site.tones import tone_of_case

_POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
# The most bytes of a list's rows on one page; the rest of a page is below 150 kB.
_MOST_ROWS_BYTES = 300_000
_FEED = uuid.UUID("3f1de7a2-6f0f-4c5c-8f0b-9c1d7a6f2c55")


@dataclass(frozen=True)
class Look:
    """The user's choices for a site."""

    title: str
    # The address of the site, for the feed; empty if it is not known.
    url: str


@cache
def _templates() -> Environment:
    made = environment().overlay()
    made.filters.update(markup=Markup, machine_page=names.machine_page, tone=tone_of_case)
    return made


def form_of(look: Look) -> str:
    """A digest of everything that determines how pages look."""
    templates = environment().list_templates(filter_func=lambda name: name.startswith(("site/", "parts")))
    chosen = f"{SITE_SCHEMA_VERSION} {look.title}\x00{look.url}"
    texts = [*map(source, templates), chosen]
    return hashlib.sha256("\x00".join(texts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def shared_files() -> dict[str, str]:
    """The files that all pages use."""
    style = f"{page_style()}{source('site/site.css')}"
    return {
        names.STYLE: f"/* {MARKER} */\n{style}",
        names.SCRIPT: f"// {MARKER}\n{page_script()}",
    }


def row(macro: str, *values: object) -> str:
    """A row of a list, made by its macro in ``site/rows.html``."""
    return str(getattr(_macros(), macro)(*values))


@cache
def _macros() -> Any:
    return _templates().get_template("site/rows.html").module


def page(
    look: Look, path: str, template: str, *, title: str, tone: str = "plain", json: bool = True, **values: Any
) -> str:
    """The page at ``path`` (without its ending)."""
    return (
        _templates()
        .get_template(f"site/{template}.html")
        .render(
            policy=_POLICY,
            marker=MARKER,
            definitions=_definitions(),
            root="../" if "/" in path else "",
            site_title=look.title,
            page_title=f"{title} · {look.title}",
            tone=tone,
            json=f"{path.rpartition('/')[2]}.json" if json else "",
            **values,
        )
    )


@cache
def _definitions() -> Markup:
    return markup(definitions())


def in_parts(rows: Sequence[str], beside: int) -> list[Markup]:
    """The rows of each part of a page; there is at least one part. The first part has ``beside`` bytes besides its
    rows."""
    parts: list[list[str]] = [[]]
    size = beside
    for each in rows:
        length = len(each.encode("utf-8", "backslashreplace"))
        if parts[-1] and size + length > _MOST_ROWS_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += length
    return [Markup("".join(part)) for part in parts]


def feed(look: Look, first: str, updated: str, entries: Iterable[Item]) -> str:
    """The feed in Atom; ``first`` is the history's first night, which makes the feed's id unique."""
    base = f"{look.url.rstrip('/')}/" if look.url else ""
    return (
        _templates()
        .get_template("site/feed.xml")
        .render(
            marker=MARKER,
            base=base,
            feed_id=str(uuid.uuid5(_FEED, first)),
            site_title=look.title,
            updated=updated,
            entries=[{**each, **_entry_words(each)} for each in entries],
        )
    )


def _entry_words(item: Item) -> dict[str, str]:
    change = "" if item["effect"] is None else f" {item['effect']:+.2%}"
    return {
        "urn": str(uuid.uuid5(_FEED, item["uuid"])),
        "title": f"{item['status']}{change}: {item['case_id']} [{item['target']}] on {item['host'] or '?'}",
        "summary": f"{'acknowledged; ' if item['acknowledged'] else ''}build {item['build'] or '?'}: {item['reason']}",
    }


# ---- badges

_HEIGHT, _LETTER, _ROOM = 20, 6.6, 7
_BADGE_COLOURS = {"fail": "#b3261e", "warn": "#7d5a00", "pass": "#1a7340", "plain": "#5a646e"}


def badge(name: str, status: str, tone: str) -> str:
    """A small picture with a name and a status, for a README or a dashboard."""
    left, right = shortened(name, 70), shortened(status, 40)
    first, second = (round(len(text) * _LETTER + 2 * _ROOM) for text in (left, right))
    width = first + second
    elements: list[svg.Element] = [
        svg.Title(text=words(f"{left}: {right}")),
        svg.Desc(text=MARKER),
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


def _badge_text(text: str, middle: float, length: float) -> list[svg.Element]:
    """A text of fixed width, whatever font the browser uses."""
    return [
        svg.Text(
            text=words(text),
            x=middle,
            y=14,
            fill="#fff",
            font_family="Verdana, DejaVu Sans, sans-serif",
            font_size=11,
            text_anchor="middle",
            textLength=round(length, 1),
        )
    ]
