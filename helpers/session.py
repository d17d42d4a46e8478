"""The loop: run what judge() asks for until it has a verdict. Used by pytest and the command line alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from helpers.errors import SuiteError
from helpers.evidence import Build, Evidence, RecordedReference
from helpers.overrides import neutral_reasons
from helpers.plan import CasePlan, recorded_reference
from helpers.results import CONTENDED, ResultStore, RunResult
from helpers.verdict import NeedRuns, Reason, Status, Verdict, judge

# Far above every protocol's runs plus 16 A/B pairs: a judge that never settles must not train all night.
_MOST_RUNS = 100

Judge = Callable[[Evidence], "Verdict | NeedRuns"]


class Runner(Protocol):
    """Makes one run of a plan: fresh processes, one result folder, the result written before it returns."""

    def run(self, plan: CasePlan, replicate: int) -> RunResult: ...


@dataclass(frozen=True)
class CaseResult:
    """A case with its runs and its verdict; ``resumed`` of the runs were found on disk."""

    plan: CasePlan
    verdict: Verdict
    runs: tuple[RunResult, ...] = ()
    resumed: int = 0


def measure_case(
    plan: CasePlan,
    runner: Runner,
    store: ResultStore,
    *,
    resume: bool = False,
    allow_contention: bool = False,
    judge: Judge = judge,
) -> CaseResult:
    """Run and judge one case. Raises SuiteError when the judge asks for runs without end."""
    runs = reusable_runs(plan, store, allow_contention) if resume else ()
    resumed = len(runs)
    while isinstance(answer := judge(evidence_of(plan, runs)), NeedRuns):
        _check_request(plan, answer, len(runs))
        for _ in answer.order:
            run = runner.run(plan, len(runs))
            runs = (*runs, run)
            if not run.measured:
                break
    store.add_verdict(runs, answer)
    return CaseResult(plan, answer, runs, resumed)


def not_run(plan: CasePlan, reason: str) -> CaseResult:
    """A case that this machine cannot run, with the reason."""
    return CaseResult(plan, Verdict(Status.NOT_RUN, Reason("not-run", reason)))


def evidence_of(plan: CasePlan, runs: tuple[RunResult, ...]) -> Evidence:
    return Evidence(
        case_id=plan.case.id,
        rule=plan.rule,
        planned_runs=plan.protocol.runs,
        runs=tuple(run.evidence for run in runs),
        published=plan.published,
        recorded=_recorded(plan, runs),
        overrides=tuple(sorted(plan.overrides)),
        neutral=neutral_reasons(plan.overrides),
    )


def _recorded(plan: CasePlan, runs: tuple[RunResult, ...]) -> RecordedReference | None:
    """The recorded entry, with what the segment of any run differs in: a resumed run may be of another driver."""
    environments = [run.environment for run in runs if run.measured] or [{}]
    references = [recorded_reference(plan, environment) for environment in environments]
    first = references[0]
    if first is None:
        return None
    different = [each for reference in references if reference for each in reference.differences]
    return replace(first, differences=tuple(dict.fromkeys(different)))


def reusable_runs(plan: CasePlan, store: ResultStore, allow_contention: bool) -> tuple[RunResult, ...]:
    """The session's finished runs of exactly this plan.

    A failed, an invalid or a differently configured run is made again, and so is one of another
    machine, driver or data, and a contended one where contention is not allowed.
    """
    wanted = [
        run
        for run in store.results(plan.case.id)
        if run.measured
        and run.target == plan.suite_case.target
        and dict(run.build) == dict(plan.build)
        and run.environment.get("data", "") == plan.data
        and all(run.environment.get(name) == value for name, value in plan.environment.items())
        and (allow_contention or CONTENDED not in run.marks)
        and dict(run.protocol) == protocol_record(plan)
        and _as_stored(run.settings) == _as_stored(plan.settings)
        and _as_stored(run.overrides) == _as_stored(plan.overrides)
    ]
    # Replicates are numbered without a gap; what follows a gap is made again.
    return tuple(run for number, run in enumerate(wanted) if run.replicate == number)


def _check_request(plan: CasePlan, request: NeedRuns, made: int) -> None:
    """A judge that asks for nothing, for no end, or for a build that nobody makes, must not loop or be obeyed."""
    about = f"case {plan.case.id}"
    if request.count != len(request.order) or not request.order:
        raise SuiteError(
            about,
            field="order",
            got=[build.value for build in request.order],
            expected=f"{request.count} builds, at least 1",
        )
    if made + request.count > _MOST_RUNS:
        raise SuiteError(
            about,
            got=f"{request.count} more runs wanted after {made} ({request.why})",
            expected=f"a verdict within {_MOST_RUNS} runs",
        )
    if Build.REFERENCE in request.order:
        raise SuiteError(
            about, field="order", got="reference", expected="candidate: this session has no reference build"
        )


def _as_stored(values: Mapping[str, Any]) -> str:
    """Values as a result file holds them, where a tuple is a list."""
    return json.dumps(dict(values), sort_keys=True, default=dict)


def protocol_record(plan: CasePlan) -> dict[str, int]:
    return {"warmup_steps": plan.protocol.warmup_steps, "window_steps": plan.protocol.window_steps}
