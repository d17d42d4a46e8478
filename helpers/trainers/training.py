"""A rank's plan and edges for the loop, from its job; alike for every framework."""

from __future__ import annotations

import time
from typing import Callable, Optional

from helpers.trainers.loop import Edges, Plan
from helpers.trainers.process import Trainer


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


def edges_of(trainer: Trainer, barrier: Callable[[], None], agree: Optional[Callable[[bool], bool]]) -> Edges:
    """``barrier`` and ``agree`` as ``Edges`` has them."""
    return Edges(trainer.record, trainer.beat, barrier, time.monotonic, agree, trainer.begin)
