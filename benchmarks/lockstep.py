"""Compares two ways to do the same work. Their processes take turns: each runs its block of steps while the others are
stopped.

A stopped process reads no data ahead and uses no core, so none of its work is hidden in another's turn. Other users of
a machine change its speed from second to second, and chance decides how well a process is placed in memory. So the
median of the rounds' ratios is the figure of one pair of processes, and the interval is over pairs of fresh processes.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.blocks import MARK, TRAIN, StepBlock, block_of, request_line
from helpers.common.inherited import passed_on
from helpers.judging.statistics import mean_interval
from helpers.machine.environment import CPU
from helpers.machine.libraries import with_libraries
from helpers.plan.grown_dataset import GrownDataset
from helpers.plan.recipes.recipe import settings_for
from helpers.session.suite import MADE_IMAGES
from helpers.trainers.contract.case import Case, DataSource
from helpers.trainers.contract.errors import LaunchError, SuiteError
from helpers.trainers.contract.job import JobSpec

_STOP_SECONDS = 30.0
# A worker's start, with its framework's import and first step, or a block of steps.
_ANSWER_SECONDS = 1800.0

# The blocks of each arm, by the arm's name, from one set of processes.
Blocks = Mapping[str, Sequence[StepBlock]]


@dataclass(frozen=True)
class Arm:
    """One of the ways that are compared: how its process is started, and which of the process's loops is timed."""

    name: str
    argv: tuple[str, ...]
    loop: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def process(self) -> tuple[object, ...]:
        """Arms with equal values of this share one process."""
        return self.argv, tuple(sorted(self.environment.items()))


@dataclass(frozen=True)
class Turns:
    """Every round gives each arm one block of ``steps_per_block``, after one block of ``warmup_steps``."""

    rounds: int
    steps_per_block: int = 1
    warmup_steps: int = 2


class Worker:
    """A process that serves blocks (``benchmarks/blocks.py``). It is stopped while no block is
    requested."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = " ".join(argv)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=with_libraries({**passed_on(), **environment}, argv[0]),
            # A group of its own, so that its children stop with it; in this session, so that the kernel ends a stopped
            # group that lost its parent.
            preexec_fn=os.setpgrp,
        )
        self._ended = False

    def wait_until_ready(self) -> None:
        """Raises LaunchError, with the last line of the worker's errors, if it ends instead."""
        self._reply()
        self._signal(signal.SIGSTOP)

    def run(self, loop: str, steps: int) -> StepBlock:
        self._signal(signal.SIGCONT)
        self._input.write(request_line(loop, steps))
        self._input.flush()
        done = block_of(self._reply())
        self._signal(signal.SIGSTOP)
        return done

    def end(self) -> None:
        """Ask it to finish, and kill its process group if it does not."""
        if self._ended:
            return
        self._ended = True
        self._signal(signal.SIGCONT)
        self._input.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._output.close()
        self._errors.close()

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _reply(self) -> dict[str, Any]:
        late = threading.Event()

        def end() -> None:
            late.set()
            self._signal(signal.SIGKILL)

        # A worker that hangs closes no output, so its end is what ends the reading.
        timer = threading.Timer(_ANSWER_SECONDS, end)
        timer.daemon = True
        timer.start()
        try:
            for line in self._output:
                if line.startswith(MARK):
                    found: dict[str, Any] = json.loads(line[len(MARK) :])
                    return found
        finally:
            timer.cancel()
        if late.is_set():
            raise LaunchError(
                self._argv, got=f"no answer for {_ANSWER_SECONDS:g} s", expected="a worker that serves its blocks",
                remedy="It was ended. Take fewer steps a block, or train the case by itself to see where it hangs",
            )  # fmt: skip
        status = self._process.wait()
        self._errors.seek(0)
        words = (self._errors.read().decode(errors="replace").strip().splitlines() or ["no word"])[-1]
        raise LaunchError(self._argv, got=f"exit status {status}: {words}", expected="a worker that serves its blocks")

    def _signal(self, number: int) -> None:
        # Its id, and so its group's, cannot be reused before it has been waited for.
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


def take_turns(arms: Sequence[Arm], turns: Turns) -> dict[str, list[StepBlock]]:
    """The blocks of each arm, round by round, from one set of fresh processes. Raises LaunchError.

    Every round reverses the order (A B, B A, …), so that a drift affects all alike.
    """
    with ExitStack() as running:
        workers: dict[tuple[object, ...], Worker] = {}
        for arm in arms:
            if arm.process not in workers:
                worker = Worker(arm.argv, arm.environment)
                running.callback(worker.end)
                workers[arm.process] = worker
        for worker in workers.values():
            worker.wait_until_ready()
        for arm in arms:
            workers[arm.process].run(arm.loop, turns.warmup_steps)
        blocks: dict[str, list[StepBlock]] = {arm.name: [] for arm in arms}
        for number in range(turns.rounds):
            for arm in arms if number % 2 == 0 else reversed(arms):
                blocks[arm.name].append(workers[arm.process].run(arm.loop, turns.steps_per_block))
        return blocks


@dataclass(frozen=True)
class PairedRatio:
    """Geometric mean of n pairs' ratios and its 95% interval (Student's t over the logarithms)."""

    centre: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.centre:.4f} ({self.low:.4f} to {self.high:.4f}, n={self.n})"

    def lies_below(self, limit: float) -> bool:
        """Whether the whole interval is under ``limit``."""
        return self.high < limit


def pair_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the rounds' ratios of one pair of processes. Raises SuiteError unless all are finite and above
    0."""
    if len(numerators) != len(denominators) or not numerators:
        raise SuiteError(
            "rounds of a pair",
            got=f"{len(numerators)} and {len(denominators)}",
            expected="as many of the one as of the other, at least one",
        )
    for value in (*numerators, *denominators):
        _check("a round's measure", value)
    return math.exp(
        statistics.median(math.log(over / under) for over, under in zip(numerators, denominators, strict=True))
    )


def ratio_of(pairs: Iterable[float]) -> PairedRatio:
    """The geometric mean of the pairs' ratios. Raises SuiteError for fewer than 2 pairs, and unless all are finite and
    above 0."""
    values = tuple(pairs)
    if len(values) < 2:
        raise SuiteError("pairs of processes", got=len(values), expected="2 or more: one pair has no interval")
    for value in values:
        _check("the ratio of a pair", value)
    found = mean_interval(list(map(math.log, values)))
    return PairedRatio(math.exp(found.mean), math.exp(found.low), math.exp(found.high), len(values))


def _check(what: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise SuiteError(what, got=value, expected="a finite number above 0")


# ---- a trainer as an arm


@dataclass(frozen=True)
class Seat:
    """Where arms run: pinned to ``cores``, without a GPU."""

    cores: tuple[int, ...]
    interpreter: str


# Hides the GPUs, if there are any.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def trainer_arm(case: Case, folder: Path, seat: Seat) -> Arm:
    """The trainer of a one-card case; its job is written to a new file in ``folder``. The process starts with the
    recipe's environment, as in the suite."""
    settings = settings_for(case, CPU)
    job_id = uuid.uuid4().hex
    spec = JobSpec(
        job_id=job_id,
        case=case,
        replicate=0,
        run_folder=str(folder / job_id),
        device=CPU,
        warmup_steps=0,
        window_steps=1,
        data_root=None if case.data is DataSource.SYNTHETIC else str(GrownDataset(MADE_IMAGES).first().root),
        settings=settings,
        environment=settings["environment"],
        cores=(seat.cores,),
    )
    path = folder / f"{job_id}.json"
    path.write_text(spec.to_json(), encoding="utf-8")
    argv = (seat.interpreter, "-m", "benchmarks.block_worker", str(path))
    return Arm(TRAIN, argv, TRAIN, {**settings["environment"], **NO_GPU})
