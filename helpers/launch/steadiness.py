"""Decides from the logs of all ranks whether a run was steady when its measured window began."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.trainers.contract.job import STEADY_WINDOWS, JobSpec
from helpers.trainers.contract.steplog import STEADY_SHARE, STEADY_STANDARD_ERRORS, StepLog, steadiness


def why_unsteady(spec: JobSpec, logs: Sequence[StepLog]) -> str | None:
    """Why the run is not a measurement, with the numbers of its worst rank; None if it was steady or did not have to
    be."""
    if not spec.steady_window_steps:
        return None
    # Computed as in the trainer, from the same numbers.
    found = [
        (log.header.rank, steadiness([step.step_seconds for step in log.warmup], spec.steady_window_steps))
        for log in logs
    ]
    # One that is not steady comes first, then the one with the largest spread.
    rank, worst = max(found, key=lambda each: (not each[1].steady, each[1].spread))
    if worst.steady:
        return None
    seconds = ", ".join(f"{mean:.4g}" for mean in worst.means)
    return (
        f"never steady: rank {rank}'s last {STEADY_WINDOWS} windows of {spec.steady_window_steps} warm-up "
        f"steps took {seconds} s a step, {worst.spread:.2%} apart; at most {worst.limit:.2%} is steady (the larger of "
        f"{STEADY_SHARE:.1%} and {STEADY_STANDARD_ERRORS:.3g} standard errors of a window); "
        f"{len(logs[0].warmup)} warm-up steps were made, at most {spec.longest_warmup_steps} are (most_warmup_steps in "
        "perf.yaml)"
    )
