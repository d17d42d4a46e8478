"""The step log: what one rank of one job recorded, as JSON lines (header, steps, footer).

Trainers write it (standard library, Python 3.8 syntax); the suite reads it with steplog_reader. A
file without a footer is a crashed run. Life signs go to a heartbeat file beside the log, so that
nothing but measurements stands in the log.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Tuple

from helpers.errors import StepLogError
from helpers.job import STEADY_WINDOWS

# 1: first format.
STEP_LOG_SCHEMA_VERSION = 1

WARMUP = "warm-up"
WINDOW = "window"

# The windows at the end of warm-up must agree within the larger of the two (VERDICT.md, Measure): a share of a
# step's time, and so many standard errors of one window's mean.
STEADY_SHARE = 0.003
STEADY_STANDARD_ERRORS = 3.0

COMPLETE = "complete"
REFUSED = "refused"
FAILED = "failed"


@dataclass(frozen=True)
class Header:
    """Who recorded, where, with what.

    ``device`` is the job's ``cpu`` or ``gpu``. ``facts`` holds what a result depends on: the device's
    name, flags, the TF32 state, threads.
    """

    job_id: str
    case_id: str
    replicate: int
    rank: int
    world_size: int
    host: str
    pid: int
    framework: str
    framework_version: str
    framework_commit: str
    device: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One optimizer step of one rank; ``start`` and ``end`` in seconds of that host's monotonic clock.

    ``samples`` images went through this rank. ``reader_seconds`` of the step were spent waiting for
    data. ``loss`` is None where it was not fetched.
    """

    epoch: int
    step: int
    phase: str
    start: float
    end: float
    samples: int
    reader_seconds: float
    loss: float | None = None

    @property
    def step_seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Footer:
    """How the run ended: ``complete``, ``refused`` (this device or build cannot run the case) or ``failed``."""

    status: str
    reason: str = ""
    peak_host_bytes: int = 0
    peak_device_bytes: int = 0


@dataclass(frozen=True)
class StepLog:
    """A log that was read whole and found consistent."""

    path: str
    header: Header
    steps: tuple[Step, ...]
    footer: Footer

    @property
    def warmup(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.phase == WARMUP)

    @property
    def window(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.phase == WINDOW)


@dataclass(frozen=True)
class Steadiness:
    """How far the last windows of a warm-up are apart: ``means`` are seconds a step, oldest first.

    ``spread`` is the distance of the farthest two as a share of the mean of all, ``limit`` the largest that counts as
    steady. Fewer than STEADY_WINDOWS windows are never steady.
    """

    means: Tuple[float, ...]
    spread: float
    limit: float

    @property
    def steady(self) -> bool:
        return len(self.means) == STEADY_WINDOWS and self.spread <= self.limit


def steadiness(step_seconds: Sequence[float], window_steps: int) -> Steadiness:
    """Whether a warm-up is over, from the seconds of one rank's steps in it; ``window_steps`` make one window.

    The trainer and the suite that judges its log ask the same of the same recorded numbers. The standard error is that
    of the window in the middle by its steps' deviation: one stall, or a first step ten times as long, would make
    room for any difference. Raises StepLogError where a window has no deviation.
    """
    if window_steps < 2:
        raise StepLogError("steadiness", field="window_steps", got=window_steps, expected="2 or more steps a window")
    most = min(STEADY_WINDOWS, len(step_seconds) // window_steps)
    first = len(step_seconds) - most * window_steps
    windows = [step_seconds[at : at + window_steps] for at in range(first, len(step_seconds), window_steps)]
    means = tuple(statistics.fmean(window) for window in windows)
    if not means:
        return Steadiness((), 0.0, 0.0)
    variance = statistics.median([statistics.variance(window) for window in windows])
    centre = statistics.fmean(means)
    limit = max(STEADY_SHARE, STEADY_STANDARD_ERRORS * math.sqrt(variance / window_steps) / centre)
    return Steadiness(means, (max(means) - min(means)) / centre, limit)


class StepLogWriter:
    """Writes one rank's log; each line is handed to the kernel whole, so a kill loses at most the last one."""

    def __init__(self, path: Path, header: Header) -> None:
        self._file: IO[str] = path.open("x", encoding="utf-8")
        self._line("header", dict(asdict(header), schema=STEP_LOG_SCHEMA_VERSION, facts=dict(header.facts)))

    def step(self, step: Step) -> None:
        self.steps((step,))

    def steps(self, steps: Iterable[Step]) -> None:
        """Append a block of steps, with one write (device times are resolved in blocks)."""
        for step in steps:
            self._file.write(json.dumps(dict(asdict(step), kind="step")) + "\n")
        self._file.flush()

    def footer(self, footer: Footer) -> None:
        self._line("footer", asdict(footer))
        os.fsync(self._file.fileno())
        self._file.close()

    def _line(self, kind: str, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(dict(record, kind=kind), sort_keys=True) + "\n")
        self._file.flush()


class Heartbeat:
    """A rank's life signs for its supervisor: phase and step, one JSON line each, never read for numbers."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("a", encoding="utf-8")

    def beat(self, phase: str, step: int = 0, monotonic_seconds: float = 0.0) -> None:
        """``phase`` is free text such as ``import framework``; ``step`` counts from 1 over warm-up and window."""
        self._write({"phase": phase, "step": step, "monotonic_seconds": monotonic_seconds})

    def begin(self, step: int) -> None:
        """This rank has its data for the step and computes from now on, with the others."""
        self._write({"begun": step})

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
