"""Runs of this suite on disk, as an earlier session left them: step logs of every rank, and a result where asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from helpers.history.results import RunResult
from helpers.judging.rules.own import samples_per_step, window_seconds
from helpers.launch.steplog_reader import read_step_log
from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.steplog import COMPLETE, WARMUP, WINDOW, Footer, Header, Step, StepLog, StepLogWriter

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


def write_result(folder: Path, result: RunResult, **changes: object) -> None:
    """The result beside the step logs that ``write_run`` wrote, of the window that these hold."""
    window: dict[str, object] = {}
    if logs := _complete(folder):
        window = {"samples_per_step": samples_per_step(logs), "window_seconds": window_seconds(logs)}
    made = replace(result, **{"uuid": "job", **window, **changes})  # type: ignore[arg-type] # by name
    (folder / "result.json").write_text(made.to_json())


def _complete(folder: Path) -> list[StepLog]:
    try:
        return [read_step_log(path) for path in sorted(folder.glob("rank*.jsonl"))]
    except StepLogError:
        return []
