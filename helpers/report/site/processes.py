"""Makes the pages of cases in several processes at once. This is possible because no two cases share a page.

Each process begins as a copy of this one (fork) with a copy of the site, and sends back what it added to the site.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from helpers.history.listing import CaseKey
from helpers.report.site.case_pages import make_case
from helpers.report.site.folder import Item
from helpers.report.site.site import Site
from helpers.trainers.contract.errors import SuiteError

_MOST = 4
# With fewer cases, starting the processes would take more time than they save.
_LEAST_CASES = 20


@dataclass(frozen=True)
class _Made:
    """What a process added to the site."""

    files: Mapping[str, str]
    # Paths of files that no longer belong to the site.
    forgotten: Sequence[str]
    written: int
    cases: Mapping[str, Item]
    regressions: Mapping[str, Item]
    # UUIDs of nights that were regressions and no longer are.
    withdrawn: Sequence[str]


class ProcessLost(SuiteError):
    """A process that made pages ended without an answer."""


@contextlib.contextmanager
def cases_made(site: Site, cases: Mapping[CaseKey, str], cores: int | None = None) -> Iterator[None]:
    """Make the pages of these cases while the block runs; all are made when the ``with`` statement ends. ``cases``
    gives the creation time of each case's first night to make.

    Raises ProcessLost, and any exception that a process raised.
    """
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    keys = list(cases)
    if cores < 2 or len(keys) < _LEAST_CASES:
        for key in keys:
            make_case(site, key, cases[key])
        yield
        return
    count = min(cores, _MOST)
    begun = [_begin(site, {key: cases[key] for key in keys[at::count]}, at) for at in range(count)]
    try:
        yield
        for _, answer in begun:
            _take(site, answer)
    finally:
        for process, answer in begun:
            process.terminate()
            process.join()
            answer.close()
    site.touched_machines.update(key.host for key in keys)


def _begin(site: Site, cases: Mapping[CaseKey, str], number: int) -> tuple[ForkProcess, Connection]:
    context = multiprocessing.get_context("fork")
    answer, question = context.Pipe(duplex=False)
    process = context.Process(target=_make, args=(site, cases, number, question), daemon=True)
    process.start()
    # If this end stayed open here too, the pipe would not close when the process dies.
    question.close()
    return process, answer


def _make(site: Site, cases: Mapping[CaseKey, str], number: int, question: Connection) -> None:
    # The terminal sends an interrupt to this process too. The parent handles it, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    site.history.after_fork()
    site.folder.temporary = f".publish.{number}.tmp"
    files, regressions = dict(site.folder.files), dict(site.state.regressions)
    try:
        for key, since in cases.items():
            make_case(site, key, since)
    except Exception as error:  # noqa: BLE001 - it is raised where the answer is waited for
        question.send(error)
        return
    now, state = site.folder.files, site.state
    question.send(
        _Made(
            {path: mark for path, mark in now.items() if files.get(path) != mark},
            [path for path in files if path not in now],
            site.folder.written,
            {page: item for page, item in state.cases.items() if page in site.made_cases},
            {uuid: item for uuid, item in state.regressions.items() if regressions.get(uuid) != item},
            [uuid for uuid in regressions if uuid not in state.regressions],
        )
    )


def _take(site: Site, answer: Connection) -> None:
    try:
        made: _Made | Exception = answer.recv()
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
    site.state.regressions.update(made.regressions)
    for uuid in made.withdrawn:
        site.state.regressions.pop(uuid, None)
