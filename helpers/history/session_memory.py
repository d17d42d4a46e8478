"""A session's history. What it cannot take stays in the run folder, and is tried again until the session ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from helpers.common.words import counted
from helpers.history import Memory
from helpers.history.decisions import DecisionFiles
from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.stored import CaseNights, SegmentStart
from helpers.history.unwritten import JudgedCase, Unwritten
from helpers.judging.case.evidence import Past
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable, SuiteError

# After a failed attempt the history is left alone for so many seconds, and for so many times as long as the attempt
# took: a history that stays away costs a session about a twentieth of its time.
LEAST_PAUSE_SECONDS = 2.0
PAUSES_PER_ATTEMPT = 20

_Answer = TypeVar("_Answer")


class SessionHistory(Memory, Protocol):
    def take_in_decisions(self) -> tuple[str, ...]:
        """Take in the decisions beside the runs that the database lacks; see History."""


class SessionMemory:
    """Implements Memory. Raises HistoryError for a case or a database that is wrong, and not just out of reach.

    ``opened`` opens the database on first use. A process has one such object, and calls it from one thread at a time.
    """

    def __init__(
        self,
        opened: Callable[[], SessionHistory],
        unwritten: Unwritten,
        decisions: DecisionFiles,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open = opened
        self._unwritten = unwritten
        self._decisions = decisions
        self._clock = clock
        self._history: SessionHistory | None = None
        self._lacks_decisions = True
        self._next_attempt = 0.0
        # Why the last attempt failed; empty if it did not.
        self._why = ""
        # What the database refused for good, and the cases that it is not asked about again.
        self._refused: list[str] = []
        self._left: set[JudgedCase] = set()

    def start(self) -> str:
        """Contact the database for the first time, and take in what earlier sessions left.

        If it does not answer, the session goes on; then the answer is a sentence about that, else empty. Raises
        HistoryError if the database answers and refuses, as for a wrong URL.
        """
        try:
            self._ask(lambda history: None, lenient=False)
        except HistoryUnreachable as error:
            self._unwritten.make_folder()
            return str(error)
        return ""

    def past(self, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str) -> Past:
        """See Memory; ``Past.unreachable`` says why nothing is known."""
        try:
            return self._ask(lambda history: history.past(case_id, target, segment, cards, session))
        except HistoryUnreachable:
            return Past(unreachable=self._away)

    def nights_so_far(self, case_id: str, target: str, session: str, last: int) -> CaseNights:
        """See Memory; ``CaseNights.unknown`` says why nothing is known."""
        try:
            return self._ask(lambda history: history.nights_so_far(case_id, target, session, last))
        except HistoryUnreachable:
            return CaseNights(unknown=self._away)

    def add_case(self, results: Sequence[RunResult], night: NightRecord) -> None:
        """See Memory. If the database is out of reach, the case is tried again with each later call."""
        case = JudgedCase(night.session, night.case_id)
        # A process that is killed from here on leaves the case to the next session.
        self._unwritten.add(case)
        self._left.discard(case)
        try:
            self._ask(lambda history: history.add_case(results, night), besides=case)
        except HistoryUnreachable:
            return
        self._unwritten.remove(case)

    def start_segment(self, start: SegmentStart) -> None:
        """Keep it on file, and in the database now or with a later call."""
        self._decisions.write(start)
        try:
            self._ask(lambda history: history.start_segment(start))
        except HistoryUnreachable:
            self._lacks_decisions = True

    def finish(self) -> tuple[str, ...]:
        """Try once more to write what is not written yet. Returns what the user must know."""
        if self._unwritten.cases() or (self._why and self._lacks_decisions):
            self._next_attempt = 0.0
            try:
                self._ask(lambda history: None)
            except HistoryError as error:
                self._why = self._why or str(error)
        notes = list(self._refused)
        if waiting := self._unwritten.cases():
            away = f" does not answer ({self._why}). It" if self._why else ""
            notes.append(
                f"history {self._unwritten.shown}{away} lacks {counted(len(waiting), 'case')}. The results are in "
                f"{self._unwritten.runs_folder}. The next session or perfgate reindex writes them"
            )
        return tuple(notes)

    def lacking(self, session: str) -> int:
        """How many judged cases of ``session`` the history does not have."""
        return sum(case.session == session for case in self._unwritten.cases())

    def _ask(
        self, work: Callable[[Memory], _Answer], *, lenient: bool = True, besides: JudgedCase | None = None
    ) -> _Answer:
        """Do ``work`` with the database, after everything that it lacks but ``besides`` was written.

        Raises HistoryUnreachable, at once if the last failure was a short time ago.
        """
        begun = self._clock()
        if self._why and begun < self._next_attempt:
            raise HistoryUnreachable(f"history {self._unwritten.shown}", got=self._why, expected="an answer")
        try:
            history = self._opened(lenient)
            self._take_in(history, besides)
            answer = work(history)
        except HistoryUnreachable as error:
            now = self._clock()
            self._next_attempt = now + max(LEAST_PAUSE_SECONDS, PAUSES_PER_ATTEMPT * (now - begun))
            self._why = str(error.got or error)
            raise
        self._why = ""
        return answer

    def _opened(self, lenient: bool) -> SessionHistory:
        if self._history is None:
            try:
                self._history = self._open()
            except HistoryUnreachable:
                raise
            except HistoryError as error:
                if not lenient:
                    raise
                # It answered when the session began, so what is measured meanwhile waits.
                raise HistoryUnreachable(error.about, got=str(error), expected="the database of before") from error
        return self._history

    def _take_in(self, history: SessionHistory, besides: JudgedCase | None) -> None:
        if self._lacks_decisions:
            try:
                refused = history.take_in_decisions()
            except HistoryUnreachable:
                raise
            except HistoryError as error:
                # A row of it is damaged. That does not stop tonight's cases.
                refused = (str(error),)
            self._refused += [f"decision that is not in the history: {each}" for each in refused]
            self._lacks_decisions = False
        for case in self._unwritten.cases():
            if case == besides or case in self._left:
                continue
            if why := write_case(history, self._unwritten, case):
                self._refused.append(why)
                self._left.add(case)

    @property
    def _away(self) -> str:
        return f"history {self._unwritten.shown} unreachable ({self._why})"


def write_case(history: Memory, unwritten: Unwritten, case: JudgedCase) -> str:
    """Write a case that waits in the run folder. Returns why it cannot be written; empty if it was. Raises
    HistoryUnreachable."""
    if not unwritten.folder_of(case).is_dir():
        unwritten.remove(case)
        return f"case {case.case_id} of {case.session} is lost: {unwritten.folder_of(case)} is gone"
    try:
        history.add_case(*unwritten.read(case))
    except HistoryUnreachable:
        raise
    except SuiteError as error:
        return f"case {case.case_id} of {case.session} is not in the history: {error}"
    unwritten.remove(case)
    return ""
