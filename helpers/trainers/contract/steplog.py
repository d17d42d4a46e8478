"""The step log of one rank of a job, as JSON lines: header, steps, footer.

A rank is a process. If it drives several cards, a step is one step of all of them, from the start of the first to the
end of the last, and its samples are those of all cards.

Trainers write it; the suite reads it with steplog_reader. A log without a footer is that of a crashed run. Signs of
life go to a heartbeat file beside the log, so that the log contains only measurements.
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

# 1: first format.
STEP_LOG_SCHEMA_VERSION = 1

WARMUP = "warm-up"
WINDOW = "window"

# The windows at the end of warm-up must agree within the larger of two limits: a fraction of a step's time, and a
# number of standard errors of one window's mean (docs/verdicts.md, "Measure"). The test is repeated after every window,
# so it may be strict: of stationary warm-ups (1% noise per step, autocorrelation 0.3, windows of 20 steps) the limit 3
# rejects 28% at one test, but only 0.1% at all tests from step 60 to 220.
STEADY_SHARE = 0.003
STEADY_STANDARD_ERRORS = 3.0

# The phase of a rank's heartbeat while it trains steps under a profiler. Its step log is complete by then.
PROFILE = "profile"

COMPLETE = "complete"
REFUSED = "refused"
FAILED = "failed"


@dataclass(frozen=True)
class Header:
    """The identity of a log: its job, rank, process, framework and device."""

    job_id: str
    case_id: str
    replicate: int
    rank: int
    # How many ranks (processes) the job has.
    world_size: int
    host: str
    pid: int
    framework: str
    framework_version: str
    framework_commit: str
    # The device of the job: ``cpu`` or ``gpu``.
    device: str
    # Facts on which a result depends: the device's name, flags, the TF32 state, threads.
    facts: Mapping[str, str] = field(default_factory=dict)
    # How many cards this process drives.
    cards_per_process: int = 1


@dataclass(frozen=True)
class Step:
    """One optimizer step of one rank."""

    epoch: int
    # Counted within the epoch.
    step: int
    # WARMUP or WINDOW.
    phase: str
    # In seconds of the host's monotonic clock. After a run's first step a card's own clock may go on from it.
    start: float
    end: float
    # The samples of this rank, on all of its cards.
    samples: int
    # The part of the step's time spent waiting for data.
    reader_seconds: float
    # None if it was not fetched.
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
    # The peak memory of the rank's card; for several cards the largest.
    peak_device_bytes: int = 0


@dataclass(frozen=True)
class StepLog:
    """A step log that is whole and consistent."""

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
    """How far the last windows of a warm-up differ. With fewer than STEADY_WINDOWS windows it is not steady."""

    # The mean seconds of a step in each window, oldest first.
    means: Tuple[float, ...]
    # The distance between the largest and the smallest mean, as a fraction of the mean of all.
    spread: float
    # The largest spread that counts as steady.
    limit: float

    @property
    def steady(self) -> bool:
        return len(self.means) == STEADY_WINDOWS and self.spread <= self.limit


def steadiness(step_seconds: Sequence[float], window_steps: int) -> Steadiness:
    """Whether a warm-up is steady, from the seconds of one rank's steps in it; a window has ``window_steps`` steps.

    The trainer, and later the suite that reads its log, call this with the same recorded numbers. The standard error is
    that of the window with the median variance: with the largest variance, a stall or a first step ten times as long
    would allow any difference. Raises StepLogError if a window has fewer than 2 steps.
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
    """Writes the log of one rank. Each line is passed to the kernel whole, so if the process is killed, at most the
    last line is lost."""

    def __init__(self, path: Path, header: Header) -> None:
        self._file: IO[str] = path.open("x", encoding="utf-8")
        self._line("header", dict(asdict(header), schema=STEP_LOG_SCHEMA_VERSION, facts=dict(header.facts)))

    def step(self, step: Step) -> None:
        self.steps((step,))

    def steps(self, steps: Iterable[Step]) -> None:
        """Append several steps with one write (times of a device become known in blocks)."""
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


def _no_link(name: str, flags: int) -> int:
    """Opens a file that may be there already, and raises OSError for a link that another user put in its place."""
    return os.open(name, flags | os.O_NOFOLLOW, 0o666)


class Heartbeat:
    """A rank's signs of life for its supervisor: phase and step, one JSON line each. No measured number is taken from
    them."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = open(path, "a", encoding="utf-8", opener=_no_link)  # noqa: SIM115

    def beat(self, phase: str, step: int = 0, monotonic_seconds: float = 0.0) -> None:
        """Write a sign of life. ``phase`` is free text such as ``import framework``; ``step`` counts from 1 through
        warm-up and window."""
        self._write({"phase": phase, "step": step, "monotonic_seconds": monotonic_seconds})

    def begin(self, step: int) -> None:
        """Write that this rank has its data for the step and begins to compute."""
        self._write({"begun": step})

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
