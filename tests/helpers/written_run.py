"""Runs of this suite on disk, as an earlier session left them: step logs of every rank, and a result where asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from helpers.trainers.contract.steplog import COMPLETE, WARMUP, WINDOW, Footer, Header, Step, StepLogWriter

WARM, STEPS = 2, 5


def write_run(
    folder: Path,
    case_id: str,
    step_seconds: float | Sequence[float] = 0.5,
    *,
    ranks: int = 1,
    job_id: str = "job",
    device: str = "cpu",
    batch: int = 4,
    cards_per_process: int = 1,
    replicate: int = 0,
    facts: dict[str, str] | None = None,
    end: str | None = COMPLETE,
) -> Path:
    """Step logs of a run of ``batch`` images a step and rank. ``end`` None: it crashed, without a footer."""
    folder.mkdir(parents=True)
    seconds = [step_seconds] * STEPS if isinstance(step_seconds, float) else list(step_seconds)
    for rank in range(ranks):
        header = Header(job_id, case_id, replicate, rank, ranks, "h", 1, "paddle", "3.0.0", "abc", device, facts or {})
        header = replace(header, cards_per_process=cards_per_process)
        writer = StepLogWriter(folder / f"rank{rank}.jsonl", header)
        at = 1.0
        for number, each in enumerate([seconds[0]] * WARM + seconds, 1):
            phase = WARMUP if number <= WARM else WINDOW
            writer.step(Step(0, number, phase, at, at + each, batch, 0.01, 6.9))
            at += each
        if end is not None:
            writer.footer(Footer(end, "" if end == COMPLETE else "why"))
    return folder
