"""Makes a rank's seeds, and the plan and the io of its loop, from its job; the same for every framework."""

from __future__ import annotations

import random
import time
from typing import Any, Callable, Optional

from helpers.trainers.common.loop import LoopIO, Plan
from helpers.trainers.common.process import Trainer


def seed_everything(framework: Callable[[int], Any], seed: int) -> None:
    """The same weights on every rank; the readers add the rank to the seed of the data."""
    # Only here: the variables that say how many threads it takes are set by then.
    import numpy

    framework(seed)
    numpy.random.seed(seed)
    random.seed(seed)


def plan_of(trainer: Trainer) -> Plan:
    spec = trainer.spec
    return Plan(
        spec.warmup_steps,
        spec.window_steps,
        # On a CPU the loss is at hand after every step; on a GPU fetching it would empty the queue.
        spec.record_every_steps if spec.device == "gpu" else 1,
        spec.steady_window_steps,
        spec.most_warmup_steps,
        trainer.slowdown,
    )


def io_of(trainer: Trainer, barrier: Callable[[], None], agree: Optional[Callable[[bool], bool]]) -> LoopIO:
    """The io of a rank's loop; ``barrier`` and ``agree`` are those of ``LoopIO``."""
    return LoopIO(trainer.record, trainer.beat, barrier, time.monotonic, agree, trainer.begin)
