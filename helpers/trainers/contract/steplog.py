"""The step log: what one rank of one job recorded, as JSON lines (header, steps, footer).

A rank is a process. It may drive several cards: a step is then one step of all of them, from the start of the first to
the end of the last, and its samples are those of all.

Trainers write it; the suite reads it with steplog_reader. A
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

from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.job import STEADY_WINDOWS

# 1: first format; each process drives one card.
# 2: the header says how many cards the process drives.
STEP_LOG_SCHEMA_VERSION = 2
STEP_LOG_SCHEMAS_READ = (1, 2)

WARMUP = "warm-up"
WINDOW = "window"

# docs/verdicts.md, "Measure": the windows at the end of warm-up must agree within the larger of the two, a share of a
# step's time and so many standard errors of one window's mean.
STEADY_SHARE = 0.003
STEADY_STANDARD_ERRORS = 3.0
# A run whose ranks cannot ask each other warms up for the whole budget and is looked at once, which the header says.
STEADINESS_FACT = "steadiness"
LOOKED_ONCE = "looked at once, at the end of the warm-up's budget"

COMPLETE = "complete"
REFUSED = "refused"
FAILED = "failed"


@dataclass(frozen=True)
class Header:
    """Who recorded, where, with what."""

    job_id: str
    case_id: str
    replicate: int
    rank: int
    # The ranks of the job, which are its processes.
    world_size: int
    host: str
    pid: int
    framework: str
    framework_version: str
    framework_commit: str
    # The job's: ``cpu`` or ``gpu``.
    device: str
    # What a result depends on: the device's name, flags, the TF32 state, threads.
    facts: Mapping[str, str] = field(default_factory=dict)
    # The cards that this process drives.
    cards_per_process: int = 1


@dataclass(frozen=True)
class Step:
    """One optimizer step of one rank."""

    epoch: int
    # Counts within the epoch.
    step: int
    # WARMUP or WINDOW.
    phase: str
    # In seconds of the host's monotonic clock.
    start: float
    end: float
    # Those that went through this rank, through all of its cards.
    samples: int
    # The part of the step that was spent waiting for data.
    reader_seconds: float
    # None where it was not fetched.
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
    # Of the rank's card; of several the largest.
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
    """How far the last windows of a warm-up are apart. Fewer than STEADY_WINDOWS windows are never steady."""

    # Of each window, in seconds a step, oldest first.
    means: Tuple[float, ...]
    # The distance of the farthest two as a share of the mean of all.
    spread: float
    # The largest spread that counts as steady.
    limit: float

    @property
    def steady(self) -> bool:
        return len(self.means) == STEADY_WINDOWS and self.spread <= self.limit


def standard_errors(window_steps: int, looked_once: bool = False) -> float:
    """How many standard errors of a window the last windows may be apart.

    One that looks again after every window may be strict: of stationary warm-ups (1% of noise a step, autocorrelation
    0.3) 3 turns away 28% at a look of 20-step windows, and 0.1% at all of its looks from step 60 to 220. One look must
    be right alone: the farthest two of three windows are within 4.12 standard errors in 99% (studentized range), the
    autocorrelation makes 1.36 of 1 (square root of 1.3 / 0.7), and the error itself is an estimate, the more so the
    fewer steps a window has. The curve lies on or above the simulated 99% points from 3 steps a window on: 11.8, 7.9
    (5 steps), 6.6 (10), 6.1 (20), 5.8 (40).
    """
    return 5.65 + 9.3 / (window_steps - 1.5) if looked_once else STEADY_STANDARD_ERRORS


def steadiness(step_seconds: Sequence[float], window_steps: int, looked_once: bool = False) -> Steadiness:
    """Whether a warm-up is over, from the seconds of one rank's steps in it; ``window_steps`` make one window.

    ``looked_once``: nobody looks again, so the limit is that of ``standard_errors`` for one look.
    The trainer, and the suite that judges its log, call this with the same recorded numbers. The standard error is that
    of the window whose variance is the median: with the largest one, a stall or a first step ten times as long would
    make room for any difference. Raises StepLogError where a window has no deviation.
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
    errors = standard_errors(window_steps, looked_once)
    limit = max(STEADY_SHARE, errors * math.sqrt(variance / window_steps) / centre)
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
