"""The gate of this machine: which cases ``--gate`` judges, and how a case's outcome changes with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from helpers.history.results import MEASURED
from helpers.judging.verdict import Reason
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.perf_yaml import GateRule
from helpers.session.measure import CaseResult
from helpers.session.outcome import CaseOutcome
from helpers.session.policy import Gated, Needs, effect, gate_reason, outside_gate
from helpers.trainers.contract.errors import ConfigError


@dataclass(frozen=True)
class Gate:
    """The gate of a session. Without ``--gate`` no case is gated, and every one is judged by the normal policy."""

    # Whether ``--gate`` was given.
    enabled: bool
    # Those of perf.yaml for this machine.
    rules: tuple[GateRule, ...] = ()
    # The case ids that the command line gives in full.
    named: frozenset[str] = frozenset()

    def rule_for(self, suite_case: SuiteCase) -> GateRule | None:
        """The first rule whose pattern matches the case."""
        return next((rule for rule in self.rules if _matches(rule, suite_case)), None)

    def recorded_required(self, suite_case: SuiteCase) -> bool | None:
        """Whether perf.yaml lets the case pass only with a recorded figure, ``--gate`` or not; None where no rule of it
        matches the case."""
        rule = self.rule_for(suite_case)
        return None if rule is None else Needs(rule.needs) is not Needs.PUBLISHED

    def judges(self, suite_case: SuiteCase) -> bool:
        """Whether this session's gate judges the case."""
        return self.enabled and (self.rule_for(suite_case) is not None or suite_case.case.id in self.named)

    def gated(self, plan: CasePlan) -> Gated | None:
        """What the gate requires of a case; None for one that it does not judge."""
        if not self.enabled:
            return None
        has_published = any(reference.gates for reference in plan.published)
        if (rule := self.rule_for(plan.suite_case)) is not None:
            return Gated(Needs(rule.needs), has_published)
        if plan.case.id in self.named:
            return Gated(Needs.PUBLISHED if has_published else Needs.RECORDED, has_published)
        return None

    def outcome(self, result: CaseResult, run_folders: tuple[str, ...] = ()) -> CaseOutcome:
        """The outcome of a judged case, with the gate's effect and, where the gate fails the case, its reason."""
        plan, verdict = result.plan, result.verdict
        gated = self.gated(plan)
        judged = gated is not None or not self.enabled
        reason = None if gated is None else gate_reason(verdict.status, gated)
        if reason is not None:
            verdict = replace(verdict, reason=Reason(verdict.reason.code, f"{reason}; {verdict.reason.message}"))
        return CaseOutcome(
            plan.case,
            plan.suite_case.target,
            verdict,
            effect(verdict.status, gated) if judged else outside_gate(effect(verdict.status)),
            judged,
            plan.rule,
            result.runs,
            run_folders,
            result.resumed,
            plan.reference_label or "",
            plan.why_no_reference,
            result.runs[0].origin if result.runs else MEASURED,
        )

    def check(self, cases: Iterable[SuiteCase], config: Path, host: str) -> None:
        """Raises ConfigError for a gate that judges nothing, or less than its file says."""
        if not self.enabled:
            return
        if not self.rules and not self.named:
            raise ConfigError(
                str(config),
                field="machines",
                got=f"no gate for host {host!r}",
                expected="machines.NAME.gate with patterns over case ids",
                remedy="Add it, or name the gated cases by full id on the command line",
            )
        cases = tuple(cases)
        for rule in self.rules:
            if not any(_matches(rule, case) for case in cases):
                near = difflib.get_close_matches(rule.cases, sorted({case.case.id for case in cases}), n=2, cutoff=0.3)
                raise ConfigError(
                    str(config),
                    field="machines: gate: cases",
                    got=rule.cases,
                    expected="a pattern that at least one case of the matrix matches",
                    remedy=f"Nearest: {', '.join(near)}" if near else "List the ids with --collect-only",
                )

    def summary(self, chosen: Iterable[SuiteCase], cases: Iterable[SuiteCase]) -> str | None:
        """One line on how much of the gate a session judges; None without one."""
        if not self.enabled:
            return None
        own = {case.key for case in cases if self.judges(case)}
        judged = len(own & {case.key for case in chosen})
        return f"gate: {judged} of its {len(own)} cases are selected and judged; other cases cannot fail it"


def _matches(rule: GateRule, suite_case: SuiteCase) -> bool:
    return rule.target in (None, suite_case.target) and fnmatchcase(suite_case.case.id, rule.cases)
