"""Judges runs that were made before, by the procedure of a session: the same runs get the same answer.

Nothing is run. If a session would make more runs, the answer is based on the existing ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from helpers.history.results import RunResult
from helpers.judging.case.compare import CaseComparison
from helpers.judging.case.compare_sides import KeptRun, Pairing, side_of
from helpers.judging.case.evidence import Budget, Build, Evidence, Past, RecordedReference, Stage
from helpers.judging.case.judge import failed_run, judge
from helpers.judging.case.noise import Noise
from helpers.judging.case.verdict import NeedRuns, Reason, Status, SubVerdict, Verdict
from helpers.judging.finding import Code, found
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.perf_yaml import Config
from helpers.plan.recorded import RecordedEntry
from helpers.session.measuring.case_loop import evidence_of
from helpers.session.suite import Suite
from helpers.trainers.contract.case import Case

if TYPE_CHECKING:
    from helpers.history.history import History
    from helpers.judging.case.level import Level

_BY_THE_NIGHT = found(Code.BY_THE_NIGHT)


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
    return Verdict(Status.INCONCLUSIVE, Reason.of(found(Code.NO_MORE_RUNS, answer.why, runs=len(evidence.runs))))


def _leaves_out_pairs(answer: Verdict, evidence: Evidence) -> bool:
    standing = answer.standing
    pairs = sum(run.usable and run.stage is Stage.CONFIRM for run in evidence.runs) // 2
    return standing is not None and standing.pairs is None and pairs > 0


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
    last, made = ends[-1], len(evidence.runs)
    if failures:
        return Verdict(Status.INFRA_ERROR, Reason.of(failed_run(last), found(Code.NONE_USABLE, runs=made)))
    invalid = found(Code.RUN_INVALID, why=last, row=1, repeats=evidence.budget.repeats)
    return Verdict(Status.INVALID, Reason.of(invalid, found(Code.NONE_USABLE, runs=made)))


def _budget(runs: Sequence[RunResult], live: Budget) -> Budget:
    """A budget of as many runs of each kind as there are, so that the judge requests no more. How often a run may be
    repeated is as in a live session: a case that used this up was not judged there, and is not judged here."""
    usable = max(sum(run.measured and run.is_screening for run in runs), 1)
    pairs = sum(run.measured and run.is_confirming for run in runs) // 2
    return replace(live, screen_runs=usable, first_runs=usable, pairs=pairs)


@dataclass(frozen=True)
class JudgedNights:
    """The nights of a case on side B of a comparison."""

    suite: Suite
    history: History
    pairing: Pairing
    # B's runs of the case, those that are in no pair included.
    runs: Sequence[KeptRun]

    @cached_property
    def _judged_by_pairs(self) -> bool:
        """Whether pytest decided by pairs in each of the sessions. A search for a bad build, for one, makes pairs and
        compares them with no earlier night."""
        known = [
            each.record.standing
            for session in self.pairing.sessions
            for each in self.history.nights_of(f"session:{session}", self.pairing.case_id)
            if each.record.target == self.pairing.target
        ]
        return len(known) == len(self.pairing.sessions) and all(each is not None and each.pairs for each in known)

    def judged_again(self, *, against_baseline: bool) -> CaseComparison | None:
        """The comparison with the recorded baseline, or with the good build beside B, judged as pytest did in the one
        session; None if it was not judged so, or if there are several sessions."""
        pairing, entry = self.pairing, self._entry
        if len(pairing.sessions) != 1 or not (against_baseline or pairing.is_beside_good):
            return None
        (session,) = pairing.sessions
        kept = [each for each in self._results_of(session) if self._counts(each)]
        if (pairing.is_beside_good or entry is None) and not self._judged_by_pairs:
            return None
        plan = plan_again(self._case, kept, self.suite.config, recorded=entry)
        tonight = len(self.history.nights_of(f"session:{session}"))
        verdict = judge_again(evidence_of(plan, tuple(kept), self._past, cases_tonight=tonight))
        # If there is none, the runs ended the case before a question was asked.
        answer = verdict.recorded or SubVerdict(verdict.status, verdict.reason)
        return CaseComparison(
            pairing.case_id,
            pairing.target,
            answer.status,
            answer.reason,
            side_of(pairing.a),
            side_of(pairing.b),
            MEDIAN_STEP if entry is None else entry.rule,
            plan.tolerance if entry is None or entry.tolerance is None else entry.tolerance,
        ).of_standing(verdict.standing)

    def _results_of(self, session: str) -> list[RunResult]:
        """The session's runs of the case that nobody excluded."""
        pairing = self.pairing
        found = self.history.results_of(session=session, case_id=pairing.case_id, target=pairing.target)
        return [each.result for each in found if each.exclusion is None]

    def _counts(self, run: RunResult) -> bool:
        """Whether a run is part of the night that is judged again: one that failed, or one that was chosen. The
        baseline does not choose among the runs in pairs."""
        if not run.measured or run.uuid in {each.uuid for each in (*self.runs, *self.pairing.a)}:
            return True
        return run.is_confirming and not self.pairing.is_beside_good

    def level(self, noise: Noise) -> Level | None:
        """The level of the nights before against A, if A is the good build of B's nights and these were compared with
        it; else None: then A itself counts."""
        pairing = self.pairing
        if not (pairing.is_beside_good and self._judged_by_pairs):
            return None
        # Imported here because it loads numpy, which takes longer than most commands take to answer.
        from helpers.judging.case.level import learn_level

        runs = self._results_of(pairing.sessions[0])
        plan = plan_again(self._case, runs, self.suite.config, recorded=self._entry)
        evidence = evidence_of(plan, tuple(runs), self._past)
        if evidence.recorded is None:
            nothing = RecordedReference(1.0, MEDIAN_STEP, "nothing", evidence.tolerance, comparable=False)
            evidence = replace(evidence, recorded=nothing)
        return learn_level(evidence, noise)

    @cached_property
    def _entry(self) -> RecordedEntry | None:
        return self.suite.recorded_entry(self.pairing.target, self.pairing.case_id)

    @cached_property
    def _past(self) -> Past:
        """What was known before the first of the sessions."""
        pairing = self.pairing
        cards = Case.parse(pairing.case_id).cards
        first = min(pairing.b, key=lambda run: run.created)
        return self.history.past(pairing.case_id, pairing.target, first.segment, cards, first.session)

    @cached_property
    def _case(self) -> SuiteCase:
        """The suite's case; for a case that perf.yaml no longer lists, one made for the comparison, which needs only
        the runs."""
        known = next((each for each in self.suite.cases if each.key == self.pairing.key), None)
        protocol = next(iter(self.suite.config.protocols.values()))
        return known or SuiteCase(Case.parse(self.pairing.case_id), self.pairing.target, protocol)
