"""A session's history that survives the loss of its database: entries are spooled, and taken in later."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from helpers.history import Memory
from helpers.history.decisions import DecisionFiles
from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.spool import Emptied, Entry, Spool, give
from helpers.history.stored import CaseNights, SegmentStart
from helpers.judging.evidence import Past
from helpers.machine.wall_clock import utc_now
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable

# The pause after a failed attempt takes at least so many seconds, and as long as the attempt did. It doubles with each
# further failure until it is so many times the attempt's duration. So a server that was busy for a moment is soon asked
# again, and one that stays away costs a session about a twentieth of its time.
LEAST_PAUSE_SECONDS = 2.0
PAUSES_PER_ATTEMPT = 20
# A call whose connection was cut ends at once.
_CUT_SECONDS = 1.0

_Kept = TypeVar("_Kept")


@dataclass(frozen=True)
class SessionWaits:
    """How long a session waits before an entry is spooled instead, in seconds."""

    # For other writers.
    lock_seconds: float
    # For any answer at all: the connection, the wait for others and the query.
    answer_seconds: float


# Who writes a file has it for himself, and nobody can end a call to a file.
FILE_WAITS = SessionWaits(60.0, 120.0)
# A transaction takes milliseconds, and the server ends one in which nothing happens for 3 s.
SERVER_WAITS = SessionWaits(4.0, 5.0)


class SessionHistory(Memory, Protocol):
    """A history that is held only during a call."""

    def release(self) -> None:
        """Hold no connection until the next call."""

    def take_in_decisions(self) -> tuple[str, ...]:
        """Take in the decisions beside the runs that the database lacks; see History."""


class SpoolingMemory:
    """Implements Memory. Raises HistoryError only if neither database nor disk take an entry, and for an entry or a
    database that is wrong, not just out of reach.

    ``opened`` opens the database, and ``cut`` ends the calls to it that are under way. A process has one such object,
    and calls it from one thread at a time.
    """

    def __init__(
        self,
        opened: Callable[[], SessionHistory],
        spool: Spool,
        decisions: DecisionFiles,
        *,
        cut: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime.datetime] = utc_now,
        answer_seconds: float = FILE_WAITS.answer_seconds,
    ) -> None:
        self._open = opened
        self._cut = cut
        self._spool = spool
        self._decisions = decisions
        self._clock = clock
        self._now = now
        self._answer_seconds = answer_seconds
        self._history: SessionHistory | None = None
        self._knows_decisions = False
        self._call: threading.Thread | None = None
        # How many entries went in: a call that takes many in is not silent.
        self._progress = 0
        self._next_attempt: float | None = None
        # How many attempts failed since the last one that did not.
        self._failures = 0
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
        """Keep it on file, and in the database now or with the next contact."""
        self._decisions.write(start)
        try:
            self._ask(lambda history: history.start_segment(start))
        except HistoryUnreachable:
            self._knows_decisions = False

    def answers(self) -> bool:
        """Whether the database answers now; asked at once, however short a time ago it did not."""
        self._next_attempt = None
        try:
            self._ask(lambda history: None)
        except HistoryError:
            return False
        return True

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
            pauses = min(2**self._failures, PAUSES_PER_ATTEMPT)
            self._next_attempt = ended + max(LEAST_PAUSE_SECONDS, pauses * (ended - begun))
            # Twenty times is reached long before.
            self._failures = min(self._failures + 1, PAUSES_PER_ATTEMPT)
            self._since = self._since or self._time()
            self._why = str(error.got or error)
            raise
        if self._since:
            spooled = f"{_counted(self._spooled)} spooled meanwhile went in" if self._spooled else "nothing was lost"
            self._notes.append(
                f"history {self._spool.history} was unreachable from {self._since} to {self._time()}: {spooled}"
            )
        self._since = self._why = ""
        self._spooled = self._failures = 0
        self._next_attempt = None
        return answer

    def _emptied_and(self, work: Callable[[Memory], _Kept], lenient: bool) -> _Kept:
        """``work`` with the database, which is released afterwards: a night is long, and a server has room for some
        hundred connections."""
        history = self._opened(lenient)
        try:
            if not self._knows_decisions:
                self._take_in_decisions(history)
            self._empty_into(history)
            return work(history)
        finally:
            history.release()

    def _opened(self, lenient: bool) -> SessionHistory:
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
        return self._history

    def _take_in_decisions(self, history: SessionHistory) -> None:
        try:
            refused = history.take_in_decisions()
        except HistoryUnreachable:
            raise
        except HistoryError as error:
            # A row of it is damaged. That does not stop tonight's entries.
            refused = (str(error),)
        self._refused += [f"decision that is not in the history: {each}" for each in refused]
        self._knows_decisions = True

    def _empty_into(self, history: Memory) -> None:
        try:
            emptied = self._spool.empty_into(history, self._left, self._went_in)
        except HistoryUnreachable:
            raise
        except (HistoryError, OSError) as error:
            # A spool that cannot be emptied keeps its entries, and does not stop tonight's.
            emptied = Emptied(refused=(f"history spool {self._spool.folder} is kept: {error}",))
        self._refused += [each for each in emptied.refused if each not in self._refused]
        self._left.update(emptied.left)

    def _went_in(self) -> None:
        self._progress += 1

    def _answered(self, work: Callable[[], _Kept]) -> _Kept:
        """The answer of ``work``, which runs in a thread of its own.

        A server that is stopped, a network that swallows everything, or a file on a share that is gone, never answers,
        and a call that waits for it cannot be interrupted. A server's connections are cut then, and ``work`` is done
        once more: often the connection is dead, and not the server.
        """
        silent_before = self._call is not None and self._call.is_alive()
        if self._call is not None and silent_before:
            # It may hold a transaction with an entry that is older than the one to be written now.
            self._end(self._call)
        # A database that is being opened may be migrated: that is cut only at a later contact, so that it gets time.
        opened = self._history is not None
        call = self._begun(work)
        if opened and not silent_before and not self._has_ended(call.thread):
            self._end(call.thread)
            call = self._begun(work)
        if not self._has_ended(call.thread):
            raise self._silent()
        if call.errors:
            raise call.errors[0]
        return call.answers[0]

    def _begun(self, work: Callable[[], _Kept]) -> _Call[_Kept]:
        call = _Call(work)
        self._call = call.thread
        call.thread.start()
        return call

    def _has_ended(self, thread: threading.Thread) -> bool:
        """Whether it ends. Waits while entries go in, and ``answer_seconds`` after the last one."""
        seen = -1
        while thread.is_alive() and seen != self._progress:
            seen = self._progress
            thread.join(self._answer_seconds)
        return not thread.is_alive()

    def _end(self, thread: threading.Thread) -> None:
        """Raises HistoryUnreachable if it goes on although its connections were cut, as that of a file does."""
        self._cut()
        thread.join(_CUT_SECONDS)
        if thread.is_alive():
            raise self._silent()

    def _silent(self) -> HistoryUnreachable:
        return HistoryUnreachable(
            f"history {self._spool.history}",
            got=f"no answer within {self._answer_seconds:g} s",
            expected="an answer",
            remedy="Check that the server runs, and the network between",
        )

    def _time(self) -> str:
        return self._now().strftime("%Y-%m-%d %H:%M:%S UTC")


class _Call(Generic[_Kept]):
    """Some work in a thread of its own, and its answer or its error."""

    def __init__(self, work: Callable[[], _Kept]) -> None:
        self.answers: list[_Kept] = []
        self.errors: list[BaseException] = []
        self._work = work
        self.thread = threading.Thread(target=self._run, name="history", daemon=True)

    def _run(self) -> None:
        try:
            self.answers.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self.errors.append(error)


def _counted(entries: int) -> str:
    return f"{entries} entr{'y' if entries == 1 else 'ies'} (runs, nights)"
