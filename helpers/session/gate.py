"""The effect of a status (docs/reference.md, "Statuses" and "Exit codes"), and this machine's gate: which cases
``--gate`` judges, and how it changes a case's outcome.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING

from helpers.common.wall_clock import local_now
from helpers.judging.case.verdict import Status
from helpers.judging.finding import Code
from helpers.session.outcome import OUT_OF_TIME, CaseEffect, CaseOutcome, Gating, GoodBuild
from helpers.trainers.contract.errors import ConfigError

if TYPE_CHECKING:
    # Commands that judge nothing take their exit codes from here.
    from helpers.plan.case_patterns import Quarantine
    from helpers.plan.case_plan import CasePlan, SuiteCase
    from helpers.plan.perf_yaml import Config, GateRule
    from helpers.session.measuring.case_loop import CaseResult

EXIT_OK = 0
EXIT_SLOWER = 1
EXIT_NOT_JUDGED = 6


class Needs(enum.Enum):
    """Which reference a gate requires of a case."""

    PUBLISHED = "published"
    RECORDED = "recorded"
    BOTH = "both"


_NORMAL = MappingProxyType(
    {
        Status.INFRA_ERROR: CaseEffect.ERROR,
        Status.INVALID: CaseEffect.ERROR,
        Status.REGRESSION: CaseEffect.FAIL,
        Status.SLOWER: CaseEffect.FAIL,
        Status.BELOW_PUBLISHED: CaseEffect.FAIL,
        Status.INCOMPARABLE: CaseEffect.WARN,
        Status.INCONCLUSIVE: CaseEffect.WARN,
        Status.NO_BASELINE: CaseEffect.WARN,
        Status.IMPROVEMENT: CaseEffect.PASS,
        Status.PASS: CaseEffect.PASS,
        Status.NOT_RUN: CaseEffect.SKIP,
    }
)


@dataclass(frozen=True)
class Gated:
    """A case under ``--gate``: what it needs, and whether a published figure applies to it here."""

    needs: Needs
    has_published: bool


def effect(status: Status, gated: Gated | None = None) -> CaseEffect:
    """What the status does to the case's test; ``gated`` is None for a case outside the gate."""
    normal = _NORMAL[status]
    if gated is None:
        return normal
    if normal in (CaseEffect.WARN, CaseEffect.SKIP):
        return CaseEffect.FAIL
    if gated.needs is not Needs.RECORDED and not gated.has_published and normal is CaseEffect.PASS:
        return CaseEffect.FAIL
    return normal


def gate_reason(status: Status, gated: Gated, *, other_program: bool = False) -> str | None:
    """Why the gate fails a case that would not fail outside it; None if the gate does not fail it. ``other_program``:
    what was trained is not the published program."""
    if effect(status, gated) is not CaseEffect.FAIL or effect(status) is CaseEffect.FAIL:
        return None
    if status is not Status.NOT_RUN and gated.needs is not Needs.RECORDED and not gated.has_published:
        if other_program:
            return f"the gate needs the {Needs.PUBLISHED.value} figure of this case, and another program was trained"
        return f"the gate needs a {Needs.PUBLISHED.value} figure of this case and none applies to this machine"
    if status is Status.NOT_RUN:
        return f"the gate does not let a case pass that was not run (needs: {gated.needs.value})"
    return f"the gate does not let {status.value} pass (needs: {gated.needs.value})"


# The build, or the machine, is slow.
SLOWER = (Status.REGRESSION, Status.SLOWER, Status.BELOW_PUBLISHED)
_NOT_MEASURED = (Status.INFRA_ERROR, Status.INVALID, Status.NOT_RUN)


def outside_gate(normal: CaseEffect) -> CaseEffect:
    """The effect under ``--gate`` of a case that the gate does not judge: it is shown, and cannot fail the gate."""
    return CaseEffect.WARN if normal in (CaseEffect.FAIL, CaseEffect.ERROR) else normal


def night_effect(night: Status, gate: bool) -> CaseEffect:
    """The effect of the verdict on the night: that of a case with its status, under ``--gate`` that of a case of the
    gate."""
    return effect(night, Gated(Needs.RECORDED, False) if gate else None)


def exit_code(
    outcomes: Iterable[CaseOutcome],
    pytest_exit: int,
    other_failures: bool = False,
    night: Status | None = None,
    gate: bool = False,
) -> int:
    """The session's exit code from its cases' outcomes, and from the night's status if it has one.

    docs/reference.md, "Exit codes". ``pytest_exit`` is pytest's own: 2 to 5 stay (interrupted, internal, usage, nothing
    collected). 1 outranks 6, and only ever means slower. The code is 6 if a test that is not a case failed
    (``other_failures``), or if the session measured none of the cases that it judges, also if each of them was skipped
    for a reason.
    """
    judged = [(each.status, each.gating.effect) for each in outcomes if each.gating.judged]
    if night is not None:
        judged.append((night, night_effect(night, gate)))
    if pytest_exit not in (EXIT_OK, EXIT_SLOWER):
        return pytest_exit
    if any(status in SLOWER and does is CaseEffect.FAIL for status, does in judged):
        return EXIT_SLOWER
    failed = other_failures or any(does in (CaseEffect.ERROR, CaseEffect.FAIL) for _, does in judged)
    # If no case explains pytest's 1, it is not changed into a 0.
    if failed or pytest_exit != EXIT_OK or all(status in _NOT_MEASURED for status, _ in judged):
        return EXIT_NOT_JUDGED
    return EXIT_OK


# ---- the gate of this machine


@dataclass(frozen=True)
class Gate:
    """The gate of a session. Without ``--gate`` no case belongs to it, and every case has the normal effect of its
    status."""

    # Whether ``--gate`` was given.
    enabled: bool
    # The rules of perf.yaml for this machine.
    rules: tuple[GateRule, ...] = ()
    # The case ids that the command line gives in full.
    named: frozenset[str] = frozenset()
    # The date of the night, by which a quarantine holds or is over.
    today: datetime.date = field(default_factory=lambda: local_now().date())

    def rule_for(self, suite_case: SuiteCase) -> GateRule | None:
        """The first rule whose pattern matches the case."""
        return next((rule for rule in self.rules if _matches(rule, suite_case)), None)

    def recorded_required(self, suite_case: SuiteCase) -> bool | None:
        """Whether perf.yaml lets the case pass only with a recorded figure, with or without ``--gate``; None if no rule
        matches the case."""
        rule = self.rule_for(suite_case)
        return None if rule is None else Needs(rule.needs) is not Needs.PUBLISHED

    def judges(self, suite_case: SuiteCase) -> bool:
        """Whether the case belongs to this session's gate, also if it is in quarantine."""
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

    def quarantine_of(self, suite_case: SuiteCase) -> Quarantine | None:
        """The quarantine in which a case of the gate is today."""
        entry = suite_case.quarantine
        return entry if entry is not None and self.judges(suite_case) and self.today <= entry.until else None

    def outcome(self, result: CaseResult, run_folders: tuple[str, ...] = ()) -> CaseOutcome:
        """The outcome of a judged case, with the gate's effect and, if the gate changes it, the gate's rule."""
        plan, verdict = result.plan, result.verdict
        gated = self.gated(plan)
        other_program = any(each.reason.code == Code.OTHER_PROGRAM for each in verdict.published)
        if gated is not None and other_program:
            gated = replace(gated, has_published=False)
        entry = plan.suite_case.quarantine if gated is not None else None
        kept = self.quarantine_of(plan.suite_case)
        judged = kept is None and (gated is not None or not self.enabled)
        does = effect(verdict.status, gated) if judged else outside_gate(effect(verdict.status))
        rule = None if gated is None else gate_reason(verdict.status, gated, other_program=other_program)
        if verdict.reason.code == OUT_OF_TIME:
            # The case is not judged tonight: it waited least.
            gated, entry, does, rule = None, None, CaseEffect.SKIP, None
        if kept is not None:
            rule = f"in quarantine until {kept.until}, so it cannot fail the gate ({kept.reason})"
        elif entry is not None:
            does = CaseEffect.ERROR if does is CaseEffect.ERROR else CaseEffect.FAIL
            rule = (
                f"the quarantine of {entry.pattern!r} in perf.yaml ({entry.reason}) ended on "
                f"{entry.until}: take the entry out, or give it another day with a reason"
            )
        quarantine = "" if kept is None else f"until {kept.until}: {kept.reason}"
        return CaseOutcome(
            plan.case,
            plan.suite_case.target,
            verdict,
            Gating(does, judged, rule or "", quarantine),
            plan.rule,
            result.runs,
            run_folders,
            result.resumed,
            GoodBuild(plan.reference_label or "", plan.why_no_reference),
            plan.suite_case.owner,
        )

    def refuse_unlisted(self, config: Config, host: str) -> None:
        """Raises ConfigError for a gate on a machine for which the file has none."""
        if self.enabled and not self.rules and not self.named:
            example = f"machines: {{NAME: {{host: {host!r}, gate: [{{cases: 'paddle-*', needs: recorded}}]}}}}"
            raise ConfigError(
                str(config.path),
                field="machines",
                got=f"no gate for host {host!r}",
                expected="machines.NAME.gate with patterns over case ids",
                remedy=f"Write perf.yaml with perfgate init, add a rule ({example}), or name the gated cases by full "
                "id on the command line",
            )

    def summary(self, chosen: Iterable[SuiteCase], cases: Iterable[SuiteCase]) -> str | None:
        """One line on how much of the gate this session judges; None without a gate."""
        if not self.enabled:
            return None
        own = [case for case in cases if self.judges(case)]
        mine = {case.key for case in chosen}
        selected = [case for case in own if case.key in mine]
        kept = sum(self.quarantine_of(case) is not None for case in selected)
        judged = f"{len(selected) - kept} of its {len(own)} cases are selected and judged"
        if kept:
            judged += f", {kept} more {'is' if kept == 1 else 'are'} in quarantine"
        if kept and kept == len(selected):
            return f"gate: {judged}: it cannot pass"
        return f"gate: {judged}; other cases cannot fail it"


def _matches(rule: GateRule, suite_case: SuiteCase) -> bool:
    return rule.target in (None, suite_case.target) and fnmatchcase(suite_case.case.id, rule.cases)
