"""One of the ranks of a static program, whose steps take what a table says: ``agreement_worker.py FOLDER``.

Started by ``paddle.distributed.launch``. Everything but the steps is the trainer's own: the loop, the agreement through
Paddle's store, the step log, FOLDER/rank<k>.jsonl.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import paddle

from helpers.trainers.common.loop import Batch, HostTimer, LoopIO, LoopPlan, train
from helpers.trainers.contract.steplog import COMPLETE, Footer, Header, StepLogWriter
from helpers.trainers.paddle.device import host_agreement

# Rank 0 is steady from its first look at step 6 on, rank 1 from step 12 on.
SLOW_STEPS = {0: (), 1: (9.0, 8.0, 7.0, 6.0, 5.0, 4.0)}
PLAN = LoopPlan(6, 3, 1, steady_window_steps=2, most_warmup_steps=30)


class Rank:
    def __init__(self, rank: int) -> None:
        self.now = 0.0
        self._seconds = itertools.chain(SLOW_STEPS[rank], itertools.repeat(1.0))

    def epoch(self, number: int) -> Iterator[Batch]:
        return itertools.repeat(Batch(None, None, 1))

    def begin_epoch(self, number: int) -> None:
        pass

    def step(self, batch: Batch) -> float:
        self.now += next(self._seconds)
        return 1.0

    def loss(self, handle: float) -> float:
        return handle


def main(folder: Path) -> None:
    paddle.enable_static()
    number, ranks = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
    rank = Rank(number)
    header = Header("agreement", "case", 0, number, ranks, "h", os.getpid(), "paddle", "", "", "cpu")
    log = StepLogWriter(folder / f"rank{number}.jsonl", header)
    io = LoopIO(log.steps, lambda phase, step: None, lambda: None, lambda: rank.now, host_agreement(ranks))
    train(PLAN, rank, rank, HostTimer(lambda: rank.now), io)
    log.footer(Footer(COMPLETE))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
