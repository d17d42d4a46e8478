"""The pairs of runs that an explanation has made so far, on disk, so that an interrupted one goes on with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers.machine.files import MOST_RESULT_BYTES, read_text_limited, write_whole
from helpers.trainers.contract.errors import ResultError

# The folder of the profiled runs within the session's.
FOLDER = "explained"
# In the folder of the case's profiled runs.
PAIRS_FILE = "pairs.json"
PAIRS_VERSION = 1


@dataclass(frozen=True)
class MadePairs:
    """What one explanation of a case has made."""

    # The steps that each run trained under the profiler.
    steps: int
    # What the profilers did not record.
    without: tuple[str, ...] = ()
    # The numbers of each pair's runs: that of the reference, then that of the build under test.
    pairs: tuple[tuple[int, int], ...] = ()
    # How many runs were made for them, also those that are in no pair.
    runs: int = 0
    notes: tuple[str, ...] = ()
    # Whether the pairs were compared. Then none is added: who looks again after some more names what is chance more
    # often.
    compared: bool = False

    def write(self, folder: Path) -> None:
        """Raises OSError."""
        text = json.dumps({"pairs_version": PAIRS_VERSION, **asdict(self)}, indent=1) + "\n"
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / PAIRS_FILE, text.encode())


def read_pairs(folder: Path) -> MadePairs | None:
    """What lies in ``folder``; None if nothing does. Raises ResultError if it is damaged."""
    path = folder / PAIRS_FILE
    try:
        values = json.loads(read_text_limited(path, MOST_RESULT_BYTES, within=folder))
        return _pairs_of(values)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ResultError(
            str(path),
            got=repr(error),
            expected="pairs that this program wrote",
            remedy="Without --resume the case is explained anew",
        ) from error


def _pairs_of(values: Mapping[str, Any]) -> MadePairs:
    if values["pairs_version"] != PAIRS_VERSION:
        raise ValueError(f"version {values['pairs_version']}")
    return MadePairs(
        steps=int(values["steps"]),
        without=tuple(map(str, values["without"])),
        pairs=tuple((int(reference), int(candidate)) for reference, candidate in values["pairs"]),
        runs=int(values["runs"]),
        notes=tuple(map(str, values["notes"])),
        compared=values["compared"] is True,
    )
