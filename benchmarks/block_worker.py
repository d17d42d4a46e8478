"""Runs a framework's trainer as a worker that trains block by block: ``python -m benchmarks.block_worker
SPEC.json``, in the framework's interpreter.

The trainer is unchanged (job, environment, pinning, data, model, log), except that its loop is called once for each
block instead of once for the run. The worker offers two loops: ``train`` is the trainer's own, with all recording;
``for`` is only the optimizer steps, in the same process.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.blocks import FOR, TRAIN, StepBlock, Stopwatch, serve
from helpers.trainers.common import loop
from helpers.trainers.common.process import Trainer, run
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import Step


def program(trainer: Trainer) -> None:
    def blocks_instead(plan: loop.LoopPlan, reader: loop.Reader, stepper: Any, timer: Any, io: loop.LoopIO) -> None:
        worker = _Worker(plan, reader, stepper, timer, io)
        serve({TRAIN: worker.train, FOR: worker.bare})

    # The only change: everything else is the trainer's program, as the suite runs it.
    module = trainer_of(trainer.spec)
    module.train = blocks_instead
    module.program(trainer)


def trainer_of(spec: JobSpec) -> Any:
    return importlib.import_module(f"helpers.trainers.{spec.case.framework.value}.trainer")


class _Worker:
    def __init__(self, plan: loop.LoopPlan, reader: loop.Reader, stepper: Any, timer: Any, io: loop.LoopIO) -> None:
        self._plan = plan
        self._reader = _OnePass(reader)
        self._stepper = stepper
        self._timer = timer
        self._io = io

    def train(self, steps: int) -> StepBlock:
        watch = _Watch(self._io)
        plan = dataclasses.replace(self._plan, warmup_steps=0, window_steps=steps)
        stopwatch = Stopwatch()
        loop.train(plan, self._reader, self._stepper, self._timer, watch.io)
        seconds = stopwatch.read()
        return StepBlock(steps, *seconds, watch.seconds)

    def bare(self, steps: int) -> StepBlock:
        batches = self._reader.epoch(0)
        stopwatch = Stopwatch()
        for _ in range(steps):
            self._stepper.step(next(batches))
        return StepBlock(steps, *stopwatch.read())


class _OnePass:
    """Continues with the reader where the last block stopped, because a loader that starts again has no batch ready."""

    def __init__(self, reader: loop.Reader) -> None:
        self._batches = self._all(reader)

    def epoch(self, number: int) -> Iterator[loop.Batch]:
        return self._batches

    @staticmethod
    def _all(reader: loop.Reader) -> Iterator[loop.Batch]:
        number = 0
        while True:
            yield from reader.epoch(number)
            number += 1


class _Watch:
    """The loop's io; measures the seconds spent in the log and the heartbeat."""

    def __init__(self, io: loop.LoopIO) -> None:
        self.seconds = 0.0
        self._real = io
        self.io = dataclasses.replace(io, record=self._record, beat=self._beat)

    def _record(self, steps: Sequence[Step]) -> None:
        started = time.perf_counter()
        self._real.record(steps)
        self.seconds += time.perf_counter() - started

    def _beat(self, phase: str, step: int) -> None:
        started = time.perf_counter()
        self._real.beat(phase, step)
        self.seconds += time.perf_counter() - started


def main() -> int:
    spec = JobSpec.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"), about=sys.argv[1])
    # Several workers may have the same spec, so each writes its log into a folder of its own.
    with tempfile.TemporaryDirectory() as folder:
        own = dataclasses.replace(spec, run_folder=folder)
        own.spec_path.write_text(own.to_json(), encoding="utf-8")
        return run([str(own.spec_path)], trainer_of(spec).RANK_VARIABLES, program)


if __name__ == "__main__":
    sys.exit(main())
