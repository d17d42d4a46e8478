"""The judged cases of the run folder that a history does not have yet: an empty file for each, under
``runs/.not-in-history``. Their runs and nights are in the folders of their sessions."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from helpers.common.files import make_folder
from helpers.common.masking import without_password
from helpers.history import default_url
from helpers.history.codec import digest
from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.run_folders import NIGHT_FILE, ResultStore, read_night
from helpers.trainers.contract.errors import HistoryError

FOLDER = ".not-in-history"


@dataclass(frozen=True, order=True)
class JudgedCase:
    """A case of a session, whose night is in the run folder."""

    session: str
    case_id: str


@dataclass(frozen=True)
class Unwritten:
    """What one history lacks of ``runs_folder``; ``shown`` is its URL without the password. Raises HistoryError if the
    disk refuses."""

    runs_folder: Path
    name: str
    shown: str

    @staticmethod
    def of(runs_folder: Path, url: str) -> Unwritten:
        shown = without_password(url)
        # The file in the run folder stays the same history, wherever that folder is moved.
        own = url == default_url(runs_folder)
        name = "own" if own else digest(re.sub(r"^postgres(ql)?([+]\w+)?://", "postgresql://", shown))[:16]
        return Unwritten(runs_folder.absolute(), name, shown)

    @property
    def folder(self) -> Path:
        return self.runs_folder / FOLDER / self.name

    def make_folder(self) -> None:
        try:
            for folder in (self.folder.parent, self.folder):
                if folder.is_symlink():
                    raise OSError(f"{folder} is a symbolic link")
            make_folder(self.folder)
        except OSError as error:
            raise self._refusal(error) from error

    def add(self, case: JudgedCase) -> None:
        self.make_folder()
        try:
            os.close(os.open(self._path(case), os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            raise self._refusal(error) from error

    def remove(self, case: JudgedCase) -> None:
        # It is written again if it stays.
        with contextlib.suppress(OSError):
            self._path(case).unlink()

    def cases(self) -> tuple[JudgedCase, ...]:
        """Those that wait, by session."""
        names = [path.name.partition(" ") for path in self.folder.glob("[!.]* *")]
        return tuple(sorted(JudgedCase(session, case_id) for session, _, case_id in names))

    def read(self, case: JudgedCase) -> tuple[tuple[RunResult, ...], NightRecord]:
        """The case's runs and its night. Raises SuiteError for files that cannot be read."""
        runs = ResultStore(self.runs_folder, case.session).results(case.case_id)
        return runs, read_night(self.folder_of(case) / NIGHT_FILE, within=self.runs_folder)

    def folder_of(self, case: JudgedCase) -> Path:
        """Where the case's files are."""
        return self.runs_folder / case.session / case.case_id

    def _path(self, case: JudgedCase) -> Path:
        return self.folder / f"{case.session} {case.case_id}"

    def _refusal(self, error: OSError) -> HistoryError:
        return HistoryError(
            f"history {self.shown}",
            field="folder of what it lacks",
            got=str(error),
            expected=f"{self.folder}, which can be written",
            remedy="Free the disk or the rights on the run folder",
        )
