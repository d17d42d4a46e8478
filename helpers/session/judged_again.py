"""Judges runs that were made before, by the procedure of a session: for ``--replay`` and ``perfgate compare``.

Nothing is run. If a session would make more runs, the answer is based on the existing ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helpers.history.results import RunResult
from helpers.judging.compare import CaseComparison
from helpers.judging.compare_sides import Pairing, side_of
from helpers.judging.evidence import Budget, Build, Evidence, Past, RecordedReference, Stage
from helpers.judging.judge import RUN_FAILED, judge
from helpers.judging.noise import Noise
from helpers.judging.rules import MEDIAN_STEP
from helpers.judging.verdict import NeedRuns, Question, Reason, Status, SubVerdict, Verdict
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.perf_yaml import Config
from helpers.plan.recorded import RecordedEntry
from helpers.session.measure import evidence_of

if TYPE_CHECKING:
    from helpers.judging.level import Level

_BY_THE_NIGHT = "confirmed for the night"


def plan_again(case: SuiteCase, runs: Sequence[RunResult], config: Config, **more: Any) -> CasePlan:
    """The plan of these runs of a case, as far as the runs hold it; ``more`` has the other fields. Its steps are the
    runs' own, which may be others than perf.yaml has by now."""
    case_id = case.case.id
    steps: dict[str, Any] = {name: value for name, value in runs[-1].protocol.items() if name in case.protocol.steps}
    return CasePlan(
        replace(case, protocol=replace(case.protocol, **steps)),
        build=_build_of(Build.CANDIDATE, runs),
        settings=runs[-1].settings,
        overrides=runs[-1].overrides,
        tolerance=config.tolerances.of(case_id).recorded,
        band=config.tolerances.of(case_id).unconfirmed,
        reference=_build_of(Build.REFERENCE, runs),
        budget=_budget(runs, config.budgets.of(case_id)),
        **more,
    )


def judge_again(evidence: Evidence) -> Verdict:
    """The verdict on the existing runs; INCONCLUSIVE if a session would make more."""
    usable = sum(run.usable and (run.build, run.stage) == (Build.CANDIDATE, Stage.SCREEN) for run in evidence.runs)
    evidence = replace(evidence, planned_runs=max(usable, 1))
    answer = judge(evidence)
    if isinstance(answer, Verdict) and _leaves_out_pairs(answer, evidence):
        # The case's own runs gave no reason for these pairs, so the night requested them.
        answer = judge(replace(evidence, suspicion=_BY_THE_NIGHT))
    if not isinstance(answer, NeedRuns):
        return answer
    if (ended := _none_usable(evidence)) is not None:
        return ended
    message = f"{len(evidence.runs)} kept runs do not settle it, and there are no more: {answer.why}"
    return Verdict(Status.INCONCLUSIVE, Reason("no-more-runs", message))


def _leaves_out_pairs(answer: Verdict, evidence: Evidence) -> bool:
    standing = answer.standing
    pairs = sum(run.usable and run.stage is Stage.CONFIRM for run in evidence.runs) // 2
    return standing is not None and not standing.pairs and pairs > 0


def _build_of(role: Build, runs: Sequence[RunResult]) -> dict[str, str]:
    return next((dict(run.build) for run in runs if run.role == role.value), {})


def _none_usable(evidence: Evidence) -> Verdict | None:
    """The verdict if a live session would repeat a run: how the runs ended. None if a run is usable."""
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
    """A budget of as many runs of each kind as there are, so that the judge requests no more. How often a run may be
    repeated is as in a live session: a case that used this up was not judged there, and is not judged here."""
    usable = max(sum(run.measured and run.is_screening for run in runs), 1)
    pairs = sum(run.measured and run.is_confirming for run in runs) // 2
    return replace(live, screen_runs=usable, first_runs=usable, pairs=pairs)


def against_night(
    pairing: Pairing,
    case: SuiteCase,
    runs: Sequence[RunResult],
    entry: RecordedEntry | None,
    past: Past,
    config: Config,
    cases_tonight: int,
) -> CaseComparison:
    """Compares one session with what this machine recorded, and with the good build beside it, as pytest did in that
    session.

    ``runs`` are all runs that the session made of the case, ``entry`` is None if nothing is recorded, ``past`` is what
    was known before the session, and ``cases_tonight`` is how many cases it measured.
    """
    plan = plan_again(case, runs, config, recorded=entry)
    verdict = judge_again(evidence_of(plan, tuple(runs), past, cases_tonight=cases_tonight))
    # If there is none, the runs ended the case before a question was asked.
    answer = verdict.recorded or SubVerdict(Question.RECORDED, verdict.status, verdict.reason)
    sides = side_of(pairing.a), side_of(pairing.b)
    tolerance = plan.tolerance if entry is None or entry.tolerance is None else entry.tolerance
    comparison = CaseComparison(
        pairing.case_id,
        pairing.target,
        answer.status,
        answer.reason,
        *sides,
        MEDIAN_STEP if entry is None else entry.rule,
        tolerance,
    )
    return comparison.of_standing(verdict.standing)


def level_before(
    case: SuiteCase, runs: Sequence[RunResult], entry: RecordedEntry | None, past: Past, config: Config, noise: Noise
) -> Level:
    """The level of the nights before these runs of a case against the good build beside them; ``past`` is what was
    known before them."""
    # Imported here because it loads numpy, which takes longer than most commands take to answer.
    from helpers.judging.level import learn_level

    evidence = evidence_of(plan_again(case, runs, config, recorded=entry), tuple(runs), past)
    if evidence.recorded is None:
        nothing = RecordedReference(1.0, MEDIAN_STEP, "nothing", evidence.tolerance, comparable=False)
        evidence = replace(evidence, recorded=nothing)
    return learn_level(evidence, noise)
