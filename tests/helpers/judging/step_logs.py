"""Step logs of ranks whose steps took given seconds, one right after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from helpers.trainers.contract.steplog import COMPLETE, WARMUP, WINDOW, Footer, Header, Step, StepLog

HEADER = Header("j1", "case", 0, 0, 1, "h", 1, "paddle", "3.0", "abc", "cpu")


def log_of(
    seconds: Iterable[float],
    *,
    batch: int = 256,
    warmup: int = 0,
    epoch_steps: int = 10**6,
    rank: int = 0,
    world_size: int = 1,
    cards_per_process: int = 1,
    clock_origin: float = 0.0,
    reader_seconds: float = 0.0,
) -> StepLog:
    """The log of a rank whose steps took ``seconds``, one right after the other; ``batch`` samples on each card."""
    steps: list[Step] = []
    now = clock_origin
    for number, taken in enumerate(seconds):
        phase = WARMUP if number < warmup else WINDOW
        epoch, step = number // epoch_steps, number % epoch_steps + 1
        steps.append(Step(epoch, step, phase, now, now + taken, batch * cards_per_process, reader_seconds))
        now += taken
    header = replace(HEADER, rank=rank, world_size=world_size, cards_per_process=cards_per_process)
    return StepLog(f"rank{rank}.jsonl", header, tuple(steps), Footer(COMPLETE))


def logs_of(*ranks: Iterable[float], **values: float) -> list[StepLog]:
    return [log_of(seconds, rank=rank, world_size=len(ranks), **values) for rank, seconds in enumerate(ranks)]


def first_hundred_then(records: list[float]) -> list[float]:
    """Step seconds, in epochs of 10, whose later records are ``records``: steps 5 to 10 of an epoch make one."""
    return [1.0] * 100 + [256 / record for record in records for _ in range(10)]
