"""The history as the suite uses it: which database, what may be shown of it, and the segments that recording begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from helpers.history import Memory, default_url, may_be_at, open_history
from helpers.history.address import refuse_in_open_file, without_password
from helpers.history.codec import to_text
from helpers.history.decisions import DecisionFiles, as_kept
from helpers.history.spool import Spool
from helpers.history.spooling import FILE_WAITS, SERVER_WAITS, SpoolingMemory
from helpers.history.stored import SegmentStart
from helpers.plan.perf_yaml import Config
from helpers.plan.proposals import Proposal, ProposalKind
from helpers.plan.recorded import RecordedEntry
from helpers.session import SuiteOptions
from helpers.trainers.contract.errors import HistoryError


def memory_of(options: SuiteOptions, config: Config) -> Memory:
    """The history, opened on first use. Entries are spooled beside the runs while it does not answer."""
    url = history_url(options, config)
    spool, decisions = Spool.of(options.runs_folder, url), DecisionFiles(options.runs_folder)
    if url.startswith("sqlite:"):
        return SpoolingMemory(
            lambda: open_history(url, wait_seconds=FILE_WAITS.lock_seconds, runs_folder=options.runs_folder),
            spool,
            decisions,
        )
    # Imported here because a history in a file needs no server's library.
    from helpers.history.server import Connections

    connections = Connections()
    return SpoolingMemory(
        lambda: open_history(
            url, wait_seconds=SERVER_WAITS.lock_seconds, connections=connections, runs_folder=options.runs_folder
        ),
        spool,
        decisions,
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


def begin_recorded(runs_folder: Path, entries: Iterable[tuple[str, RecordedEntry]]) -> None:
    """Write the start of a segment for each entry that has none on file, because a session was killed after it recorded
    the entry: an entry and its start are one decision, and the entry says when it was made.

    ``entries`` are the targets and the entries with which tonight is compared. Raises HistoryError.
    """
    files = DecisionFiles(runs_folder)
    starts = [start for target, entry in entries if (start := start_of(entry, target)) is not None]
    there = {_key(each) for each in files.read()[0] if isinstance(each, SegmentStart)} if starts else set()
    for start in starts:
        if _key(start) not in there:
            files.write(start)


def start_of(entry: RecordedEntry, target: str, reason: str = "") -> SegmentStart | None:
    """The start of the segment that recording the entry began; None if the entry does not say when that was, which
    every entry of ``--update-baselines`` does. Raises HistoryError for a moment that is none."""
    if not entry.provenance.begins:
        return None
    reason = reason or f"baseline {entry.provenance.reason}"
    commit = entry.provenance.commit
    return as_kept(SegmentStart(entry.case_id, target, entry.segment, entry.provenance.begins, reason, commit))


def start_segments(memory: Memory, written: Iterable[Proposal], targets: Mapping[str, str]) -> None:
    """Begin a segment for each entry that was made or replaced, because the nights before it were compared with another
    entry.

    ``targets`` is the target of each case. Raises HistoryError, which says that the baselines are written.
    """
    for each in written:
        if each.kind not in (ProposalKind.CREATED, ProposalKind.UPDATED) or each.new is None:
            continue
        start = start_of(each.new, targets[each.case_id], f"baseline {each.kind.value}: {each.reason}")
        if start is None:
            continue
        try:
            memory.start_segment(start)
        except HistoryError as error:
            raise HistoryError(
                f"history of {each.case_id}",
                got=str(error),
                expected="a new segment for the entry that was recorded",
                remedy="The baselines are written; the next session begins the segment before it judges the case",
            ) from error


def _key(start: SegmentStart) -> tuple[str, str, str, str]:
    return start.case_id, start.target, to_text(start.segment), start.created
