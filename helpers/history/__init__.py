"""History: every run, every night and people's remarks on them, on SQLite or PostgreSQL.

Opening a history imports the database libraries; whoever only needs the types does not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from helpers.history.history import History
    from helpers.history.nights import NightRecord
    from helpers.history.results import RunResult
    from helpers.history.stored import SegmentStart
    from helpers.judging.evidence import Past

FILE_NAME = "history.sqlite"


class Memory(Protocol):
    """History as a session uses it. What a call writes is durable when it returns; every call raises HistoryError."""

    def past(self, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str) -> Past:
        """The nights of the case in ``segment`` before ``session``, and of its siblings on the same host."""

    def add_result(self, result: RunResult) -> None:
        """Keep a run the moment it exists; the same uuid again replaces what is kept."""

    def add_night(self, night: NightRecord) -> None:
        """Keep a verdict; the same session, target, case and host again replaces it."""

    def start_segment(self, start: SegmentStart) -> None:
        """Leave the nights judged until ``start.created`` behind: the baseline was recorded anew."""


def default_url(runs_folder: Path) -> str:
    """The history beside the runs themselves: a file that the first use makes."""
    return f"sqlite:///{runs_folder.absolute() / FILE_NAME}"


def open_history(url: str, on_wait: Callable[[str], None] | None = None) -> History:
    """Open, and where need be make or migrate, the history at ``url``. Raises HistoryError.

    Where another process holds it for longer than a second, ``on_wait`` gets a sentence that says what is waited for
    and until when.
    """
    from helpers.history.history import History

    return History.open(url, on_wait=on_wait)
