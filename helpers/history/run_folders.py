"""The files of a session. Each is written whole as soon as its content exists.

A run has the folder ``runs/<session>/<case>/r<n>/`` with ``spec.json``, ``rank<k>.jsonl`` and ``result.json``; the
case's night is ``runs/<session>/<case>/night.json``, so that history is never the only copy. ``session.json`` says what
the session is. Folders of sessions and runs are their owner's alone (0700). A file is written to a temporary one,
synced and renamed: a kill at any point loses at most the run in progress.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from helpers.common.files import MOST_NIGHT_BYTES, MOST_RESULT_BYTES, make_folder, read_text_limited, write_whole
from helpers.common.records import WrongRecord, parse
from helpers.history.nights import NightRecord, night_of, night_text
from helpers.history.results import RunResult, result_of_record
from helpers.history.session_file import SESSION_FILE, SessionRecord, begin_session, read_session
from helpers.judging.case.verdict import Verdict
from helpers.judging.rules.rates import rate_unit
from helpers.trainers.contract.errors import HistoryError, ResultError

RESULT_FILE = "result.json"
NIGHT_FILE = "night.json"

# Beside the sessions: what is known of jobs of Slurm, and what their commands printed; and what people decided.
JOBS_FOLDER, DECISIONS_FOLDER = "slurm", "decisions"
NO_SESSIONS = (JOBS_FOLDER, DECISIONS_FOLDER)

_NO_ROOM = "Free the disk or set --runs-dir"
_SESSION_NAME = re.compile(rf"(?!(?:{'|'.join(NO_SESSIONS)})\Z)[A-Za-z0-9][A-Za-z0-9._-]{{0,99}}", re.ASCII)


@dataclass(frozen=True)
class ResultStore:
    """The folders of one session. Raises ResultError when the disk refuses."""

    root: Path
    session: str
    record: SessionRecord = field(default_factory=SessionRecord)

    def __post_init__(self) -> None:
        if _SESSION_NAME.fullmatch(self.session) is None:
            raise ResultError(
                "session name",
                got=self.session,
                expected="letters, digits, '.', '_' and '-', at most 100",
                remedy="It becomes a folder under the run folder, in which "
                + " and ".join(map(repr, NO_SESSIONS))
                + " are others'",
            )

    @property
    def folder(self) -> Path:
        return self.root / self.session

    @property
    def begun(self) -> bool:
        """Whether the session has begun a run, so that it can be resumed."""
        return (self.folder / SESSION_FILE).exists()

    def begin(self) -> None:
        """Keep what the session is, so that it can be resumed; called before its first run."""
        try:
            begin_session(self.folder, self.record)
        except OSError as error:
            raise ResultError(
                f"session {self.folder}", got=str(error), expected="a new folder", remedy=_NO_ROOM
            ) from error

    def run_folder(self, case_id: str, replicate: int) -> Path:
        return self.folder / case_id / f"r{replicate}"

    def new_run_folder(self, case_id: str, replicate: int) -> Path:
        """An empty folder for a run. Files that another run left there are moved aside, never overwritten."""
        self.begin()
        folder = self.run_folder(case_id, replicate)
        try:
            if folder.exists():
                folder.rename(_free_name(folder))
            make_folder(folder)
        except OSError as error:
            raise ResultError(
                f"run folder {folder}", got=str(error), expected="a new folder", remedy=_NO_ROOM
            ) from error
        return folder

    def write(self, result: RunResult) -> Path:
        """Write the whole ``result.json``, or raise ResultError with the figures that could not be written."""
        path = self.run_folder(result.case_id, result.replicate) / RESULT_FILE
        try:
            write_whole(path, result.to_json().encode())
        except (OSError, ValueError, TypeError) as error:
            full = isinstance(error, OSError)
            raise ResultError(
                f"result {path}",
                got=str(error),
                expected="room for a few kilobytes" if full else "plain JSON values, none of them NaN or infinite",
                remedy=f"{_what_is_lost(result)}. "
                + ("Free the disk, and go on with --resume" if full else "Report this run; it is not a measurement"),
            ) from error
        return path

    def add_verdict(self, results: tuple[RunResult, ...], verdict: Verdict) -> None:
        """Write the case's verdict into the results of the runs behind it."""
        record = {"status": verdict.status.value, "code": verdict.reason.code, "reason": verdict.reason.text}
        for result in results:
            if result.session == self.session:
                self.write(replace(result, verdict=record))

    def results(self, case_id: str) -> tuple[RunResult, ...]:
        """The case's finished runs of this session, by replicate. Runs that broke off have no result and are absent."""
        paths = (self.folder / case_id).glob(f"r*/{RESULT_FILE}")
        found = [self._read(path, case_id) for path in paths if re.fullmatch(r"r[0-9]+", path.parent.name)]
        return tuple(sorted(found, key=lambda result: result.replicate))

    def _read(self, path: Path, case_id: str) -> RunResult:
        result = read_result(path, within=self.root)
        for name, got, expected in (
            ("case_id", result.case_id, case_id),
            ("replicate", f"r{result.replicate}", path.parent.name),
        ):
            if got != expected:
                raise ResultError(
                    f"result {path}", field=name, got=got, expected=expected, remedy="It was moved: put it back"
                )
        return result


def read_result(path: Path, within: Path | None = None) -> RunResult:
    """Read one ``result.json`` strictly. Raises ResultError with the file and the key. The file must be in
    ``within``."""
    about = f"result {path}"
    try:
        record = parse(read_text_limited(path, MOST_RESULT_BYTES, within=within))
    except (OSError, ValueError, RecursionError, WrongRecord) as error:
        raise ResultError(about, got=str(error), expected="a result as JSON") from error
    return result_of_record(record, about)


def write_night(runs_folder: Path, night: NightRecord) -> Path:
    """Write a case's whole night, in place of an earlier one. Raises HistoryError if the disk refuses."""
    path = runs_folder / night.session / night.case_id / NIGHT_FILE
    try:
        make_folder(path.parent)
        write_whole(path, (night_text(night) + "\n").encode())
    except (OSError, ValueError, TypeError) as error:
        raise HistoryError(
            f"night {path}", got=str(error), expected="room for a few kilobytes of plain values", remedy="Free the disk"
        ) from error
    return path


def read_night(path: Path, within: Path | None = None) -> NightRecord:
    """Read one ``night.json`` strictly. Raises HistoryError with the file. The file must be in ``within``."""
    try:
        text = read_text_limited(path, MOST_NIGHT_BYTES, within=within)
    except (OSError, ValueError) as error:
        raise HistoryError(f"night {path}", got=str(error), expected="a night as JSON") from error
    return night_of(text, f"night {path}")


def is_session(root: Path, name: str) -> bool:
    """Whether ``sessions`` has the name; it looks at one folder only, because there may be thousands."""
    return _SESSION_NAME.fullmatch(name) is not None and (root / name).is_dir()


def sessions(root: Path) -> tuple[str, ...]:
    """Sessions with a folder under ``root``, oldest first."""
    if not root.is_dir():
        return ()
    folders = [folder for folder in root.iterdir() if folder.is_dir() and _SESSION_NAME.fullmatch(folder.name)]
    return tuple(folder.name for folder in sorted(folders, key=lambda folder: (folder.stat().st_mtime, folder.name)))


def session_record(root: Path, name: str) -> SessionRecord | None:
    """What the session ``name`` under ``root`` is; None if there is none, or none that has begun a run. Raises
    ResultError for a damaged file."""
    return read_session(root / name) if is_session(root, name) else None


def sessions_of(root: Path, kind: str) -> Iterator[str]:
    """The sessions of this kind under ``root``, newest first. Raises ResultError."""
    for name in reversed(sessions(root)):
        record = session_record(root, name)
        if record is not None and record.kind == kind:
            yield name


def _what_is_lost(result: RunResult) -> str:
    """The content of a result that cannot be written, in short: its figures, or why it has none."""
    run = f"{result.case_id} r{result.replicate}"
    rates = ", ".join(
        f"{value:.6g} {rate_unit(result.case_id)} by {rule}"
        for rule, value in result.figures.items()
        if not isinstance(value, str)
    )
    if rates:
        return f"Measured and not written: {run}, {rates}"
    # A run that broke off has no figures. The disk's failure must not hide the run's.
    why = result.failure or result.refusal or result.invalid or "no figure"
    return f"Not written: {run}, which measured nothing ({why})"


def _free_name(folder: Path) -> Path:
    number = 1
    while (other := folder.with_name(f"{folder.name}.aside{number}")).exists():
        number += 1
    return other
