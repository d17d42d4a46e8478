"""What a worker and its conductor exchange: one line each way for each block of steps.

The conductor (``helpers/session/lockstep.py``) writes one JSON object a line to the worker's standard input: which loop
is to run and for how many steps. The worker writes ``@`` and one JSON object a line to its standard output; other lines
there come from its libraries. Its first one says that it is ready. The end of its input ends the worker.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Tuple

MARK = "@"

# The loops that workers offer: the trainer's own with everything recorded, its bare steps, and a user's bare loop.
TRAIN = "train"
FOR = "for"
BARE = "bare"

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class StepBlock:
    """How long a number of optimizer steps in a row took."""

    steps: int
    # By the wall clock.
    seconds: float
    # Of all threads and of the loader's processes.
    cpu_seconds: float
    # The part of ``seconds`` that went into the step log and the life signs.
    recording_seconds: float = 0.0
    # The part of ``seconds`` that went into waiting for data.
    reader_seconds: float = 0.0
    # Those that the loop fetched.
    losses: Tuple[float, ...] = ()

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.steps

    @property
    def step_cpu_seconds(self) -> float:
        return self.cpu_seconds / self.steps


# Trains a number of steps.
Train = Callable[[int], StepBlock]


class Stopwatch:
    """Started when it is made."""

    def __init__(self) -> None:
        self._cpu = _cpu_seconds()
        self._wall = time.perf_counter()

    def read(self) -> Tuple[float, float]:
        """Seconds since the start: by the wall clock, and on the cores of this process and its children."""
        return time.perf_counter() - self._wall, _cpu_seconds() - self._cpu


def _cpu_seconds() -> float:
    """Seconds on the cores so far. A loader's processes outlive a block, so living children count; the kernel counts
    theirs in ticks."""
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


@dataclass(frozen=True)
class BlockRequest:
    """Asks for ``steps`` steps of the loop with this name."""

    loop: str
    steps: int


def serve(loops: Mapping[str, Train], facts: Mapping[str, str]) -> None:
    """Say that this worker is ready, with what it runs on, and run the loops that it is asked for until the input
    ends."""
    for asked in requests(facts):
        reply(loops[asked.loop](asked.steps))


def add_loop_arguments(parser: argparse.ArgumentParser) -> None:
    """What every bare loop takes."""
    parser.add_argument("--batch-size", type=int, default=4, help="Train on N images a step")
    parser.add_argument("--learning-rate", type=float, default=0.1 * 4 / 256, help="Take RATE, as it stands")
    parser.add_argument("--cores", type=int, nargs="*", default=(), help="Pin the process to these cores")
    parser.add_argument("--steps", type=int, help="Train N steps, print images/s and end; else serve blocks")


def run_bare_loop(arguments: argparse.Namespace, training: Callable[[argparse.Namespace], Train]) -> int:
    """Pin this process, prepare the loop and serve it, or print its images/s over ``--steps``. Returns the exit status.

    ``training`` imports its framework, which reads the number of threads then.
    """
    if arguments.cores:
        os.sched_setaffinity(0, arguments.cores)
        os.environ.update(dict.fromkeys(_THREADS, str(len(arguments.cores))))
    train = training(arguments)
    if arguments.steps is None:
        serve({BARE: train}, {})
        return 0
    train(2)
    print(f"{arguments.batch_size / train(arguments.steps).step_seconds:.4g} images/s")
    return 0


def requests(facts: Mapping[str, str]) -> Iterator[BlockRequest]:
    """Say that this worker is ready, with what it runs on; then give each request until the input ends."""
    _write({"facts": dict(facts)})
    for line in sys.stdin:
        yield BlockRequest(**json.loads(line))


def reply(done: StepBlock) -> None:
    """Answer the last request."""
    _write(asdict(done))


def request_line(loop: str, steps: int) -> str:
    return json.dumps(asdict(BlockRequest(loop, steps))) + "\n"


def block_of(replied: Mapping[str, Any]) -> StepBlock:
    """The block in a worker's reply."""
    return StepBlock(**{**replied, "losses": tuple(replied["losses"])})


def _write(record: Mapping[str, object]) -> None:
    print(MARK + json.dumps(record), flush=True)
