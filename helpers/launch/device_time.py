"""Reads what the ranks' profilers said of the steps after the window (contract/device_time.py)."""

from __future__ import annotations

from dataclasses import replace

from helpers.machine.files import MOST_NOTE_BYTES, read_text_limited
from helpers.trainers.contract.device_time import DeviceTime
from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.job import JobSpec


def device_time_facts(spec: JobSpec, step_seconds: float) -> dict[str, str]:
    """The facts of a result that say how long a card computed for a step: of this node's cards the one on which it was
    longest. ``step_seconds`` are the window's. Empty if no step was to be profiled. If one rank does not know it, it
    is unknown."""
    if not spec.profiled_steps:
        return {}
    ranks = range(spec.ranks_per_node)
    found = [_of_rank(spec, rank) for rank in ranks]
    unknown = [replace(each, reason=f"rank {rank}: {each.reason}") for rank, each in zip(ranks, found, strict=True)
               if each.seconds_per_step is None]  # fmt: skip
    return (unknown or [max(found, key=lambda each: each.seconds_per_step or 0.0)])[0].facts(step_seconds)


def _of_rank(spec: JobSpec, rank: int) -> DeviceTime:
    path = spec.device_time_path(rank)
    try:
        return DeviceTime.from_json(read_text_limited(path, MOST_NOTE_BYTES, within=path.parent), about=str(path))
    except FileNotFoundError:
        lost = "it ended before its profiler had answered; its output says more"
        return DeviceTime("the framework's profiler", spec.profiled_steps, None, lost)
    except (OSError, UnicodeDecodeError, StepLogError) as error:
        return DeviceTime("the framework's profiler", spec.profiled_steps, None, str(error))
