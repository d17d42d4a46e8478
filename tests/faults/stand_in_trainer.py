"""A trainer's double for the fault table: the real frame and the real loop around steps that compute nothing.

It takes the place of ``helpers.trainers.paddle.trainer`` in a workshop's interpreter (inject.py). Each step takes
STEP_SECONDS on its clock, so that warm-up is steady on any machine. Ranks wait for each other through files.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.trainers.common.loop import Batch, LoopIO, LoopPlan, train
from helpers.trainers.common.process import Trainer, run
from tests.faults.inject import FAULT_VARIABLE

STEP_SECONDS = 0.05
RANK_VARIABLES = ("PADDLE_TRAINER_ID", "PADDLE_LOCAL_RANK", "PADDLE_TRAINERS_NUM")


class EvenTimer:
    """Steps of STEP_SECONDS each, none of which ends in the future."""

    def __init__(self) -> None:
        self._end = 0.0
        self._done: list[tuple[float, float]] = []

    def begin(self) -> None:
        self._end = time.monotonic()

    def mark(self) -> None:
        start, self._end = self._end, self._end + STEP_SECONDS
        time.sleep(max(0.0, self._end - time.monotonic()))
        self._done.append((start, self._end))

    def resolve(self) -> list[tuple[float, float]]:
        done, self._done = self._done, []
        return done


class Images:
    def __init__(self, samples: int) -> None:
        self._samples = samples

    def epoch(self, number: int) -> Iterator[Batch]:
        for _ in range(1000):
            yield Batch(None, None, self._samples)


class NoStep:
    def begin_epoch(self, number: int) -> None:
        return

    def step(self, batch: Batch) -> Any:
        return None

    def loss(self, handle: Any) -> float:
        return 6.9


def program(trainer: Trainer) -> None:
    spec = trainer.spec
    trainer.device.framework_version = "0"
    trainer.beat("first step")
    plan = LoopPlan(spec.warmup_steps, spec.window_steps, 1, spec.steady_window_steps, spec.most_warmup_steps)
    io = LoopIO(trainer.record, trainer.beat, lambda: _meet(trainer), time.monotonic, begin=trainer.begin)
    train(plan, Images(spec.case.batch_size_per_card), NoStep(), EvenTimer(), io)


def _meet(trainer: Trainer) -> None:
    """Wait for the other ranks: each rank writes a file and waits for the others', however long it takes.

    The files are in the workshop's folder, since each node of a job has a run folder of its own.
    """
    folder = Path(os.environ[FAULT_VARIABLE]).parent / "met" / trainer.spec.job_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(trainer.ranks.rank)).touch()
    while not all((folder / str(rank)).exists() for rank in range(trainer.ranks.world_size)):
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], RANK_VARIABLES, program))
