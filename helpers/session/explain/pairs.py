"""The pairs of runs that an explanation has made so far, on disk, so that an interrupted one goes on with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from helpers.common.files import MOST_RESULT_BYTES, make_folder, read_limited, write_whole
from helpers.trainers.contract.errors import ResultError

# The folder of the profiled runs within the session's.
FOLDER = "explained"
# In the folder of the case's profiled runs.
PAIRS_FILE = "pairs.json"


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
        make_folder(folder)
        write_whole(folder / PAIRS_FILE, msgspec.json.format(msgspec.json.encode(self), indent=1))


def read_pairs(folder: Path) -> MadePairs | None:
    """What lies in ``folder``; None if nothing does. Raises ResultError if it is damaged."""
    path = folder / PAIRS_FILE
    try:
        return msgspec.json.decode(read_limited(path, MOST_RESULT_BYTES, within=folder), type=MadePairs)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(
            str(path),
            got=str(error),
            expected="pairs that this program wrote",
            remedy="Without --resume the case is explained anew",
        ) from error
