"""Reads what the ranks' profilers found: how long a card computed for a step (contract/device_time.py), and where the
time of a step goes (contract/step_profile.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from helpers.machine.files import MOST_INDEX_BYTES, MOST_NOTE_BYTES, MOST_RESULT_BYTES, read_text_limited
from helpers.trainers.contract.device_time import DeviceTime
from helpers.trainers.contract.errors import StepLogError, SuiteError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import NoProfile, StepProfile, from_json

# The name of a profiler that did not answer.
_A_PROFILER = "the framework's profiler"
# Of a rank without an answer. Where another rank's profiler failed, it may only have waited for that rank.
NO_ANSWER = "the process ended, or was ended, before its profiler had answered; its output says more"


def device_time_facts(spec: JobSpec, step_seconds: float) -> dict[str, str]:
    """The facts of a result that say how long a card computed for a step: the largest value of this node's cards, or
    that it is unknown if one rank does not know it.

    ``step_seconds`` are those of a step in the window. Empty if no step was to be profiled.
    """
    if not spec.profiled_steps:
        return {}
    found = [_device_time(spec, rank) for rank in range(spec.ranks_per_node)]
    for rank, each in enumerate(found):
        if each.seconds_per_step is None:
            return replace(each, reason=f"rank {rank}: {each.reason}").facts(step_seconds)
    return max(found, key=lambda each: each.seconds_per_step or 0.0).facts(step_seconds)


def _device_time(spec: JobSpec, rank: int) -> DeviceTime:
    path = spec.device_time_path(rank)
    try:
        return DeviceTime.from_json(read_text_limited(path, MOST_NOTE_BYTES, within=path.parent), about=str(path))
    except FileNotFoundError:
        reason = "it ended before its profiler had answered; its output says more"
    except (OSError, UnicodeDecodeError, StepLogError) as error:
        reason = str(error)
    return DeviceTime(_A_PROFILER, spec.profiled_steps, None, reason)


def step_profiles(run_folder: Path) -> tuple[StepProfile | NoProfile, ...]:
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
