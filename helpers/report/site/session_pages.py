"""The page of a session: all cases that it judged, the worst first."""

from __future__ import annotations

from functools import partial

from helpers.history.listing import SessionKey
from helpers.report.sentences import badness
from helpers.report.site import names, rows
from helpers.report.site.build_pages import Builds
from helpers.report.site.lines import json_page, record_of, session_item, unit_of
from helpers.report.site.site import Site
from helpers.report.site.tones import headline_of, tone_of


def make_session(site: Site, builds: Builds, key: SessionKey) -> None:
    """Make the page of a session, and add its nights to the builds that it measured."""
    page = names.session_page(key)
    nights = site.history.session_nights(site.known, key)
    if not nights:
        return
    lines = site.lines_of(nights)
    item, earlier = session_item(key, nights, lines), site.state.sessions.get(page)
    site.state.sessions[page] = item
    order = sorted(range(len(lines)), key=lambda at: (badness(lines[at].status), nights[at].case))
    site.put_in_parts(
        partial(names.part, page),
        "session",
        [rows.of_session(nights[at], lines[at]) for at in order],
        title=f"{key.session}, {item['first'][:10]}",
        tone=tone_of(item["statuses"]),
        item=item,
        headline=headline_of(item["statuses"], item["cases"]),
        unit=unit_of([each.case.case_id for each in nights]),
    )
    record = {
        "session": key.session,
        "host": key.host,
        "nights": [
            {"case_id": each.case.case_id, "target": each.case.target, **record_of(line)}
            for each, line in zip(nights, lines, strict=True)
        ],
    }
    site.folder.put(f"{page}.json", json_page("session", record))
    site.touched_machines.add(key.host)
    if runs := [
        (each.night.record.created, each.night.record.run_uuids[0]) for each in nights if each.night.record.run_uuids
    ]:
        site.newest_run[key.host] = max(runs[-1], site.newest_run.get(key.host, ("", "")))
    builds.add_session(key, nights, lines, earlier)
