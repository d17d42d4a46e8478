"""What a worker and its conductor say to each other: a line each way for each block of steps.

The worker writes ``@`` and one JSON object a line on its standard output (other lines are its
libraries' own), first that it is ready; the conductor writes one JSON object a line on its standard
input. The end of that input ends the worker.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

MARK = "@"

# The loops that the workers offer (benchmarks.trainer_worker, benchmarks.bare_paddle_loop).
TRAIN = "train"
FOR = "for"
BARE = "bare"


@dataclass(frozen=True)
class Block:
    """``steps`` optimizer steps in a row: ``seconds`` by the wall clock, ``cpu_seconds`` of all threads.

    Of ``seconds``, ``recording_seconds`` went into the step log and the life signs and
    ``reader_seconds`` into waiting for data; ``losses`` are those that the loop fetched.
    """

    steps: int
    seconds: float
    cpu_seconds: float
    recording_seconds: float = 0.0
    reader_seconds: float = 0.0
    losses: tuple[float, ...] = ()

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.steps

    @property
    def step_cpu_seconds(self) -> float:
        return self.cpu_seconds / self.steps


class Stopwatch:
    """Started when it is made."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def read(self) -> tuple[float, float]:
        """Seconds since, by the wall clock and of this process's threads on a core."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


Loop = Callable[[int], Block]


def serve(loops: Mapping[str, Loop], facts: Mapping[str, str]) -> None:
    """Say that this worker is ready, with what it runs on, and run the loops it is asked for until told no more."""
    _say({"facts": dict(facts)})
    for line in sys.stdin:
        request = json.loads(line)
        _say(asdict(loops[request["loop"]](request["steps"])))


def request(loop: str, steps: int) -> str:
    return json.dumps({"loop": loop, "steps": steps}) + "\n"


def block(reply: Mapping[str, object]) -> Block:
    """The block of a worker's reply."""
    record = dict(reply)
    record["losses"] = tuple(record["losses"])  # type: ignore[arg-type]
    return Block(**record)  # type: ignore[arg-type]


def _say(record: Mapping[str, object]) -> None:
    print(MARK + json.dumps(record), flush=True)
