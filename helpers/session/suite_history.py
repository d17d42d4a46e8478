"""The history as the suite uses it: which database, what may be shown of it, and the segments that recording begins."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

from helpers.history import Memory, default_url, may_be_at, open_history
from helpers.history.address import refuse_in_open_file, without_password
from helpers.history.spool import Spool
from helpers.history.spooling import FILE_WAITS, SERVER_WAITS, SpoolingMemory
from helpers.history.stored import SegmentStart
from helpers.plan.perf_yaml import Config
from helpers.plan.proposals import Proposal, ProposalKind
from helpers.session import SuiteOptions
from helpers.trainers.contract.errors import HistoryError


def memory_of(options: SuiteOptions, config: Config) -> Memory:
    """The history, opened on first use. Entries are spooled beside the runs while it does not answer."""
    url = history_url(options, config)
    spool = Spool.of(options.runs_folder, url)
    if url.startswith("sqlite:"):
        return SpoolingMemory(lambda: open_history(url, wait_seconds=FILE_WAITS.lock_seconds), spool)
    # Imported here because a history in a file needs no server's library.
    from helpers.history.server import Connections

    connections = Connections()
    return SpoolingMemory(
        lambda: open_history(url, wait_seconds=SERVER_WAITS.lock_seconds, connections=connections),
        spool,
        cut=connections.cut,
        answer_seconds=SERVER_WAITS.answer_seconds,
    )


def begin(memory: Memory) -> None:
    """Contact the history for the first time in the session. Raises HistoryError if it can never be used; that it does
    not answer now is no error."""
    if isinstance(memory, SpoolingMemory):
        memory.start()


def answers(memory: Memory) -> bool:
    """Whether the history answers now, after it did not."""
    return memory.answers() if isinstance(memory, SpoolingMemory) else True


def notes_of(memory: Memory) -> tuple[str, ...]:
    """What the user must know at the session's end: the history did not answer, entries are spooled, files are
    damaged."""
    return memory.finish() if isinstance(memory, SpoolingMemory) else ()


def history_line(options: SuiteOptions, config: Config) -> str:
    """Where the history is and how many entries wait for it, for the header."""
    url = history_url(options, config)
    spool = Spool.of(options.runs_folder, url)
    waiting = spool.waiting()
    return without_password(url) + (f" ({waiting} entries spooled in {spool.folder})" if waiting else "")


def history_url(options: SuiteOptions, config: Config) -> str:
    """The database of the command line, else of perf.yaml, else a file in the runs folder. Raises HistoryError for a
    password that others could read."""
    if options.history_url is None and config.history.url is not None:
        refuse_in_open_file(config.history.url, config.path)
    return options.history_url or config.history.url or default_url(options.runs_folder)


def is_there(options: SuiteOptions, config: Config) -> bool:
    """Whether there is a history. Asking must not create an empty file."""
    return may_be_at(history_url(options, config))


def start_segments(
    memory: Memory, written: Iterable[Proposal], targets: Mapping[str, str], now: datetime.datetime
) -> None:
    """Begin a segment for each entry that was made or replaced, because the nights before it were compared with another
    entry.

    ``targets`` is the target of each case. Raises HistoryError, which says that the baselines are written.
    """
    created = now.isoformat()
    for each in written:
        if each.kind not in (ProposalKind.CREATED, ProposalKind.UPDATED) or each.new is None:
            continue
        reason = f"baseline {each.kind.value}: {each.reason}"
        commit = each.new.provenance.commit
        start = SegmentStart(each.case_id, targets[each.case_id], each.new.segment, created, reason, commit)
        try:
            memory.start_segment(start)
        except HistoryError as error:
            raise HistoryError(
                f"history of {each.case_id}",
                got=str(error),
                expected="a new segment for the entry that was recorded",
                remedy="The baselines are written; record the case again once the history answers",
            ) from error
