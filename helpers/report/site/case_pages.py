"""The pages of a case: one page for its newest nights, and pages for its older nights, which do not change any more.

A page of older nights has GROUP nights. The case's own page has the rest, between GROUP and 2 * GROUP nights. So a new
night changes one page of a case, and once in GROUP nights a second page is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from markupsafe import Markup

from helpers.history.listing import CaseKey, ListedNight
from helpers.judging.statistics import number
from helpers.judging.wording import counted
from helpers.report.html.case_view import Fact
from helpers.report.html.marks import markup
from helpers.report.html.night_drawings import draw_nights
from helpers.report.nights import NightLine
from helpers.report.site import names, rendering, rows
from helpers.report.site.folder import Item
from helpers.report.site.lines import (
    case_item,
    case_record,
    counts_of,
    json_page,
    levels_of,
    lines_of,
    regressions_of,
    unit_of,
    without_picture,
)
from helpers.report.site.site import Site
from helpers.report.site.tones import tone_of_case

GROUP = 60
_Shown = Sequence[tuple[ListedNight, NightLine]]
_KEPT_ENTRIES = 1000
# How many nights before those of a page are looked at for the last one that is not excluded.
_BEFORE = 10


def make_case(site: Site, key: CaseKey, since: str) -> None:
    """Make the pages of the case's nights that were created at ``since`` or later."""
    count = site.counts[key]
    newest_from = max(0, count // GROUP - 1) * GROUP
    first = _first_to_make(site, key, newest_from, since)
    before = min(first, _BEFORE)
    places, found = site.history.newest_nights(site.known, key, count - first + before)
    nights = {each.row: each for each in found}
    for begin in range(first, newest_from, GROUP):
        at = begin - first + before
        shown = _shown(site, key, places[max(0, at - _BEFORE) : at], places[at : at + GROUP], nights)
        _put_older(site, key, begin // GROUP + 1, newest_from // GROUP, shown)
    site.forget_pages(partial(names.older_page, key), newest_from // GROUP)
    at = newest_from - first + before
    shown = _shown(site, key, places[max(0, at - _BEFORE) : at], places[at:], nights)
    if shown:
        page = names.case_page(key)
        began = site.state.cases[page]["first"] if first else next(iter(nights.values())).night.record.created
        item = case_item(key, count, began, [night for night, _ in shown], [line for _, line in shown])
        site.state.cases[page] = item
        site.made_cases.add(page)
        _put_case(site, key, item, shown, newest_from // GROUP)
    site.touched_machines.add(key.host)


def _first_to_make(site: Site, key: CaseKey, newest_from: int, since: str) -> int:
    """The number of the first night on the first page to be made."""
    place = site.history.count_before(site.known, key, since) if since else 0
    first = min(place // GROUP * GROUP, newest_from)
    missing = False
    while first and f"{names.older_page(key, first // GROUP)}.html" not in site.folder.files:
        first, missing = first - GROUP, True
    # The page before a new page gets a link to it.
    return max(0, first - GROUP) if missing else first


def _shown(
    site: Site, key: CaseKey, rows_before: Sequence[int], rows: Sequence[int], nights: Mapping[int, ListedNight]
) -> _Shown:
    """The nights of a page with their lines. Of the nights before them the last one is needed, since the segments of
    the two are compared, and the last one that counts, since a regression begins where the status changes.

    An excluded night that cannot be read is left out.
    """
    before = [nights[row] for row in rows_before if row in nights]
    there = [nights[row] for row in rows if row in nights]
    starts = site.starts_of(key)
    lines = lines_of([*before[-1:], *there], site.acknowledged(key.case_id), starts)[len(before[-1:]) :]
    counting = [line.status for line in lines_of(before) if not line.excluded]
    _keep_regressions(site, regressions_of(key, there, lines, counting[-1] if counting else ""), lines)
    return list(zip(there, lines, strict=True))


def _keep_regressions(site: Site, found: Sequence[Item], lines: Sequence[NightLine]) -> None:
    kept = site.state.regressions
    uuids = {line.uuid for line in lines}
    for uuid in [uuid for uuid in kept if uuid in uuids]:
        del kept[uuid]
    kept.update({each["uuid"]: each for each in found})
    if len(kept) > 2 * _KEPT_ENTRIES:
        newest = sorted(kept.values(), key=lambda each: (each["created"], each["uuid"]))[-_KEPT_ENTRIES:]
        site.state.regressions = {each["uuid"]: each for each in newest}


def _put_older(site: Site, key: CaseKey, number_of_page: int, last: int, group: _Shown) -> None:
    if not group:
        return
    page = names.older_page(key, number_of_page)
    name = names.case_page(key).rpartition("/")[2]
    html = rendering.page(
        site.look,
        page,
        "older",
        title=f"{key.case_id} {key.target}, older nights",
        key=key,
        unit=unit_of([key.case_id]),
        night_rows=_rows(key, group),
        first=group[0][1].created,
        last=group[-1][1].created,
        before=f"{name}.{number_of_page - 1}.html" if number_of_page > 1 else "",
        after=f"{name}.{number_of_page + 1}.html" if number_of_page < last else f"{name}.html",
        newest=f"{name}.html",
    )
    site.put(page, html, json_page("nights of a case", case_record(key, [line for _, line in group])))


def _put_case(site: Site, key: CaseKey, item: Item, newest: _Shown, older: int) -> None:
    page, lines = item["page"], [line for _, line in newest]
    levels = levels_of(lines)
    name = page.rpartition("/")[2]
    elsewhere = [other for other in site.known.cases if other.case_id == key.case_id and other != key]
    html = rendering.page(
        site.look,
        page,
        "case",
        title=f"{key.case_id} {key.target}",
        tone=tone_of_case(item),
        item=item,
        facts=_facts(site, key, item, newest[-1][0]),
        night_rows=_rows(key, newest),
        shown=len(newest),
        picture=markup(draw_nights(key.case_id, lines, levels)),
        levels=levels,
        shown_statuses=list(counts_of(line.status for line in lines)),
        unit=unit_of([key.case_id]),
        elsewhere=[{"page": names.case_page(each), "host": each.host, "target": each.target} for each in elsewhere],
        older=[(f"{name}.{at}.html", f"{(at - 1) * GROUP + 1} to {at * GROUP}") for at in range(1, older + 1)],
        badge=f"../{names.badge_of(page)}.svg",
        badge_path=f"{names.badge_of(page)}.svg",
        command=f"perfgate history {key.case_id} --target {key.target}",
    )
    older_pages = [f"{name}.{at}.json" for at in range(1, older + 1)]
    record = {**case_record(key, lines), "summary": without_picture(item), "older": older_pages}
    site.put(page, html, json_page("case", record))
    words = item["status"] if item["effect"] is None else f"{item['status']} {item['effect']:+.1%}"
    site.folder.put(f"{names.badge_of(page)}.svg", rendering.badge(key.case_id, words, tone_of_case(item)))


def _facts(site: Site, key: CaseKey, item: Item, newest: ListedNight) -> list[Fact]:
    unit = unit_of([key.case_id])
    facts = []
    if item["images_per_s"] is not None:
        interval = "" if item["low"] is None else f"95% {number(item['low'])} to {number(item['high'])}, "
        facts.append(Fact("newest night", f"{number(item['images_per_s'])} {unit}", f"{interval}{item['last'][:10]}"))
    if item["effect"] is not None:
        facts.append(Fact("change", f"{item['effect']:+.2%}", "against its reference that night"))
    if item["smallest_drop"] is not None:
        text = f"the night of {item['smallest_drop_of'][:10]} would have found it with 80% power"
        facts.append(Fact("smallest drop", f"{item['smallest_drop']:.2%}", text))
    measured = site.calibration_of(key, newest.night.record.segment)
    if measured is not None:
        text = f"{counted(measured.runs, 'run')} on {measured.created[:10]}: what a night would find with 80% power"
        facts.append(Fact("smallest drop by calibration", f"{measured.smallest_drop:.2%}", text))
    return facts


def _rows(key: CaseKey, shown: _Shown) -> Markup:
    """The rows, newest first."""
    return Markup("").join([rows.of_case(key, night, line) for night, line in reversed(shown)])
