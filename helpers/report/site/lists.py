"""The pages with lists: machines, all nights, all builds, and the first page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from helpers.report.sentences import badness
from helpers.report.site import names, rendering
from helpers.report.site.folder import Item
from helpers.report.site.lines import counts_of, is_fine, json_page, newest_first, unit_of, without_picture
from helpers.report.site.site import Site
from helpers.report.site.tones import (
    STALE_DAYS,
    badge_words,
    days_before,
    extent_of,
    headline,
    is_stale,
    tone_of_cases,
)

_LISTED = 100
_CARDS, _REMARKS, _SESSIONS, _BUILDS, _MACHINES = 24, 20, 20, 20, 50
_LATELY_DAYS = 7
_ENTRIES = 50


def make_lists(site: Site) -> None:
    """Make the pages of changed machines, and all lists."""
    state = site.state
    newest = max((item["last"] for item in state.cases.values()), default="")
    _make_machines(site)
    _make_list(site, "nights", names.NIGHTS, state.sessions.values())
    _make_list(site, "builds", names.BUILDS, state.builds.values())
    _make_index(site, newest)
    entries = sorted(state.regressions.values(), key=lambda each: (each["created"], each["uuid"]), reverse=True)
    updated = entries[0]["created"] if entries else newest or "1970-01-01T00:00:00+00:00"
    feed = rendering.feed(site.look, state.revision.first, updated, entries[:_ENTRIES])
    site.folder.put("feed.xml", feed)


def _make_machines(site: Site) -> None:
    hosts: dict[str, list[Item]] = {}
    for item in site.state.cases.values():
        hosts.setdefault(item["host"], []).append(item)
    for host in sorted(site.touched_machines & hosts.keys()):
        _make_machine(site, host, hosts[host])


def _make_machine(site: Site, host: str, cases: Sequence[Item]) -> None:
    page, newest = names.machine_page(host), max(each["last"] for each in cases)
    earlier = site.state.machines.get(page, {})
    facts = _facts_of_run(site, host) or earlier.get("facts", {})
    current, stale = _by_age(cases, newest)
    item = {
        "host": host,
        "page": page,
        "words": ", ".join(facts[name] for name in ("cards", "cpu_model", "os") if facts.get(name)),
        "facts": facts,
        "cases": len(cases),
        "statuses": counts_of(each["status"] for each in cases),
        "last": newest,
    }
    site.state.machines[page] = item
    ordered = sorted(cases, key=_by_badness)
    site.put_in_parts(
        partial(names.part, page),
        "machine",
        [rendering.row("case_row", each, "../", False, unit_of([each["case_id"]])) for each in ordered],
        title=host or "a machine without a name",
        tone=tone_of_cases(current),
        item=item,
        unit=unit_of([each["case_id"] for each in cases]),
        sessions=newest_first(each for each in site.state.sessions.values() if each["host"] == host)[:_SESSIONS],
        facts=facts,
        badge=f"../{names.badge_of(page)}.svg",
        badge_path=f"{names.badge_of(page)}.svg",
    )
    record = {**item, "cases": [without_picture(each) for each in ordered]}
    site.folder.put(f"{page}.json", json_page("machine", record))
    text, tone = badge_words(current, stale)
    site.folder.put(f"{names.badge_of(page)}.svg", rendering.badge(host or "?", text, tone))


def _facts_of_run(site: Site, host: str) -> dict[str, str]:
    """The environment of the newest run on a machine; empty if the history does not have it."""
    _, uuid = site.newest_run.get(host, ("", ""))
    found = site.history.results_of(uuids=[uuid]) if uuid else ()
    return {name: value for name, value in found[0].result.environment.items() if value} if found else {}


def _make_list(site: Site, kind: str, page: str, found: Iterable[Item]) -> None:
    """Make the pages that list all nights or builds, with ``_LISTED`` on each page; the newest page has up to twice as
    many."""
    items = newest_first(found)[::-1]
    newest_from = max(0, len(items) // _LISTED - 1) * _LISTED
    count = newest_from // _LISTED
    name = page.rpartition("/")[2]
    links = [f"{name}.html", *(f"{name}.{at}.html" for at in range(count, 0, -1))]
    edges = [*range(0, newest_from, _LISTED), newest_from]
    for at, begin in enumerate(edges, 1):
        group = items[begin : begin + _LISTED if at <= count else None][::-1]
        path = page if at > count else f"{page}.{at}"
        span = f"{group[-1]['first'][:10]} to {group[0]['first'][:10]}" if group else "none yet"
        html = rendering.page(
            site.look,
            path,
            "list",
            title=f"All {kind}",
            kind=kind,
            headline=f"All {kind}",
            counted=f"{len(group)} of {len(items)}: {span}" if at > count else f"{len(group)}: {span}",
            items=group,
            pages=links,
            here=1 if at > count else count - at + 2,
        )
        site.put(path, html, json_page(f"list of {kind}", {kind: group}))
    site.forget_pages(lambda number: f"{page}.{number}", count)


def _make_index(site: Site, newest: str) -> None:
    state = site.state
    items = sorted(state.cases.values(), key=_by_badness)
    current, stale = _by_age(items, newest)
    lately = days_before(newest, _LATELY_DAYS)
    changed = [each for each in current if each["since"] >= lately and _is_change(each)]
    machines = sorted(state.machines.values(), key=lambda each: str(each["host"]))
    words, tone = headline(current, stale)
    sessions = newest_first(state.sessions.values())[:_SESSIONS]
    cards = [Markup(rendering.row("card", each, "")) for each in changed[:_CARDS]]
    rest = [*cards, *(rendering.row("session_row", each, "") for each in sessions)]
    rows = [rendering.row("case_row", each, "", True, unit_of([each["case_id"]])) for each in items]
    site.put_in_parts(
        names.index_part,
        "index",
        rows,
        beside=sum(len(each.encode()) for each in rest),
        title=words,
        tone=tone,
        headline=words,
        counted=extent_of(items, len(machines), newest, len(stale)),
        lately_from=lately[:10],
        cards=cards,
        cards_left_out=max(0, len(changed) - _CARDS),
        remarks=_remarks(site, newest),
        statuses=counts_of(each["status"] for each in items),
        unit=unit_of([each["case_id"] for each in items]),
        machines=machines[:_MACHINES],
        machines_left_out=max(0, len(machines) - _MACHINES),
        sessions=sessions,
        builds=newest_first(state.builds.values())[:_BUILDS],
    )
    record = {
        "newest": newest,
        "cases": [without_picture(each) for each in items],
        "machines": machines,
        "lately": [each["page"] for each in changed],
    }
    site.folder.put(f"{names.INDEX}.json", json_page("site", record))
    text, tone = badge_words(current, stale)
    site.folder.put(f"{names.ALL_BADGE}.svg", rendering.badge(site.look.title, text, tone))


def _remarks(site: Site, newest: str) -> list[str]:
    """Recent acknowledgements and exclusions of users, the newest first."""
    begin = days_before(newest, STALE_DAYS)
    found = [
        (each.created, f"{each.created[:10]}: {each.who} acknowledged {each.pattern}: {each.reason}")
        for each in site.acknowledgements
    ]
    found += [
        (each.created, f"{each.created[:10]}: {each.who} excluded {each.subject} {each.uuid[:12]}: {each.reason}")
        for each in site.history.exclusions()
    ]
    return [text for when, text in sorted(found, reverse=True) if when >= begin][:_REMARKS]


def _by_age(items: Iterable[Item], newest: str) -> tuple[list[Item], list[Item]]:
    """The cases that were measured lately, and the others."""
    current: list[Item] = []
    stale: list[Item] = []
    for each in items:
        (stale if is_stale(each, newest) else current).append(each)
    return current, stale


def _by_badness(item: Mapping[str, Any]) -> tuple[bool, int, str, str]:
    return (bool(item["acknowledged"]), badness(item["status"]), item["case_id"], item["page"])


def _is_change(item: Mapping[str, Any]) -> bool:
    return not item["since_or_before"] and (bool(item["before"]) or not is_fine(item["status"]))
