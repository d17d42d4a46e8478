"""Whether a run was warm when it was measured: the judgement and its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.launch.steadiness import why_unsteady
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import (
    COMPLETE,
    WARMUP,
    WINDOW,
    Footer,
    Header,
    Step,
    StepLog,
)

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs8-1x2-synthetic-dynamic")
STEADY = (9.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
FALLING = (9.0, 3.0, 1.4, 1.4, 1.2, 1.2, 1.0, 1.0)


def job(folder: Path, window_steps: int = 2) -> JobSpec:
    most = 8 if window_steps else 0
    return JobSpec("job", CASE, 1, str(folder), "cpu", 6, 3, steady_window_steps=window_steps, most_warmup_steps=most)


def log(rank: int, *warmup: float) -> StepLog:
    steps, now = [], 100.0
    for number, seconds in enumerate([*warmup, 1.0, 1.0, 1.0]):
        phase = WARMUP if number < len(warmup) else WINDOW
        steps.append(Step(0, number + 1, phase, now, now + seconds, 8, 0.0))
        now += seconds
    header = Header("job", CASE.id, 1, rank, 2, "h", 1, "paddle", "3", "", "cpu")
    return StepLog(f"rank{rank}", header, tuple(steps), Footer(COMPLETE))


@pytest.mark.parametrize("guilty", [0, 1])
def test_one_rank_that_is_not_steady_spoils_the_run_and_is_named_with_its_numbers(tmp_path: Path, guilty: int) -> None:
    logs = [log(rank, *(FALLING if rank == guilty else STEADY)) for rank in (0, 1)]
    why = why_unsteady(job(tmp_path), logs)
    assert why == (
        f"never steady: rank {guilty}'s last 3 windows of 2 warm-up steps took 1.4, 1.2, 1 s a step, 33.33% apart; "
        "at most 0.30% is steady (the larger of 0.3% and 3 standard errors of a window); 8 warm-up steps were made, "
        "at most 8 are (most_warmup_steps in perf.yaml)"
    )


def test_a_noisier_rank_that_is_steady_is_not_blamed(tmp_path: Path) -> None:
    assert why_unsteady(job(tmp_path), [log(0, *STEADY), log(1, *STEADY)]) is None
    noisy = log(0, 9.0, 3.0, 3.0, 1.0, 1.0, 2.2, 1.0, 2.0)
    assert why_unsteady(job(tmp_path), [noisy, log(1, *STEADY)]) is None
    assert "rank 1's" in str(why_unsteady(job(tmp_path), [noisy, log(1, *STEADY[:-2], 1.05, 1.05)]))


def test_a_trainer_that_stopped_too_early_is_not_believed(tmp_path: Path) -> None:
    why = why_unsteady(job(tmp_path), [log(0, *FALLING[:6]), log(1, *FALLING[:6])])
    assert why is not None
    assert "6 warm-up steps were made, at most 8 are" in why
