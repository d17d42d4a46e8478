"""The pages of builds. A build's record has the content of its page, so that a session can be added without reading the
other sessions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from markupsafe import Markup

from helpers.history.listing import BuildKey, ListedNight, SessionKey
from helpers.report.nights import NightLine
from helpers.report.site import names, rendering, rows
from helpers.report.site.folder import Item
from helpers.report.site.lines import (
    badness,
    build_words,
    case_record,
    counts_of,
    json_page,
    record_of,
    session_item,
    unit_of,
)
from helpers.report.site.site import Site
from helpers.report.site.tones import tone_of

# How many builds are kept in memory before their pages are written.
_OPEN = 32
_SESSIONS = 40


class Builds:
    """Builds to which sessions are added, in the order of time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open: OrderedDict[BuildKey, Item] = OrderedDict()

    def add(
        self, key: BuildKey, session: SessionKey, nights: Sequence[ListedNight], lines: Sequence[NightLine]
    ) -> None:
        """Add a session's nights of a build."""
        record = self._opened(key)
        record["sessions"][names.session_page(session)] = session_item(session, nights, lines)
        for night, line in zip(nights, lines, strict=True):
            page = names.case_page(night.case)
            before = record["cases"].get(page)
            if before is None or before["created"] <= line.created or before["uuid"] == line.uuid:
                record["cases"][page] = _newest_of(night, line)

    def close(self) -> None:
        """Write the pages that are not yet written."""
        while self._open:
            self._close_one()

    def _opened(self, key: BuildKey) -> Item:
        found = self._open.get(key)
        if found is None:
            found = self._site.folder.read(f"{names.build_page(key)}.json")
            if found is None:
                own = {"framework": key.framework, "version": key.version, "commit": key.commit}
                found = {**own, "sessions": {}, "cases": {}}
            else:
                found = {name: found[name] for name in ("framework", "version", "commit", "sessions", "cases")}
            self._open[key] = found
            if len(self._open) > _OPEN:
                self._close_one()
        self._open.move_to_end(key)
        return found

    def _close_one(self) -> None:
        """Write the page of the build to which nothing was added for the longest time."""
        key, record = self._open.popitem(last=False)
        page = names.build_page(key)
        sessions = sorted(record["sessions"].values(), key=lambda each: (each["first"], each["page"]), reverse=True)
        cases = sorted(
            record["cases"].items(), key=lambda each: (badness(each[1]["status"]), each[1]["case_id"], each[0])
        )
        item = {
            "page": page,
            "text": build_words(key),
            "commit": key.commit,
            "first": sessions[-1]["first"],
            "last": max(each["last"] for each in sessions),
            "sessions": len(sessions),
            "statuses": sessions[0]["statuses"],
        }
        self._site.state.builds[page] = item
        made = [rows.of_build(page_of_case, each) for page_of_case, each in cases]
        parts = rendering.in_parts(made)
        statuses = counts_of(each["status"] for _, each in cases)
        counting = counts_of(each["status"] for _, each in cases if not each["excluded"])
        for here, case_rows in enumerate(parts, 1):
            html = rendering.page(
                self._site.look,
                names.part(page, here),
                "build",
                title=item["text"],
                tone=tone_of(counting) if counting else "warn",
                json=here == 1,
                item=item,
                statuses=statuses,
                case_rows=Markup("").join(case_rows),
                pages=rendering.part_links(page, len(parts)),
                here=here,
                unit=unit_of([each["case_id"] for _, each in cases]),
                sessions=sessions[:_SESSIONS],
                left_out=max(0, len(sessions) - _SESSIONS),
            )
            self._site.put(names.part(page, here), html)
        self._site.forget_parts(page, len(parts))
        self._site.folder.put(
            f"{page}.json",
            json_page("build", {**record, "sessions": {each["page"]: each for each in sessions}, "cases": dict(cases)}),
        )


def _newest_of(night: ListedNight, line: NightLine) -> Item:
    """The entry of a case in a build's record. It lacks the reason, which is on the page of the session."""
    record = record_of(line)
    names_of = ("uuid", "created", "status", "images_per_s", "low", "high", "effect", "excluded", "acknowledged")
    own = {name: record[name] for name in names_of}
    return {**case_record(night.case, []), **own, "session": night.session.session}
