"""A night on disk beside its runs, so that history is never the only copy: ``runs/<session>/<case>/night.json``."""

from __future__ import annotations

from pathlib import Path

from helpers.history.codec import night_of, night_text
from helpers.history.records import NightRecord
from helpers.machine.files import write_whole
from helpers.machine.opening import MOST_NIGHT_BYTES, read_text_limited
from helpers.trainers.contract.errors import HistoryError

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


def read_night(path: Path, within: Path | None = None) -> NightRecord:
    """Raises HistoryError, with the file, also where that does not lie in ``within``."""
    try:
        text = read_text_limited(path, MOST_NIGHT_BYTES, within=within)
    except (OSError, ValueError) as error:
        raise HistoryError(f"night {path}", got=str(error), expected="a night as JSON") from error
    return night_of(text, f"night {path}")
