"""Makes pages in several processes at once. This is possible because no two cases and no two sessions share a page.

Each process begins as a copy of this one (fork) with a copy of the site, and sends back what it added to the site.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from helpers.history.listing import BuildKey, CaseKey, SessionKey, SessionSpan
from helpers.report.site.build_pages import Builds
from helpers.report.site.case_pages import make_case
from helpers.report.site.folder import Item
from helpers.report.site.session_pages import make_session
from helpers.report.site.site import Site
from helpers.trainers.contract.errors import SuiteError

_MOST = 4
# With fewer cases, starting the processes would take more time than they save.
_LEAST_CASES = 20
# From so many sessions on, they are divided among the processes.
_LEAST_SESSIONS = 50


@dataclass(frozen=True)
class _Made:
    """What a process added to the site."""

    files: Mapping[str, str]
    # Paths of files that no longer belong to the site.
    forgotten: Sequence[str]
    written: int
    cases: Mapping[str, Item]
    sessions: Mapping[str, Item]
    builds: Mapping[str, Item]
    # The records of builds of which another process made sessions too.
    shared_builds: Mapping[BuildKey, Item]
    regressions: Mapping[str, Item]
    # UUIDs of nights that were regressions and no longer are.
    withdrawn: Sequence[str]
    touched_machines: AbstractSet[str]
    # By host.
    newest_run: Mapping[str, tuple[str, str]]


class ProcessLost(SuiteError):
    """A process that made pages ended without an answer."""


def make_pages(
    site: Site, cases: Mapping[CaseKey, str], sessions: Mapping[SessionKey, SessionSpan], cores: int | None = None
) -> None:
    """Make the pages of these cases and sessions, and those of the sessions' builds. ``cases`` gives the creation time
    of each case's first night to make.

    Raises ProcessLost, and any exception that a process raised.
    """
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    in_order = sorted(sessions, key=lambda each: (sessions[each].created, each))
    if cores < 2 or len(cases) < _LEAST_CASES:
        for key, since in cases.items():
            make_case(site, key, since)
        _make_sessions(site, Builds(site), in_order).close()
        return
    works = _works(site, cases, sessions, in_order, min(cores, _MOST))
    begun = [_begin(site, work, at) for at, work in enumerate(works)]
    builds = Builds(site)
    try:
        if not any(work.sessions for work in works):
            _make_sessions(site, builds, in_order)
        for _, receiver in begun:
            _take(site, builds, receiver)
    finally:
        for process, receiver in begun:
            process.terminate()
            process.join()
            receiver.close()
    builds.close()


@dataclass(frozen=True)
class _Work:
    """What one of the processes makes."""

    cases: Mapping[CaseKey, str]
    # In the order of time; empty if the sessions are so few that the parent makes them.
    sessions: Sequence[SessionKey]
    # Version and commit of the builds that only these sessions measured.
    own_builds: frozenset[tuple[str, str]] = frozenset()


def _works(
    site: Site,
    cases: Mapping[CaseKey, str],
    sessions: Mapping[SessionKey, SessionSpan],
    in_order: Sequence[SessionKey],
    count: int,
) -> list[_Work]:
    """The work of each of ``count`` processes: as many cases, and if all of the site is made anew, the sessions of as
    long a time. A build that sessions of two processes measured is written by the parent."""
    keys = list(cases)
    shares = [{key: cases[key] for key in keys[at::count]} for at in range(count)]
    if len(in_order) < _LEAST_SESSIONS or site.state.sessions:
        return [_Work(share, ()) for share in shares]
    edges = [at * len(in_order) // count for at in range(count + 1)]
    blocks = [in_order[begin:end] for begin, end in pairwise(edges)]
    measured = [frozenset().union(*(sessions[key].builds for key in block)) for block in blocks]
    times = Counter(build for builds in measured for build in builds)
    own = [frozenset(build for build in builds if times[build] == 1) for builds in measured]
    return [_Work(*each) for each in zip(shares, blocks, own, strict=True)]


def _make_sessions(site: Site, builds: Builds, sessions: Iterable[SessionKey]) -> Builds:
    for session in sessions:
        make_session(site, builds, session)
    return builds


def _begin(site: Site, work: _Work, number: int) -> tuple[ForkProcess, Connection]:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_make, args=(site, work, number, sender), daemon=True)
    process.start()
    # If this end stayed open here too, the pipe would not close when the process dies.
    sender.close()
    return process, receiver


def _make(site: Site, work: _Work, number: int, sender: Connection) -> None:
    # The terminal sends an interrupt to this process too. The parent handles it, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    site.history.after_fork()
    site.folder.temporary = f".publish.{number}.tmp"
    files, regressions = dict(site.folder.files), dict(site.state.regressions)
    sessions, builds = set(site.state.sessions), set(site.state.builds)
    try:
        for key, since in work.cases.items():
            make_case(site, key, since)
        own = Builds(site, lambda key: (key.version, key.commit) not in work.own_builds)
        shared = _make_sessions(site, own, work.sessions).close()
    except Exception as error:  # noqa: BLE001 - the parent raises it
        sender.send(error)
        return
    now, state = site.folder.files, site.state
    sender.send(
        _Made(
            files={path: mark for path, mark in now.items() if files.get(path) != mark},
            forgotten=[path for path in files if path not in now],
            written=site.folder.written,
            cases={page: item for page, item in state.cases.items() if page in site.made_cases},
            sessions={page: item for page, item in state.sessions.items() if page not in sessions},
            builds={page: item for page, item in state.builds.items() if page not in builds},
            shared_builds=shared,
            regressions={uuid: item for uuid, item in state.regressions.items() if regressions.get(uuid) != item},
            withdrawn=[uuid for uuid in regressions if uuid not in state.regressions],
            touched_machines=site.touched_machines,
            newest_run=site.newest_run,
        )
    )


def _take(site: Site, builds: Builds, receiver: Connection) -> None:
    try:
        made: _Made | Exception = receiver.recv()
    except EOFError:
        raise ProcessLost(
            "perfgate publish",
            got="a process that ended without an answer",
            expected="the pages of its cases",
            remedy="Look for a lack of memory, and call it again",
        ) from None
    if isinstance(made, Exception):
        raise made
    site.folder.files.update(made.files)
    for path in made.forgotten:
        site.folder.forget(path)
    site.folder.written += made.written
    site.state.cases.update(made.cases)
    site.state.sessions.update(made.sessions)
    site.state.builds.update(made.builds)
    builds.merge(made.shared_builds)
    site.touched_machines |= made.touched_machines
    for host, run in made.newest_run.items():
        site.newest_run[host] = max(run, site.newest_run.get(host, run))
    site.state.regressions.update(made.regressions)
    for uuid in made.withdrawn:
        site.state.regressions.pop(uuid, None)
