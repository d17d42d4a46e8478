"""Publishes a history as a site: makes the pages that are new or changed since the last time, and the lists.

A page depends only on the history, so it is the same whether all pages or only this page is made.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.history.listing import CaseKey, Changes, Listing, SessionKey, SessionSpan
from helpers.history.waiting import Waiting, file_lock
from helpers.report.site import names, rendering
from helpers.report.site.folder import (
    ChangedFile,
    Folder,
    State,
    StateError,
    files_of_suite,
    gone_or_changed,
    is_unfinished,
    read_state,
    write_state,
)
from helpers.report.site.lists import make_lists
from helpers.report.site.processes import make_pages
from helpers.report.site.rendering import Look
from helpers.report.site.site import Site
from helpers.trainers.contract.errors import ConfigError

if TYPE_CHECKING:
    from helpers.history.history import History

_LOCK_SECONDS = 5
# New objects until Python looks for cycles; by default 700.
_COLLECT_AFTER = 200_000
_FIRST_TIME = "it is the first time"
# A time later than any night, for a case of which no night has changed.
_NO_NIGHT = "9999"


@dataclass(frozen=True)
class Published:
    """The result of publishing."""

    # Why all pages were made again; empty if only changed pages were.
    everything: str
    # How many of these got new pages.
    cases: int
    sessions: int
    # The numbers of nights and files of the whole site.
    nights: int
    files: int
    written: int
    removed: int


def publish(history: History, folder: Path, look: Look, say: Callable[[str], None]) -> Published:
    """Update the site in ``folder`` from the history. Raises ConfigError, HistoryError and OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with file_lock(folder / names.LOCK, Waiting(f"the site in {folder}", _LOCK_SECONDS, say)), _few_collections():
            return _publish(history, folder, look, say)
    except TimeoutError as error:
        raise ConfigError(
            "perfgate publish",
            field="FOLDER",
            got=f"{folder}, into which another process publishes",
            expected="one process at a time",
        ) from error


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Have Python look for unused cycles of objects less often: a night is thousands of objects without a cycle, and
    looking takes an eighth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _publish(history: History, place: Path, look: Look, say: Callable[[str], None]) -> Published:
    known = history.listing()
    plan = _plan(history, known, place, look)
    try:
        return _made(history, known, plan, place, look, say)
    except ChangedFile as changed:
        return _made(history, known, _all_again(plan.earlier, plan.changes, str(changed)), place, look, say)


def _made(
    history: History, known: Listing, plan: _Plan, place: Path, look: Look, say: Callable[[str], None]
) -> Published:
    if plan.everything and plan.everything != _FIRST_TIME:
        say(f"note: everything is made anew: {plan.everything}")
    state = State() if plan.everything else plan.earlier
    state.form, state.revision = rendering.form_of(look), plan.changes.revision
    folder = Folder(place, plan.earlier.files, everything=bool(plan.everything))
    folder.check(names.AT_THE_TOP)
    site = Site(history, known, history.acknowledgements(), history.counts_of_nights(known), look, folder, state)
    cases = _cases_to_make(plan, known)
    sessions = history.sessions(known) if plan.everything else _sessions_to_make(plan)
    make_pages(site, cases, sessions)
    make_lists(site)
    for path, text in rendering.shared_files().items():
        folder.put(path, text)
    state.files = folder.files
    folder.remove_rest(plan.left_behind)
    write_state(place, state)
    nights = sum(item["nights"] for item in state.cases.values())
    return Published(
        plan.everything, len(cases), len(sessions), nights, len(folder.files), folder.written, folder.removed
    )


# ---- what is to be made


@dataclass(frozen=True)
class _Plan:
    earlier: State
    # Why ``earlier`` cannot be used; empty if only ``changes`` are made.
    everything: str
    changes: Changes
    # Files of the suite that are not in ``earlier``.
    left_behind: tuple[str, ...] = ()


def _plan(history: History, known: Listing, place: Path, look: Look) -> _Plan:
    try:
        earlier = read_state(place)
    except StateError as error:
        return _begun_anew(history, known, place, str(error))
    if earlier is None:
        there = any(path.name != names.LOCK for path in place.iterdir())
        return _begun_anew(history, known, place, f"{place} has no {names.STATE}" if there else _FIRST_TIME)
    changes = history.changes_since(known, earlier.revision)
    if is_unfinished(place):
        return _all_again(earlier, changes, "the call before this one was ended while it wrote pages")
    if gone := gone_or_changed(place, earlier.files):
        # No content has an empty digest, so each of these files is written again.
        earlier.files.update(dict.fromkeys(gone, ""))
        return _Plan(earlier, _gone_words(gone), changes)
    if not changes.everything and earlier.form != rendering.form_of(look):
        return _Plan(earlier, "the pages have another form, title or address", changes)
    return _Plan(earlier, changes.everything, changes)


def _all_again(earlier: State, changes: Changes, why: str) -> _Plan:
    """The plan if it is not known which files are what ``earlier`` says."""
    # No content has an empty digest, so every file is written again.
    earlier.files.update(dict.fromkeys(earlier.files, ""))
    return _Plan(earlier, why, changes)


def _gone_words(gone: Sequence[str]) -> str:
    return f"{gone[0]} is gone or changed" + (f", and {len(gone) - 1} other files" if len(gone) > 1 else "")


def _begun_anew(history: History, known: Listing, place: Path, why: str) -> _Plan:
    return _Plan(State(), why, history.changes_since(known, None), tuple(files_of_suite(place)))


def _cases_to_make(plan: _Plan, known: Listing) -> dict[CaseKey, str]:
    """For each case the time of its first changed night; empty to make all of its nights."""
    if plan.everything:
        return dict.fromkeys(known.cases, "")
    found = dict.fromkeys(sorted(plan.changes.cases), _NO_NIGHT)
    for each in plan.changes.nights:
        found[each.case] = min(each.created, found.get(each.case, each.created))
    # The page of a case has links to the same case on other machines.
    new = {key.case_id for key in found if names.case_page(key) not in plan.earlier.cases}
    return found | {key: _NO_NIGHT for key in known.cases if key.case_id in new and key not in found}


def _sessions_to_make(plan: _Plan) -> dict[SessionKey, SessionSpan]:
    """For each session with a changed night the time of the first of these."""
    found: dict[SessionKey, SessionSpan] = {}
    for each in sorted(plan.changes.nights, key=lambda night: night.created):
        found.setdefault(each.session, SessionSpan(each.created))
    return found
