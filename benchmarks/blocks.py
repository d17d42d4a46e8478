"""The exchange between a worker and its conductor: for each block of steps, one line in each direction.

The conductor (``benchmarks/lockstep.py``) writes a JSON object on one line to the worker's standard
input: the loop to run and the number of steps. The worker answers with ``@`` and a JSON object on one line of its
standard output; other lines there come from its libraries. The worker's first line says that it is ready. The worker
ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MARK = "@"

# The loops that workers offer: the trainer's own with all recording, only its steps, and a bare loop as a user would
# write it.
TRAIN = "train"
FOR = "for"
BARE = "bare"


@dataclass(frozen=True)
class StepBlock:
    """The duration of a number of consecutive optimizer steps."""

    steps: int
    # By the wall clock.
    seconds: float
    # CPU seconds of all threads and of the loader's processes.
    cpu_seconds: float
    # The part of ``seconds`` spent in the step log and the heartbeat.
    recording_seconds: float = 0.0

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.steps

    @property
    def step_cpu_seconds(self) -> float:
        return self.cpu_seconds / self.steps


# Trains a number of steps.
Train = Callable[[int], StepBlock]


class Stopwatch:
    """A stopwatch that starts when it is made."""

    def __init__(self) -> None:
        self._cpu = _cpu_seconds()
        self._wall = time.perf_counter()

    def read(self) -> tuple[float, float]:
        """Seconds since the start: by the wall clock, and CPU seconds of this process and its children."""
        return time.perf_counter() - self._wall, _cpu_seconds() - self._cpu


def _cpu_seconds() -> float:
    """CPU seconds so far. Living children are included, since a loader's processes outlive a block; the kernel counts
    their time in clock ticks."""
    ticks = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            try:
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2].split()
            except OSError:
                # It ended meanwhile.
                continue
            ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def serve(loops: Mapping[str, Train]) -> None:
    """Say that this worker is ready; then run the requested loops until the input ends."""
    _write({})
    for line in sys.stdin:
        asked = json.loads(line)
        _write(asdict(loops[asked["loop"]](asked["steps"])))


def request_line(loop: str, steps: int) -> str:
    """A request for ``steps`` steps of the loop with this name."""
    return json.dumps({"loop": loop, "steps": steps}) + "\n"


def block_of(replied: Mapping[str, Any]) -> StepBlock:
    """The block in a worker's reply."""
    return StepBlock(**replied)


def _write(record: Mapping[str, object]) -> None:
    print(MARK + json.dumps(record), flush=True)
