"""Follows the files that the ranks of a running job write, for the progress line and the supervisor. Measured numbers
are never taken from here."""

from __future__ import annotations

import json
import math
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.common.files import open_regular
from helpers.judging.finding import Finding
from helpers.launch.steplog_reader import MOST_LINE_BYTES
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.records import finite
from helpers.trainers.contract.steplog import WARMUP, WINDOW

# The name of the phase in which warm-up goes on beyond the steps that every run makes.
EXTENDED = "warm-up extended"
# The progress line shows the mean rate over so many steps: steady enough to read, and still following the job.
_RECENT_STEPS = 10
_CHUNK_BYTES = 2**20
# Larger values are not added up, since sums could overflow; no run has so many seconds or samples.
_MOST_SHOWN = 1e12


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    case_id: str
    replicate: int
    phase: str
    # Counted from 1 through warm-up and window.
    step: int
    # The number of all steps of the job: 0 while its case waits for cards; it grows when warm-up is extended.
    steps: int
    # The rate of all ranks together; None before it is known.
    samples_per_s: float | None
    seconds_left: float | None
    # Which build runs (empty where it is not known), and why the judge asked for this run.
    build: str = ""
    why: Finding | None = None
    # Whether its line stays above those that follow.
    stays: bool = False


class LineTail:
    """Reads the new whole lines of a growing file, which may not exist yet. A line that is still being written is read
    later.

    Bad content does not stop the watching, since the strict reader checks the log later. After a line longer than that
    reader accepts, the file is read no further.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._given_up = False

    def new_records(self) -> list[dict[str, Any]]:
        """The JSON objects of the lines written since the last call; other lines are left out."""
        records: list[dict[str, Any]] = []
        try:
            with open_regular(self._path) as file:
                # Only up to the file's present end: a rank that writes without end must not block the watching.
                end = os.fstat(file.fileno()).st_size
                file.seek(self._offset)
                while (
                    not self._given_up
                    and self._offset < end
                    and (data := file.read(min(_CHUNK_BYTES, end - self._offset)))
                ):
                    self._offset += len(data)
                    records += filter(None, map(_object, self._lines(data)))
        except OSError:
            return records
        return records

    def _lines(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) >= MOST_LINE_BYTES:
            self._given_up, self._rest = True, b""
        return lines


class RankWatch:
    """One rank of a job, seen through its step log and its heartbeat file."""

    def __init__(self, spec: JobSpec, rank: int, host: str = "") -> None:
        self.rank = rank
        # The rank's name in messages, with its host if the job has several.
        self.name = f"rank {rank} on {host}" if host else f"rank {rank}"
        self.pid: int | None = None
        self.footer: dict[str, Any] | None = None
        self.last_growth: float | None = None
        # When its process was first found gone.
        self.gone_at: float | None = None
        # The last step for which it has received its data.
        self.begun = 0
        self.log_path = spec.step_log_path(rank)
        self._log = LineTail(self.log_path)
        self._heartbeat = LineTail(spec.heartbeat_path(rank))
        self._spec = spec
        self._steps_logged = 0
        self._warmup_logged = 0
        self._beat_phase = "start"
        self._beat_step = 0
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=_RECENT_STEPS)

    def poll(self, at: float) -> None:
        """Read what the rank has written since the last call; ``at`` is the time now."""
        records = self._log.new_records()
        beats = self._heartbeat.new_records()
        if records or beats:
            self.last_growth = at
        for record in records:
            self._take(record)
        for beat in beats:
            if "begun" in beat:
                self.begun = _whole(beat["begun"])
                continue
            self._beat_phase = str(beat.get("phase", self._beat_phase))
            self._beat_step = _whole(beat.get("step"))

    @property
    def step(self) -> int:
        return max(self._steps_logged, self._beat_step)

    @property
    def steps(self) -> int:
        """The number of all steps of the job, as far as known: an extended warm-up counts up to its next test for
        steadiness."""
        return self._warmup_steps + self._spec.window_steps

    @property
    def phase(self) -> str:
        if self.step == 0 or self.footer is not None:
            return self._beat_phase
        if self._in_window:
            return WINDOW
        return WARMUP if self.step <= self._spec.warmup_steps else EXTENDED

    @property
    def _in_window(self) -> bool:
        return self._beat_phase == WINDOW or self._steps_logged > self._warmup_logged

    @property
    def _warmup_steps(self) -> int:
        spec = self._spec
        if self._in_window:
            # All warm-up steps are logged before the window begins, but a node's log may arrive later than its
            # heartbeat.
            return max(spec.warmup_steps, self._warmup_logged)
        over = max(0, self.step - spec.warmup_steps)
        windows = -(-over // spec.steady_window_steps) if spec.steady_window_steps else 0
        return min(spec.longest_warmup_steps, spec.warmup_steps + windows * spec.steady_window_steps)

    @property
    def footer_status(self) -> str | None:
        return None if self.footer is None else str(self.footer.get("status"))

    @property
    def footer_reason(self) -> str:
        return "" if self.footer is None else str(self.footer.get("reason", ""))

    def progress(self) -> Progress:
        spec, rate, left = self._spec, None, None
        if self._recent:
            seconds = self._recent[-1][1] - self._recent[0][0]
            if seconds > 0:
                rate = spec.ranks * sum(samples for _, _, samples in self._recent) / seconds
                left = max(0, self.steps - self.step) * seconds / len(self._recent)
        return Progress(spec.case.id, spec.replicate, self.phase, self.step, self.steps, rate, left)

    def _take(self, record: dict[str, Any]) -> None:
        kind = record.get("kind")
        if kind == "header" and isinstance(record.get("pid"), int):
            self.pid = record["pid"]
        elif kind == "footer":
            self.footer = record
        elif kind == "step":
            self._steps_logged += 1
            self._warmup_logged += record.get("phase") == WARMUP
            start, end, samples = (record.get(name, math.nan) for name in ("start", "end", "samples"))
            if all(finite(each) and abs(each) <= _MOST_SHOWN for each in (start, end, samples)):
                self._recent.append((start, end, samples))


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
