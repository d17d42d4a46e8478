"""Reads where the ranks' profilers said that the time of a step goes (contract/step_profile.py)."""

from __future__ import annotations

from pathlib import Path

from helpers.machine.files import MOST_INDEX_BYTES, MOST_RESULT_BYTES, read_text_limited
from helpers.trainers.contract.errors import StepLogError, SuiteError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import NoProfile, StepProfile, from_json


def step_profiles(run_folder: Path) -> tuple[StepProfile | NoProfile, ...]:
    """What each rank of this node said of the run in ``run_folder``, by rank; why, if one said nothing. Raises
    SuiteError and OSError if the run's job cannot be read."""
    path = run_folder / "spec.json"
    spec = JobSpec.from_json(read_text_limited(path, MOST_RESULT_BYTES, within=run_folder), about=str(path))
    return tuple(_of_rank(spec, run_folder, rank) for rank in range(spec.ranks_per_node))


def _of_rank(spec: JobSpec, folder: Path, rank: int) -> StepProfile | NoProfile:
    path, framework = folder / spec.step_profile_path(rank).name, spec.case.framework.value
    try:
        text = read_text_limited(path, MOST_INDEX_BYTES, within=folder)
        if not text:
            reason = "its file is empty, as on a full disk; the run's output says more"
            return NoProfile(framework, rank, "the framework's profiler", reason)
        found = from_json(text, about=str(path))
    except FileNotFoundError:
        reason = "the process ended, or was ended, before its profiler had answered; its output says more"
        return NoProfile(framework, rank, "the framework's profiler", reason)
    except (OSError, UnicodeDecodeError, SuiteError) as error:
        return NoProfile(framework, rank, "the framework's profiler", str(error))
    if found.rank != rank:
        wrong = StepLogError(str(path), field="rank", got=found.rank, expected=str(rank))
        return NoProfile(framework, rank, "the framework's profiler", str(wrong))
    return found
