"""A night on disk beside its runs, so that history is never the only copy: ``runs/<session>/<case>/night.json``."""

from __future__ import annotations

from pathlib import Path

from helpers.errors import HistoryError
from helpers.files import write_whole
from helpers.history.codec import night_of, night_text
from helpers.history.records import NightRecord

NIGHT_FILE = "night.json"


def write_night(runs_folder: Path, night: NightRecord) -> Path:
    """Write the night whole, in place of an earlier one. Raises HistoryError when the disk refuses."""
    path = runs_folder / night.session / night.case_id / NIGHT_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (night_text(night) + "\n").encode())
    except (OSError, ValueError, TypeError) as error:
        raise HistoryError(
            f"night {path}", got=str(error), expected="room for a few kilobytes of plain values", remedy="Free the disk"
        ) from error
    return path


def read_night(path: Path) -> NightRecord:
    """Raises HistoryError, with the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise HistoryError(f"night {path}", got=str(error), expected="a night as JSON") from error
    return night_of(text, f"night {path}")
