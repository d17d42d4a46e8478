"""The history as the rest of the suite uses it: one object for each process and all its threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from helpers.history import past, reading, remarks, taking_in, writing
from helpers.history.database import Database, came_between
from helpers.history.decisions import Decision, DecisionFiles, Made, as_kept
from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.run_folders import NIGHT_FILE, RESULT_FILE, read_night, read_result, sessions
from helpers.history.stored import (
    Calibration,
    Exclusion,
    Pin,
    Reindexed,
    SegmentStart,
)
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable, SuiteError

# Each failed attempt means that another writer got something done.
_ATTEMPTS = 20
_Kept = TypeVar("_Kept")
_Answer = TypeVar("_Answer")
_Given = ParamSpec("_Given")


def _asked(
    question: Callable[Concatenate[sa.Connection, _Given], _Answer],
) -> Callable[Concatenate[History, _Given], _Answer]:
    """A method of History that puts the question to a connection of its own."""

    def ask(history: History, /, *given: _Given.args, **named: _Given.kwargs) -> _Answer:
        with history._database.reading() as connection:
            return question(connection, *given, **named)

    ask.__doc__ = question.__doc__
    return ask


class History:
    """Implements Memory, and answers questions about everything that was kept. Every call raises HistoryError.

    What a call writes is durable when it returns. Moments are UTC in ISO 8601, patterns are shell patterns over case
    ids. Nothing is ever deleted.
    """

    def __init__(self, database: Database, runs_folder: Path | None = None) -> None:
        """``runs_folder`` is where decisions are kept; without one, in the folder of SQLite's file."""
        self._database = database
        self._runs_folder = runs_folder or database.folder

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return self._database.shown

    def close(self) -> None:
        self._database.engine.dispose()

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- a session

    past = _asked(past.past)
    nights_so_far = _asked(reading.nights_so_far)

    def add_case(self, results: Sequence[RunResult], night: NightRecord) -> None:
        """See Memory."""

        def work(connection: sa.Connection) -> None:
            writing.write_runs(connection, results)
            writing.write_night(connection, night)

        self._write(work)

    def add_result(self, result: RunResult) -> None:
        """Keep a run that no night rests on."""
        self.add_results([result])

    def add_night(self, night: NightRecord) -> None:
        """Keep a night whose runs are kept already."""
        self.add_case((), night)

    def start_segment(self, start: SegmentStart) -> None:
        """See Memory."""
        self._decide(lambda _: as_kept(start))

    # ---- reading

    cases = _asked(reading.cases)
    series = _asked(reading.case_nights)
    nights_here = _asked(reading.nights_here)
    nights_of = _asked(reading.nights_of)
    results_of = _asked(reading.results_of)
    segment_starts = _asked(remarks.starts_of)
    exclusions = _asked(remarks.all_exclusions)
    pins = _asked(remarks.all_pins)
    calibration = _asked(remarks.calibration)

    # ---- what people decide: on file first, and then in the database

    @property
    def decisions(self) -> DecisionFiles:
        if self._runs_folder is None:
            raise HistoryError(
                f"history {self.url}", field="run folder", got="none", expected="the one that keeps its decisions"
            )
        return DecisionFiles(self._runs_folder)

    def exclude(self, uuid: str, who: str, created: str, reason: str) -> Exclusion:
        """Exclude a run or a night, so that no later night learns from it. It is given by its uuid or by 6 or more
        characters of it."""
        self._take_in_all()
        return self._decide(lambda connection: taking_in.exclusion(connection, uuid, who, created, reason))

    def restore(self, uuid: str, who: str, created: str, reason: str) -> Exclusion:
        """Take an exclusion back."""
        self._take_in_all()
        return self._decide(lambda connection: taking_in.restoring(connection, uuid, who, created, reason))

    def pin(self, made: Pin) -> None:
        """Keep the remark who pinned which reference build."""
        self._take_in_all()
        self._decide(lambda _: taking_in.pin(made))

    def add_calibration(self, made: Calibration) -> None:
        """Keep a calibration beside the earlier ones."""
        self._decide(lambda _: as_kept(made))

    def take_in_decisions(self) -> tuple[str, ...]:
        """Take in the decisions on file that the database lacks: whoever made them may have been killed before it had
        them. Returns the files that cannot be read or taken in, each with the reason."""
        return self._indexed(self.decisions)[1]

    def _take_in_all(self) -> None:
        """As ``take_in_decisions``; raises HistoryError if a file cannot be taken in."""
        if refused := self.take_in_decisions():
            raise HistoryError("decisions", got=refused[0], expected="files that can be read")

    def _decide(self, question: Callable[[sa.Connection], Made]) -> Made:
        """Keep the decision that ``question`` makes of the database: its file first, in the same transaction."""
        files, kept = self.decisions, list[Path]()

        def work(connection: sa.Connection) -> Made:
            made = question(connection)
            kept.append(files.write(made))
            taking_in.take_in(connection, made)
            return made

        try:
            return self._write(work)
        except HistoryError as error:
            if kept:
                error = type(error)(
                    error.about,
                    got=error.got,
                    expected=error.expected,
                    remedy=f"It is decided, in {kept[-1]}, and goes in with the next session or perfgate reindex",
                )
            raise error

    def _indexed(self, files: DecisionFiles) -> tuple[int, tuple[str, ...]]:
        """How many decisions on file are in the database now, and the files that are not, each with the reason."""
        found, unreadable = files.read()
        refused = list(unreadable)
        new = _asked(taking_in.lacking)(self, found) if found else []
        taken_in = _all_or_each(self._take_in, new, files.path, refused) if new else 0
        return len(found) - len(new) + taken_in, tuple(refused)

    def _take_in(self, decisions: Sequence[Decision]) -> None:
        def work(connection: sa.Connection) -> None:
            for each in decisions:
                taking_in.take_in(connection, each)

        self._write(work)

    # ---- the run folders

    def reindex(self, runs_folder: Path) -> Reindexed:
        """Take in every run, night and decision of the run folders. Entries that are stored already do not change.

        A file that cannot be read is named in the answer, and the others are taken in.
        """
        found = sessions(runs_folder)
        runs = nights = 0
        refused: list[str] = []
        for session in found:
            paths = _named(runs_folder / session, "*/r*/*", RESULT_FILE)
            whole = [path for path in paths if path.parent.name[1:].isdecimal()]
            results = [run for path in whole if (run := _read(read_result, path, runs_folder, refused)) is not None]
            runs += _all_or_each(self.add_results, results, lambda each: Path(each.uuid), refused)
            for path in _named(runs_folder / session, "*/*", NIGHT_FILE):
                if (night := _read(read_night, path, runs_folder, refused)) is not None:
                    nights += _kept(self.add_night, night, path, refused)
        decisions, not_taken = self._indexed(DecisionFiles(runs_folder))
        return Reindexed(len(found), runs, nights, decisions, (*refused, *not_taken))

    def add_results(self, results: Sequence[RunResult]) -> None:
        """Keep all of the runs, or none."""
        self._write(lambda connection: writing.write_runs(connection, results))

    def _write(self, work: Callable[[sa.Connection], _Kept]) -> _Kept:
        """Do ``work`` in a transaction, and again if another writer came in between: it must leave the same rows if it
        is done twice."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                with self._database.writing() as connection:
                    return work(connection)
            except BaseException as error:
                if not left or not came_between(error):
                    raise
        raise AssertionError("unreachable")


def _all_or_each(
    keep: Callable[[Sequence[_Kept]], None],
    entries: Sequence[_Kept],
    path_of: Callable[[_Kept], Path],
    refused: list[str],
) -> int:
    """How many of the entries were taken in: all at once, or one by one if the history refuses one."""
    try:
        keep(entries)
    except HistoryUnreachable:
        raise
    except HistoryError:
        return sum(_kept(lambda each: keep([each]), each, path_of(each), refused) for each in entries)
    return len(entries)


def _kept(keep: Callable[[_Kept], None], entry: _Kept, path: Path, refused: list[str]) -> bool:
    """Whether the history took an entry in; the reason why not is added to ``refused``. Raises HistoryUnreachable."""
    try:
        keep(entry)
    except HistoryUnreachable:
        raise
    except HistoryError as error:
        refused.append(f"{path}: {error}")
        return False
    return True


def _named(folder: Path, pattern: str, name: str) -> list[Path]:
    """The paths of that name, with links to nothing, which glob() leaves out if its pattern ends in the plain name."""
    return sorted(path for path in folder.glob(pattern) if path.name == name)


def _read(read: Callable[[Path, Path], _Kept], path: Path, within: Path, refused: list[str]) -> _Kept | None:
    """The content of a file. If it cannot be read, it is None, and the reason is added to ``refused``."""
    try:
        return read(path, within)
    except SuiteError as error:
        refused.append(str(error))
        return None
