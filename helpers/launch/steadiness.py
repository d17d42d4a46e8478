"""Decides from the logs of all ranks whether a run was steady when its measured window began."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from helpers.trainers.contract.job import STEADY_WINDOWS, JobSpec
from helpers.trainers.contract.steplog import (
    LOOKED_ONCE,
    STEADINESS_FACT,
    STEADY_SHARE,
    Steadiness,
    StepLog,
    standard_errors,
    steadiness,
)


def _looked_once(log: StepLog) -> bool:
    return log.header.facts.get(STEADINESS_FACT) == LOOKED_ONCE


def _of_rank(spec: JobSpec, log: StepLog) -> Steadiness:
    """The steadiness of one rank when its window began, computed as in the trainer from the same numbers."""
    return steadiness([step.step_seconds for step in log.warmup], spec.steady_window_steps)


def _of_all_ranks(spec: JobSpec, logs: Sequence[StepLog]) -> Steadiness:
    """The steadiness of the mean over the ranks' steps: one test for the job. Testing each rank would be as many tests
    as there are ranks, and fail more often by chance."""
    steps = zip(*([step.step_seconds for step in log.warmup] for log in logs), strict=True)
    return steadiness([statistics.fmean(seconds) for seconds in steps], spec.steady_window_steps, looked_once=True)


def why_unsteady(spec: JobSpec, logs: Sequence[StepLog]) -> str | None:
    """Why the run is not a measurement, with the numbers of its worst rank; None if it was steady or did not have to
    be."""
    if not spec.steady_window_steps:
        return None
    once = any(map(_looked_once, logs))
    if once:
        found = [("the ranks' mean step: the", _of_all_ranks(spec, logs))]
    else:
        found = [(f"rank {log.header.rank}'s", _of_rank(spec, log)) for log in logs]
    # One that is not steady comes first, then the one with the largest spread.
    whose, worst = max(found, key=lambda each: (not each[1].steady, each[1].spread))
    if worst.steady:
        return None
    seconds = ", ".join(f"{mean:.4g}" for mean in worst.means)
    errors = standard_errors(spec.steady_window_steps, once)
    return (
        f"never steady: {whose} last {STEADY_WINDOWS} windows of {spec.steady_window_steps} warm-up "
        f"steps took {seconds} s a step, {worst.spread:.2%} apart; at most {worst.limit:.2%} is steady (the larger of "
        f"{STEADY_SHARE:.1%} and {errors:.3g} standard errors of a window{', for one look' if once else ''}); "
        f"{len(logs[0].warmup)} warm-up steps were made, at most {spec.longest_warmup_steps} are (most_warmup_steps in "
        "perf.yaml)"
    )
