"""Processes that take turns: each runs its block of steps alone while the others are stopped.

A stopped process reads no data ahead and holds no core, so that nothing of its work is hidden in
another's turn.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO

from benchmarks.blocks import MARK, Block, block, request
from helpers.trainers.contract.errors import LaunchError

_STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Arm:
    """One of the ways to be compared: how its process is started and which of the process's loops is timed."""

    name: str
    argv: tuple[str, ...]
    loop: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def process(self) -> tuple[object, ...]:
        """Arms that agree in this share one process."""
        return self.argv, tuple(sorted(self.environment.items()))


@dataclass(frozen=True)
class Plan:
    """Every round gives each arm one block of ``steps_per_block``, after one block of ``warmup_steps``."""

    rounds: int
    steps_per_block: int = 1
    warmup_steps: int = 2


class Worker:
    """A process that serves blocks (``benchmarks.blocks``), stopped while it is not asked for one."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = " ".join(argv)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **environment},
            # A group of its own, in this session: so that its children stop with it, and the kernel
            # ends a stopped group that lost its parent.
            preexec_fn=os.setpgrp,
        )
        self._ended = False
        self.facts: dict[str, str] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """LaunchError with the worker's last words where it ends instead."""
        self.facts = self._reply()["facts"]
        self._signal(signal.SIGSTOP)

    def run(self, loop: str, steps: int) -> Block:
        self._signal(signal.SIGCONT)
        self._input.write(request(loop, steps))
        self._input.flush()
        done = block(self._reply())
        self._signal(signal.SIGSTOP)
        return done

    def end(self) -> None:
        """Ask it to finish; kill its group where it does not."""
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

    def _reply(self) -> dict[str, dict[str, str]]:
        for line in self._output:
            if line.startswith(MARK):
                return json.loads(line[len(MARK) :])
        status = self._process.wait()
        self._errors.seek(0)
        words = (self._errors.read().decode(errors="replace").strip().splitlines() or ["no word"])[-1]
        raise LaunchError(self._argv, got=f"exit status {status}: {words}", expected="a worker that serves its blocks")

    def _signal(self, number: int) -> None:
        # Until it is waited for its id, and so its group's, cannot be another's.
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


def take_turns(arms: Sequence[Arm], plan: Plan) -> dict[str, list[Block]]:
    """The blocks of each arm, round by round, from one set of fresh processes. Raises LaunchError.

    The order is turned round with every round (A B, B A, …), so that a drift hits all alike.
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
            workers[arm.process].run(arm.loop, plan.warmup_steps)
        blocks: dict[str, list[Block]] = {arm.name: [] for arm in arms}
        for number in range(plan.rounds):
            for arm in arms if number % 2 == 0 else reversed(arms):
                blocks[arm.name].append(workers[arm.process].run(arm.loop, plan.steps_per_block))
        return blocks
