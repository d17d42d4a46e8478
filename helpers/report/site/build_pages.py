"""The pages of builds. A build's record has the content of its page, so that a session can be added without reading the
other sessions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from helpers.history.listing import BuildKey, ListedNight, SessionKey, build_of
from helpers.report.nights import NightLine
from helpers.report.sentences import badness
from helpers.report.site import names, rows
from helpers.report.site.folder import Item
from helpers.report.site.lines import (
    build_words,
    case_record,
    counts_of,
    json_page,
    newest_first,
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

    def __init__(self, site: Site, shared: Callable[[BuildKey], bool] = lambda _: False) -> None:
        """``shared`` tells of which builds another process makes sessions too: their records are only collected."""
        self._site = site
        self._is_shared = shared
        self._shared: dict[BuildKey, Item] = {}
        self._open: OrderedDict[BuildKey, Item] = OrderedDict()
        # Builds that have lost a night, since it was judged again in another build.
        self._outdated: set[BuildKey] = set()

    def add_session(
        self, session: SessionKey, nights: Sequence[ListedNight], lines: Sequence[NightLine], earlier: Item | None
    ) -> None:
        """Add a session's nights to the builds that it measured. ``earlier`` is the session's entry of an earlier
        publishing, if there is one."""
        places: dict[BuildKey, list[int]] = {}
        for at, each in enumerate(nights):
            places.setdefault(build_of(each.night.record), []).append(at)
        for key, own in places.items():
            self._add(key, session, [nights[at] for at in own], [lines[at] for at in own])
        for build in earlier["builds"] if earlier else ():
            known = self._key_of(build["page"])
            if known is not None and self._has_lost(known, session, [nights[at] for at in places.get(known, ())]):
                self._outdated.add(known)

    def _key_of(self, page: str) -> BuildKey | None:
        """The build that has this page; None if the site does not have it."""
        found = next((key for key in self._open if names.build_page(key) == page), None)
        if found is None and (record := self._site.folder.read(f"{page}.json")) is not None:
            found = BuildKey(record["framework"], record["version"], record["commit"])
        return found

    def _has_lost(self, key: BuildKey, session: SessionKey, nights: Sequence[ListedNight]) -> bool:
        """Whether the build shows a night of the session that is not among these, the session's nights with it."""
        of_session = (session.session, session.host)
        cases = self._opened(key)["cases"].items()
        shown = {page for page, each in cases if (each["session"], each["host"]) == of_session}
        return not nights or not shown <= {names.case_page(each.case) for each in nights}

    def _add(
        self, key: BuildKey, session: SessionKey, nights: Sequence[ListedNight], lines: Sequence[NightLine]
    ) -> None:
        """Add a session's nights of a build."""
        record = self._opened(key)
        record["sessions"][names.session_page(session)] = session_item(session, nights, lines)
        for night, line in zip(nights, lines, strict=True):
            _keep_newer(record["cases"], names.case_page(night.case), _newest_of(night, line))

    def merge(self, records: Mapping[BuildKey, Item]) -> None:
        """Add what another process collected of builds; call it in the order of time."""
        for key, own in records.items():
            record = self._opened(key)
            record["sessions"].update(own["sessions"])
            for page, night in own["cases"].items():
                _keep_newer(record["cases"], page, night)

    def close(self) -> dict[BuildKey, Item]:
        """Write the pages that are not yet written. Returns the records of shared builds, which are not written."""
        for key in sorted(self._outdated):
            self._add_again(key)
        while self._open:
            self._close_one()
        return self._shared

    def _add_again(self, key: BuildKey) -> None:
        """Add all sessions of a build anew, as the history has them now."""
        record = self._opened(key)
        before = newest_first(record["sessions"].values())[::-1]
        record["sessions"], record["cases"] = {}, {}
        for each in before:
            session = SessionKey(each["session"], each["host"])
            nights = self._site.history.session_nights(self._site.known, session)
            if own := [night for night in nights if build_of(night.night.record) == key]:
                self._add(key, session, own, self._site.lines_of(own))
        if not record["sessions"]:
            self._forget(key)

    def _forget(self, key: BuildKey) -> None:
        """Mark the page of a build that measured nothing as no longer needed."""
        page = names.build_page(key)
        del self._open[key]
        self._site.state.builds.pop(page, None)
        self._site.forget_pages(partial(names.part, page), 0)

    def _opened(self, key: BuildKey) -> Item:
        if self._is_shared(key):
            return self._shared.setdefault(key, _empty(key))
        found = self._open.get(key)
        if found is None:
            found = self._site.folder.read(f"{names.build_page(key)}.json")
            if found is None:
                found = _empty(key)
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
        sessions = newest_first(record["sessions"].values())
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
        counting = counts_of(each["status"] for _, each in cases if not each["excluded"])
        self._site.put_in_parts(
            partial(names.part, page),
            "build",
            [rows.of_build(page_of_case, each) for page_of_case, each in cases],
            title=item["text"],
            tone=tone_of(counting) if counting else "warn",
            item=item,
            statuses=counts_of(each["status"] for _, each in cases),
            unit=unit_of([each["case_id"] for _, each in cases]),
            sessions=sessions[:_SESSIONS],
            left_out=max(0, len(sessions) - _SESSIONS),
        )
        self._site.folder.put(
            f"{page}.json",
            json_page("build", {**record, "sessions": {each["page"]: each for each in sessions}, "cases": dict(cases)}),
        )


def _empty(key: BuildKey) -> Item:
    return {"framework": key.framework, "version": key.version, "commit": key.commit, "sessions": {}, "cases": {}}


def _keep_newer(cases: dict[str, Item], page: str, night: Item) -> None:
    before = cases.get(page)
    if before is None or before["created"] <= night["created"] or before["uuid"] == night["uuid"]:
        cases[page] = night


def _newest_of(night: ListedNight, line: NightLine) -> Item:
    """The entry of a case in a build's record. It lacks the reason, which is on the page of the session."""
    record = record_of(line)
    names_of = ("uuid", "created", "status", "images_per_s", "low", "high", "effect", "excluded", "acknowledged")
    own = {name: record[name] for name in names_of}
    return {**case_record(night.case, []), **own, "session": night.session.session}
