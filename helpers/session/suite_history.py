"""The history as the suite uses it: which database, what may be shown of it, and the segments that recording begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from helpers.common.masking import without_password
from helpers.common.words import counted
from helpers.history import WAIT_SECONDS, Memory, default_url, may_be_at, open_history
from helpers.history.address import named_address
from helpers.history.codec import to_text
from helpers.history.decisions import DecisionFiles, as_kept
from helpers.history.session_memory import SessionMemory
from helpers.history.stored import SegmentStart
from helpers.history.unwritten import Unwritten
from helpers.plan.perf_yaml import Config
from helpers.plan.proposals import Proposal, ProposalKind
from helpers.plan.recorded import RecordedEntry
from helpers.session import SuiteOptions
from helpers.trainers.contract.errors import HistoryError

# How long a session waits for other writers of a file or a server, and for any answer of a server: a transaction takes
# milliseconds.
FILE_WAIT_SECONDS = WAIT_SECONDS
SERVER_WAIT_SECONDS = 4.0
SERVER_ANSWER_SECONDS = 5.0


def memory_of(options: SuiteOptions, config: Config) -> SessionMemory:
    """The history, opened on first use. While it does not answer, what it lacks stays in the run folder."""
    url, folder = history_url(options, config), options.runs_folder
    wait = FILE_WAIT_SECONDS if url.startswith("sqlite:") else SERVER_WAIT_SECONDS
    return SessionMemory(
        lambda: open_history(url, wait_seconds=wait, answer_seconds=SERVER_ANSWER_SECONDS, runs_folder=folder),
        Unwritten.of(folder, url),
        DecisionFiles(folder),
    )


def history_line(options: SuiteOptions, config: Config) -> str:
    """Where the history is and how many cases it lacks, for the header."""
    url = history_url(options, config)
    waiting = len(Unwritten.of(options.runs_folder, url).cases())
    return without_password(url) + (f" (it lacks {counted(waiting, 'case')})" if waiting else "")


def history_url(options: SuiteOptions, config: Config) -> str:
    """The database of the command line, else of perf.yaml, else a file in the runs folder. Raises HistoryError as
    ``named_address`` does."""
    return named_address(options.history_url, config.history.url, config.path) or default_url(options.runs_folder)


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
