"""The history as the rest of the suite uses it; one object a process, for any number of threads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import sqlalchemy as sa

from helpers.history import past, reading, remarks, segment_starts, writing
from helpers.history.codec import run_row, utc
from helpers.history.database import WAIT_SECONDS, Database, came_between, open_database
from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.run_folders import NIGHT_FILE, RESULT_FILE, read_night, read_result, sessions
from helpers.history.stored import (
    Acknowledgement,
    Calibration,
    Exclusion,
    KnownCase,
    Reindexed,
    SegmentStart,
    StoredNight,
    StoredResult,
)
from helpers.judging.evidence import Past
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable, SuiteError

# Each time some other writer got something done.
_ATTEMPTS = 20
_Kept = TypeVar("_Kept")


class History:
    """Implements Memory, and answers questions about all that was kept. Every call raises HistoryError.

    What a call writes is durable when it returns. Moments are UTC in ISO 8601, patterns are shell patterns over case
    ids. Nothing is ever deleted.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._documents = writing.Documents()

    @staticmethod
    def open(url: str, wait_seconds: float = WAIT_SECONDS, on_wait: Callable[[str], None] | None = None) -> History:
        """See ``helpers.history.open_history``; ``wait_seconds`` is how long a call waits for other writers."""
        return History(open_database(url, wait_seconds, on_wait))

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

    def past(self, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str) -> Past:
        """The newest 40 accepted nights of the case in ``segment``, what lies between and after them, and siblings.

        Without nights before the segment's last start, without ``session``'s own and, where that has judged the
        case already, without any judged since. Nights that nothing may be learned from are not in it.
        """
        with self._database.reading() as connection:
            return past.past(connection, case_id, target, segment, cards, session)

    def add_result(self, result: RunResult) -> None:
        """See Memory."""
        self._add_results([result])

    def add_night(self, night: NightRecord) -> None:
        """See Memory."""
        self._write(lambda connection: writing.write_night(connection, self._documents, night))

    def start_segment(self, start: SegmentStart) -> None:
        """See Memory."""
        self._write(lambda connection: segment_starts.start_segment(connection, self._documents, start))

    # ---- reading

    def cases(self, pattern: str = "*", target: str | None = None) -> tuple[KnownCase, ...]:
        """The cases that have nights here."""
        with self._database.reading() as connection:
            return reading.cases(connection, pattern, target)

    def series(
        self,
        case_id: str,
        target: str | None = None,
        segment: Mapping[str, str] | None = None,
        last: int | None = None,
    ) -> tuple[StoredNight, ...]:
        """A case's nights, oldest first, of all segments unless one is given; the ``last`` newest of them."""
        with self._database.reading() as connection:
            return reading.case_nights(connection, case_id, target, segment, last)

    def nights_of(self, selector: str, pattern: str = "*", target: str | None = None) -> tuple[StoredNight, ...]:
        """The nights of a session, a day, ``DAY..DAY``, a commit (4 or more hexadecimal digits) or a build version."""
        with self._database.reading() as connection:
            return reading.nights_of(connection, selector, pattern, target)

    def results_of(
        self,
        session: str | None = None,
        case_id: str | None = None,
        target: str | None = None,
        uuids: Sequence[str] = (),
    ) -> tuple[StoredResult, ...]:
        """Runs with their raw steps that meet every filter given, at least one, by the time they were made."""
        with self._database.reading() as connection:
            return reading.results_of(connection, session, case_id, target, uuids)

    def segment_starts(self, case_id: str, target: str | None = None) -> tuple[SegmentStart, ...]:
        """The case's starts that ``start_segment`` kept."""
        with self._database.reading() as connection:
            rows = segment_starts.starts_of(connection, case_id, target)
            about = f"history: the start of a segment of {case_id}"
            return tuple(
                SegmentStart(**{**values, "segment": _segment_of(segment), "created": utc(values["created"], about)})
                for segment, values in rows
            )

    # ---- remarks and calibrations

    def exclude(self, uuid: str, who: str, created: str, reason: str) -> Exclusion:
        """Let no later night learn from a run or a night, given by its uuid or 6 or more characters of it."""
        return self._write(lambda connection: remarks.exclude(connection, uuid, who, created, reason))

    def restore(self, uuid: str, who: str, created: str, reason: str) -> Exclusion:
        """Take an exclusion back."""
        return self._write(lambda connection: remarks.restore(connection, uuid, who, created, reason))

    def exclusions(self, holding_only: bool = True) -> tuple[Exclusion, ...]:
        """By the time they were made."""
        with self._database.reading() as connection:
            return remarks.all_exclusions(connection, holding_only)

    def acknowledge(self, made: Acknowledgement) -> None:
        """Keep that a change is known."""
        self._write(lambda connection: remarks.acknowledge(connection, made))

    def acknowledgements(self, case_id: str | None = None) -> tuple[Acknowledgement, ...]:
        """By the time they were made; of one case, those whose pattern matches it."""
        with self._database.reading() as connection:
            return remarks.acknowledged(connection, case_id)

    def add_calibration(self, made: Calibration) -> None:
        """Keep a calibration beside the earlier ones."""
        self._write(lambda connection: remarks.add_calibration(connection, self._documents, made))

    def calibration(self, case_id: str, target: str, segment: Mapping[str, str]) -> Calibration | None:
        """The case's newest calibration in that segment."""
        with self._database.reading() as connection:
            return remarks.calibration(connection, case_id, target, dict(segment))

    # ---- the run folders

    def reindex(self, runs_folder: Path) -> Reindexed:
        """Take in every run and night of the run folders; what is stored already is the same afterwards.

        A file that cannot be read is named in the answer, and the rest goes on.
        """
        found = sessions(runs_folder)
        runs = nights = 0
        refused: list[str] = []
        for session in found:
            paths = _named(runs_folder / session, "*/r*/*", RESULT_FILE)
            whole = [path for path in paths if path.parent.name[1:].isdecimal()]
            results = [run for path in whole if (run := _read(read_result, path, runs_folder, refused)) is not None]
            runs += self._taken_in(results, refused)
            for path in _named(runs_folder / session, "*/*", NIGHT_FILE):
                if (night := _read(read_night, path, runs_folder, refused)) is not None:
                    nights += _kept(self.add_night, night, path, refused)
        return Reindexed(len(found), runs, nights, tuple(refused))

    def _taken_in(self, results: Sequence[RunResult], refused: list[str]) -> int:
        """How many of the results went in: all at once, or one by one where the history refuses one."""
        try:
            self._add_results(results)
        except HistoryUnreachable:
            raise
        except HistoryError:
            return sum(_kept(self.add_result, each, Path(each.uuid), refused) for each in results)
        return len(results)

    def _add_results(self, results: Sequence[RunResult]) -> None:
        self._write(
            lambda connection: writing.write_runs(connection, self._documents, [run_row(result) for result in results])
        )

    def _write(self, work: Callable[[sa.Connection], _Kept]) -> _Kept:
        """Do ``work`` in a transaction, again where another writer came in between."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                with self._database.writing() as connection:
                    return work(connection)
            except BaseException as error:
                self._documents.forget()
                if not left or not came_between(error):
                    raise
        raise AssertionError("unreachable")


def _segment_of(text: str) -> dict[str, str]:
    """A stored segment. Raises ValueError on anything else."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("a segment that is no object of texts")
    return found


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
    """The paths of that name, links to nothing among them: a pattern that holds the name itself passes over those."""
    return sorted(path for path in folder.glob(pattern) if path.name == name)


def _read(read: Callable[[Path, Path], _Kept], path: Path, within: Path, refused: list[str]) -> _Kept | None:
    """What a file holds; None where it cannot be read, and the reason is added to ``refused``."""
    try:
        return read(path, within)
    except SuiteError as error:
        refused.append(str(error))
        return None
