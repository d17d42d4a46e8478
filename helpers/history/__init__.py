"""The history: every run, every night and people's remarks on them, in SQLite or PostgreSQL.

The database libraries are imported when a history is opened, so code that only needs the types stays quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from helpers.history.history import History
    from helpers.history.nights import NightRecord
    from helpers.history.results import RunResult
    from helpers.history.stored import CaseNights, SegmentStart
    from helpers.judging.case.evidence import Past

FILE_NAME = "history.sqlite"
# How long a call waits for other writers before it is an error: a transaction takes milliseconds, and whoever holds a
# history for longer may never let go.
WAIT_SECONDS = 8.0
# How long a server may take to answer: a report of all nights takes seconds, and one that is stopped never answers.
ANSWER_SECONDS = 60.0


class Memory(Protocol):
    """The history as a session uses it. Whatever a call writes is durable when it returns. Every call raises
    HistoryError."""

    def past(self, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str) -> Past:
        """The nights of the case in ``segment`` before ``session``, and of its siblings on the same host."""

    def nights_so_far(self, case_id: str, target: str, session: str, last: int) -> CaseNights:
        """The ``last`` newest nights of the case on the host of ``session``, for a page."""

    def add_case(self, results: Sequence[RunResult], night: NightRecord) -> None:
        """Keep a judged case: its runs and its night, in one transaction. A run of the same uuid, and a night of the
        same session, target, case and host, replace the ones that are kept."""

    def start_segment(self, start: SegmentStart) -> None:
        """Begin a segment: nights judged until ``start.created`` no longer count, because the baseline was recorded
        anew. It is on file (helpers.history.decisions) before it is anywhere else."""


def default_url(runs_folder: Path) -> str:
    """The history's file beside the runs. The first use makes it."""
    return f"sqlite:///{runs_folder.absolute() / FILE_NAME}"


def may_be_at(url: str) -> bool:
    """Whether there may be a history. The question alone opens no database, and makes no file."""
    return not url.startswith("sqlite:") or Path(url.partition(":///")[2]).exists()


def open_history(
    url: str,
    *,
    writes: bool = True,
    wait_seconds: float = WAIT_SECONDS,
    answer_seconds: float = ANSWER_SECONDS,
    runs_folder: Path | None = None,
) -> History:
    """Open the history at ``url``, and make it if necessary. Raises HistoryError.

    Without ``writes`` it is only read, also on a read-only disk or a PostgreSQL replica, and one that does not exist
    raises NoHistory. A call waits for other writers for ``wait_seconds``, and ``answer_seconds`` for any answer of a
    server. ``runs_folder`` is where decisions are kept (helpers.history.decisions); without one, in the folder of
    SQLite's file.
    """
    from helpers.history.database import open_database
    from helpers.history.history import History

    return History(open_database(url, wait_seconds, writes=writes, answer_seconds=answer_seconds), runs_folder)
