"""Looks at the logs of a few training steps: does the loss fall, do the two clocks agree, are the ranks' weights equal?
Pure, but for reading the files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.common.files import MOST_NOTE_BYTES, read_text_limited
from helpers.launch.steplog_reader import read_step_log
from helpers.trainers.contract.errors import ResultError, SuiteError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import counts_of
from helpers.trainers.contract.steplog import WARMUP, WINDOW, StepLog

# The window by the steps' clock (on a GPU CUDA's events) over that by the host's heartbeats, which also has the time
# in which the log is written.
CLOCK_TOLERANCE = 0.10


@dataclass(frozen=True)
class Found:
    """What the logs of one run show."""

    faults: tuple[str, ...]
    # The numbers, as one line.
    message: str


def look_at(spec: JobSpec, *, compare_ranks: bool) -> Found:
    """Look at the logs of all ranks of a run. Raises SuiteError if one of its files cannot be read."""
    logs = [read_step_log(spec.step_log_path(rank), spec.job_id, rank) for rank in range(spec.ranks)]
    first, last = _losses(logs[0])
    ratio = clock_ratio(logs[0], _beats(spec.heartbeat_path(0)))
    faults = [] if last < first else [f"the loss did not fall: {first:.4g} at the first step, {last:.4g} at the last"]
    if not abs(ratio - 1) <= CLOCK_TOLERANCE:
        faults.append(f"the steps' clock gives {ratio:.3f} of the host's time, expected 1 within {CLOCK_TOLERANCE:g}")
    told = [f"loss {first:.4g} to {last:.4g} in {len(logs[0].steps)} steps", f"steps' clock over host's {ratio:.3f}"]
    if compare_ranks:
        sums = [_weights(spec.weights_path(rank)) for rank in range(spec.ranks)]
        faults += unequal(sums)
        told.append(f"sum of each rank's weights {', '.join(f'{each:.9g}' for each in sums)}")
        joined = (counts_of(logs[0].header.facts) or {}).get("all_reduce")
        told.append("no program to count all-reduces in" if joined is None else f"{joined} all-reduces in the program")
        if joined == 0:
            faults.append("the program has no all-reduce")
    return Found(tuple(faults), "; ".join(told))


def unequal(sums: Sequence[float]) -> list[str]:
    """What is wrong with the ranks' sums of weights: all add the same gradients, so they must be equal to the bit."""
    if len(set(sums)) == 1 and math.isfinite(sums[0]):
        return []
    return [f"the ranks' weights differ: their sums are {', '.join(map(repr, sums))}"]


def clock_ratio(log: StepLog, beats: Mapping[tuple[str, int], float]) -> float:
    """The seconds of the window by its steps, over the host's seconds between the last life sign of the warm-up and
    that of the window, before each of which the host waits for the device. Raises ResultError if a life sign is
    missing."""
    before = (WARMUP, len(log.warmup))
    after = (WINDOW, len(log.steps))
    if before not in beats or after not in beats or beats[after] <= beats[before]:
        raise ResultError(f"life signs of {log.path}", got=f"no time from {before} to {after}", expected="both in turn")
    return math.fsum(step.step_seconds for step in log.window) / (beats[after] - beats[before])


def _losses(log: StepLog) -> tuple[float, float]:
    found = [step.loss for step in log.steps if step.loss is not None]
    if len(found) < 2:
        raise ResultError(log.path, field="loss", got=f"{len(found)} losses", expected="2 or more")
    return found[0], found[-1]


def _beats(path: Path) -> dict[tuple[str, int], float]:
    records = _records(path)
    return {(each["phase"], each["step"]): each["monotonic_seconds"] for each in records if "phase" in each}


def _weights(path: Path) -> float:
    (record,) = _records(path)
    value = record.get("absolute_sum")
    if not isinstance(value, float):
        raise ResultError(str(path), field="absolute_sum", got=value, expected="a number")
    return value


def _records(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file that a rank wrote, one a line."""
    try:
        return [dict(json.loads(line)) for line in read_text_limited(path, MOST_NOTE_BYTES).splitlines()]
    except (OSError, ValueError, TypeError) as error:
        raise ResultError(str(path), got=str(error), expected="a JSON object a line, by the rank") from error


def spec_of(run_folder: Path) -> JobSpec:
    """The job of a run's folder. Raises SuiteError."""
    path = run_folder / "spec.json"
    try:
        return JobSpec.from_json(read_text_limited(path, MOST_NOTE_BYTES), str(path))
    except OSError as error:
        raise SuiteError(str(path), got=str(error), expected="the job of the run") from error
