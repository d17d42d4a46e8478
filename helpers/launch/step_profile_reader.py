"""Reads what the ranks' profilers found: where the time of a step goes (contract/step_profile.py)."""

from __future__ import annotations

from pathlib import Path

from helpers.common.files import MOST_INDEX_BYTES, MOST_RESULT_BYTES, read_text_limited
from helpers.trainers.contract.errors import StepLogError, SuiteError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import NoProfile, StepProfile, from_json

# The name of a profiler that did not answer.
_A_PROFILER = "the framework's profiler"
# Of a rank without an answer. Where another rank's profiler failed, it may only have waited for that rank.
NO_ANSWER = "the process ended, or was ended, before its profiler had answered; its output says more"


def read_step_profiles(run_folder: Path) -> tuple[StepProfile | NoProfile, ...]:
    """The profiles of this node's ranks, by rank; a NoProfile says why a rank has none.

    ``run_folder`` is that of the run. Raises SuiteError and OSError if the run's job cannot be read.
    """
    path = run_folder / "spec.json"
    spec = JobSpec.from_json(read_text_limited(path, MOST_RESULT_BYTES, within=run_folder), about=str(path))
    return tuple(_profile(spec, run_folder, rank) for rank in range(spec.ranks_per_node))


def _profile(spec: JobSpec, folder: Path, rank: int) -> StepProfile | NoProfile:
    path = folder / spec.step_profile_path(rank).name
    try:
        text = read_text_limited(path, MOST_INDEX_BYTES, within=folder)
        if text:
            found = from_json(text, about=str(path))
            if found.rank == rank:
                return found
            raise StepLogError(str(path), field="rank", got=found.rank, expected=str(rank))
        reason = "its file is empty, as on a full disk; the run's output says more"
    except FileNotFoundError:
        reason = NO_ANSWER
    except (OSError, UnicodeDecodeError, SuiteError) as error:
        reason = str(error)
    return NoProfile(spec.case.framework.value, rank, _A_PROFILER, reason)
