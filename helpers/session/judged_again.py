"""Runs that were made are judged again as a session judges them: by ``--replay`` and ``perfgate compare``. Nothing is
run, so what a session would ask for more runs is answered with those that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from helpers.history.results import RunResult
from helpers.judging.evidence import Budget, Build, Evidence, Stage
from helpers.judging.judge import RUN_FAILED, judge
from helpers.judging.verdict import NeedRuns, Reason, Status, Verdict
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.perf_yaml import Config

_BY_THE_NIGHT = "confirmed for the night"


def plan_again(case: SuiteCase, runs: Sequence[RunResult], config: Config, **more: Any) -> CasePlan:
    """The plan that these runs of a case were made by, as far as they tell it; ``more`` are further fields of it."""
    case_id = case.case.id
    return CasePlan(
        case,
        build=_build_of(Build.CANDIDATE, runs),
        settings=runs[-1].settings,
        overrides=runs[-1].overrides,
        tolerance=config.tolerances.recorded_for(case_id),
        band=config.tolerances.unconfirmed_for(case_id),
        reference=_build_of(Build.REFERENCE, runs),
        budget=_budget(runs, config.budgets.budget_for(case_id)),
        **more,
    )


def judge_again(evidence: Evidence) -> Verdict:
    """The verdict on as many runs as there are; INCONCLUSIVE where a session would make more."""
    usable = sum(run.usable and (run.build, run.stage) == (Build.CANDIDATE, Stage.SCREEN) for run in evidence.runs)
    evidence = replace(evidence, planned_runs=max(usable, 1))
    answer = judge(evidence)
    if isinstance(answer, Verdict) and _leaves_out_pairs(answer, evidence):
        # The case's own runs did not ask for them, so the night did.
        answer = judge(replace(evidence, suspicion=_BY_THE_NIGHT))
    if not isinstance(answer, NeedRuns):
        return answer
    if (ended := _none_usable(evidence)) is not None:
        return ended
    told = f"{len(evidence.runs)} kept runs do not settle it, and there are no more: {answer.why}"
    return Verdict(Status.INCONCLUSIVE, Reason("no-more-runs", told))


def _leaves_out_pairs(answer: Verdict, evidence: Evidence) -> bool:
    standing = answer.standing
    pairs = sum(run.usable and run.stage is Stage.CONFIRM for run in evidence.runs) // 2
    return standing is not None and not standing.pairs and pairs > 0


def _build_of(role: Build, runs: Sequence[RunResult]) -> dict[str, str]:
    return next((dict(run.build) for run in runs if run.role == role.value), {})


def _none_usable(evidence: Evidence) -> Verdict | None:
    """Where a live session would make a run again: what its runs ended with is the answer. None with a usable one."""
    if any(run.usable for run in evidence.runs):
        return None
    failures = [run.failure for run in evidence.runs if run.failure is not None]
    ends = failures or [run.invalid for run in evidence.runs if run.invalid is not None]
    if not ends:
        return None
    status, code = (Status.INFRA_ERROR, RUN_FAILED) if failures else (Status.INVALID, "run-invalid")
    made = len(evidence.runs)
    return Verdict(status, Reason(code, ends[-1] + (f" (none of {made} kept runs is usable)" if made > 1 else "")))


def _budget(runs: Sequence[RunResult], live: Budget) -> Budget:
    """As many runs of each kind as there are: the judge answers with them, and asks for no more. What a session may
    make again is as in a live one: a case that used it up was not judged there, and is not here."""
    screening = [run for run in runs if (run.role, run.stage) == (Build.CANDIDATE.value, Stage.SCREEN.value)]
    usable = max(sum(run.measured for run in screening), 1)
    pairs = sum(run.measured and run.stage == Stage.CONFIRM.value for run in runs) // 2
    return replace(live, screen_runs=usable, first_runs=usable, pairs=pairs)
