"""Runs that an infrastructure failure ended: made again within the case's bound, and told in every verdict."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.judging.evidence import Build, Evidence, RunEvidence, Stage

# The code of a verdict whose case has used its attempts up.
RUN_FAILED = "run-failed"


def failed_attempts(runs: Sequence[RunEvidence]) -> list[RunEvidence]:
    return [run for run in runs if run.failure is not None]


def attempts_used_up(evidence: Evidence) -> str | None:
    """Why the case has no verdict on its throughput: the failure that ended it, and the attempts before it.

    None where none failed, or another attempt may be made: then the run counts as never made.
    """
    failed = failed_attempts(evidence.runs)
    final = next((at for at, run in enumerate(failed) if not run.retriable), None)
    if final is None:
        if len(failed) <= evidence.budget.retries:
            return None
        final = len(failed) - 1
    told = [_whose(evidence, failed[final])]
    if final:
        told += [f"attempt {final + 1} of {_most(evidence)}", *_ends(evidence, failed[:final])]
    return "; ".join(told)


def told_attempts(evidence: Evidence) -> str:
    """``attempt 1 of 2 ended: killed by a signal: ...`` for each failed run; empty where none failed."""
    return "; ".join(_ends(evidence, failed_attempts(evidence.runs)))


def _ends(evidence: Evidence, failed: Sequence[RunEvidence]) -> list[str]:
    return [f"attempt {at} of {_most(evidence)} ended: {_whose(evidence, run)}" for at, run in enumerate(failed, 1)]


def _most(evidence: Evidence) -> int:
    return 1 + evidence.budget.retries


def _whose(evidence: Evidence, run: RunEvidence) -> str:
    """The failure; beside runs of another build it has to say whose it is."""
    if run.build is Build.REFERENCE:
        return f"reference build {evidence.reference_build or ''}".rstrip() + f": {run.failure}"
    return f"build under test: {run.failure}" if run.stage is Stage.CONFIRM else str(run.failure)
