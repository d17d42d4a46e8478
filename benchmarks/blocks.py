"""What a worker and its conductor say to each other: a line each way for each block of steps.

The worker writes ``@`` and one JSON object a line on its standard output (other lines are its
libraries' own), first that it is ready; the conductor writes one JSON object a line on its standard
input. The end of that input ends the worker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

MARK = "@"

# The loops that the workers offer (benchmarks.trainer_worker, benchmarks.bare_paddle_loop).
TRAIN = "train"
FOR = "for"
BARE = "bare"


@dataclass(frozen=True)
class Block:
    """``steps`` optimizer steps in a row: ``seconds`` by the wall clock, ``cpu_seconds`` of all threads and of the
    loader's processes.

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
        self._cpu = _cpu_seconds()
        self._wall = time.perf_counter()

    def read(self) -> tuple[float, float]:
        """Seconds since, by the wall clock and on a core: of this process's threads and of its children."""
        return time.perf_counter() - self._wall, _cpu_seconds() - self._cpu


def _cpu_seconds() -> float:
    """Of this process so far, and, in the kernel's ticks, of its living children: a loader's, which outlive a block."""
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


Loop = Callable[[int], Block]


@dataclass(frozen=True)
class Request:
    """What a worker is asked for: ``steps`` steps of the loop with this name."""

    loop: str
    steps: int


def serve(loops: Mapping[str, Loop], facts: Mapping[str, str]) -> None:
    """Say that this worker is ready, with what it runs on, and run the loops it is asked for until told no more."""
    for asked in requests(facts):
        reply(loops[asked.loop](asked.steps))


def requests(facts: Mapping[str, str]) -> Iterator[Request]:
    """Say that this worker is ready, with what it runs on; then what it is asked for, until told no more."""
    _say({"facts": dict(facts)})
    for line in sys.stdin:
        yield Request(**json.loads(line))


def reply(done: Block) -> None:
    """Answer the request before."""
    _say(asdict(done))


def request(loop: str, steps: int) -> str:
    return json.dumps(asdict(Request(loop, steps))) + "\n"


def block(replied: Mapping[str, object]) -> Block:
    """The block of a worker's reply."""
    record = dict(replied)
    record["losses"] = tuple(record["losses"])  # type: ignore[arg-type]
    return Block(**record)  # type: ignore[arg-type]


def _say(record: Mapping[str, object]) -> None:
    print(MARK + json.dumps(record), flush=True)
