"""A session's history that survives the loss of its database: entries are spooled, and taken in later."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from helpers.history import Memory
from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.spool import Emptied, Entry, Spool, give
from helpers.history.stored import CaseNights, SegmentStart
from helpers.judging.evidence import Past
from helpers.machine.wall_clock import utc_now
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable

# A call that takes longer than the waits for a connection (10 s) and for other writers (60 s) has lost its server.
ANSWER_SECONDS = 120.0
# The pause between two attempts: at least so many seconds, and so many times the duration of the last attempt. So a
# database that does not answer costs a session at most a twentieth of its time.
LEAST_PAUSE_SECONDS = 30.0
PAUSES_PER_ATTEMPT = 20.0

_Kept = TypeVar("_Kept")


class SpoolingMemory:
    """Implements Memory. Raises HistoryError only if neither database nor disk take an entry, and for an entry or a
    database that is wrong, not just out of reach.

    ``opened`` opens the database. A process has one such object, and calls it from one thread at a time.
    """

    def __init__(
        self,
        opened: Callable[[], Memory],
        spool: Spool,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime.datetime] = utc_now,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._open = opened
        self._spool = spool
        self._clock = clock
        self._now = now
        self._answer_seconds = answer_seconds
        self._history: Memory | None = None
        self._call: threading.Thread | None = None
        self._next_attempt: float | None = None
        self._since = ""
        self._why = ""
        self._spooled = 0
        self._refused: list[str] = []
        self._left: set[str] = set()
        self._notes: list[str] = []

    def start(self) -> None:
        """Contact the database for the first time in the session, and take in the entries that earlier sessions left.

        If the database does not answer, the session goes on, provided that its entries can be kept on disk. Raises
        HistoryError if the database answers and refuses, as for a wrong URL.
        """
        try:
            self._ask(lambda history: None, lenient=False)
        except HistoryUnreachable:
            self._spool.check()

    def past(self, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str) -> Past:
        """See Memory; ``Past.unreachable`` says why nothing is known."""
        try:
            return self._ask(lambda history: history.past(case_id, target, segment, cards, session))
        except HistoryUnreachable:
            return Past(unreachable=f"history {self._spool.history} unreachable since {self._since} ({self._why})")

    def nights_so_far(self, case_id: str, target: str, session: str, last: int) -> CaseNights:
        """See Memory; ``CaseNights.unknown`` says why nothing is known."""
        try:
            return self._ask(lambda history: history.nights_so_far(case_id, target, session, last))
        except HistoryUnreachable:
            return CaseNights(unknown=f"history {self._spool.history} unreachable since {self._since} ({self._why})")

    def add_result(self, result: RunResult) -> None:
        """Keep it in the database, or on disk for it."""
        self._keep(result)

    def add_night(self, night: NightRecord) -> None:
        """Keep it in the database, or on disk for it."""
        self._keep(night)

    def start_segment(self, start: SegmentStart) -> None:
        """Keep it in the database, or on disk for it."""
        self._keep(start)

    def finish(self) -> tuple[str, ...]:
        """Try once more to take in the entries that this or another process spooled. Returns what the user must
        know."""
        if self._spool.waiting():
            self._next_attempt = None
            try:
                self._ask(lambda history: None)
            except HistoryError as error:
                self._why = self._why or str(error)
        notes = [*self._notes, *self._refused]
        if waiting := self._spool.waiting():
            away = f"unreachable since {self._since} ({self._why}): " if self._since else ""
            notes.append(
                f"history {self._spool.history} {away}{_counted(waiting)} spooled in {self._spool.folder}; "
                "they go in with the next session or perfgate reindex"
            )
        for path in self._spool.damaged():
            if not any(str(path) in refused for refused in self._refused):
                notes.append(f"damaged spooled file, kept: {path}")
        return tuple(notes)

    def _keep(self, entry: Entry) -> None:
        try:
            self._ask(lambda history: give(history, entry))
        except HistoryUnreachable:
            self._spool.put(entry)
            self._spooled += 1

    def _ask(self, work: Callable[[Memory], _Kept], lenient: bool = True) -> _Kept:
        """Do ``work`` with the database, after the spooled entries: an older entry must not come after a newer one.

        Raises HistoryUnreachable, at once if the last failure was a short time ago.
        """
        begun = self._clock()
        if self._next_attempt is not None and begun < self._next_attempt:
            raise HistoryUnreachable(f"history {self._spool.history}", got=self._why, expected="an answer")
        try:
            answer = self._answered(lambda: self._emptied_and(work, lenient))
        except HistoryUnreachable as error:
            ended = self._clock()
            self._next_attempt = ended + max(LEAST_PAUSE_SECONDS, PAUSES_PER_ATTEMPT * (ended - begun))
            self._since = self._since or self._time()
            self._why = str(error.got or error)
            raise
        if self._since:
            spooled = f"{_counted(self._spooled)} spooled meanwhile went in" if self._spooled else "nothing was lost"
            self._notes.append(
                f"history {self._spool.history} was unreachable from {self._since} to {self._time()}: {spooled}"
            )
        self._since = self._why = ""
        self._spooled = 0
        self._next_attempt = None
        return answer

    def _emptied_and(self, work: Callable[[Memory], _Kept], lenient: bool) -> _Kept:
        if self._history is None:
            try:
                self._history = self._open()
            except HistoryUnreachable:
                raise
            except HistoryError as error:
                if not lenient:
                    raise
                # It answered when the session began, so what is measured meanwhile is spooled.
                raise HistoryUnreachable(error.about, got=str(error), expected="the database of before") from error
        try:
            emptied = self._spool.empty_into(self._history, self._left)
        except HistoryUnreachable:
            raise
        except (HistoryError, OSError) as error:
            # A spool that cannot be emptied keeps its entries, and does not stop tonight's.
            emptied = Emptied(refused=(f"history spool {self._spool.folder} is kept: {error}",))
        self._refused += [each for each in emptied.refused if each not in self._refused]
        self._left.update(emptied.left)
        return work(self._history)

    def _answered(self, work: Callable[[], _Kept]) -> _Kept:
        """The answer of ``work``, which runs in a thread of its own.

        A server that is stopped, or a file on a share that is gone, never answers, and a call that waits for it cannot
        be interrupted.
        """
        deadline = self._clock() + self._answer_seconds
        if self._call is not None and self._call.is_alive():
            # It may hold a transaction with an entry that is older than the one to be written now.
            self._call.join(self._answer_seconds)
            if self._call.is_alive():
                raise self._silent()
        answers: list[_Kept] = []
        errors: list[BaseException] = []

        def call() -> None:
            try:
                answers.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                errors.append(error)

        self._call = threading.Thread(target=call, name="history", daemon=True)
        self._call.start()
        self._call.join(max(0.0, deadline - self._clock()))
        if self._call.is_alive():
            raise self._silent()
        if errors:
            raise errors[0]
        return answers[0]

    def _silent(self) -> HistoryUnreachable:
        return HistoryUnreachable(
            f"history {self._spool.history}",
            got=f"no answer within {self._answer_seconds:g} s",
            expected="an answer",
            remedy="Check that the server runs, and the network between",
        )

    def _time(self) -> str:
        return self._now().strftime("%Y-%m-%d %H:%M:%S UTC")


def _counted(entries: int) -> str:
    return f"{entries} entr{'y' if entries == 1 else 'ies'} (runs, nights, segment starts)"
