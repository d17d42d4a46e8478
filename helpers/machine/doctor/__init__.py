"""Runs all checks of ``perfgate doctor`` on the facts of one look at the machine. Sorts the issues, worst first, and
sums them up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from helpers.common.unknown import Unknown
from helpers.machine.doctor import cpu_checks, gpu_checks, setup_checks
from helpers.machine.doctor.issue import Check, Context, Issue, Severity, note
from helpers.machine.tables import Tables, tables_of

_RANK = {severity: number for number, severity in enumerate(Severity)}


@dataclass(frozen=True)
class Diagnosis:
    """The tables and the issues. A machine is fit to measure if no issue is a blocker; warnings do not count."""

    tables: Tables
    issues: tuple[Issue, ...]

    @property
    def fit(self) -> bool:
        return not self.count(Severity.BLOCKER)

    def count(self, severity: Severity) -> int:
        return sum(issue.severity is severity for issue in self.issues)

    @property
    def verdict(self) -> str:
        """Whether the machine is fit to measure, and the count of issues, in one line."""
        counts = ", ".join(
            f"{number} {severity.value}{'s' if number > 1 else ''}" for severity in Severity
            if (number := self.count(severity))
        )  # fmt: skip
        if not self.fit:
            return f"NOT FIT to measure: {counts}; results would be worthless or missing until the blockers are gone"
        if self.count(Severity.WARNING):
            return f"FIT to measure, with reservations: {counts}"
        return f"FIT to measure: {counts or 'nothing found'}"


def not_looked_at(context: Context) -> Iterator[Issue]:
    """Reports the facts that are not known, so that a missing answer never looks like a good one."""
    state = context.facts.host
    unseen = {item.name: getattr(state, item.name) for item in fields(state)}
    for gpu in context.facts.machine.gpus:
        details = context.facts.details.get(gpu.uuid)
        for item in fields(details) if details is not None else ():
            unseen[f"GPU{gpu.index} {item.name}"] = getattr(details, item.name)
    unseen |= {"the run folder's disk": context.runs, "the topology": context.facts.topology}
    reasons = {name.replace("_", " "): value.reason for name, value in unseen.items() if isinstance(value, Unknown)}
    if reasons:
        yield note(
            "not looked at", "; ".join(f"{name} ({reason})" for name, reason in reasons.items()),
            "What cannot be seen may still spoil a measurement",
            "On a virtual machine or in a container: ask whoever runs the host",
        )  # fmt: skip


CHECKS: tuple[Check, ...] = (
    *cpu_checks.CHECKS,
    *gpu_checks.CHECKS,
    *setup_checks.CHECKS,
    gpu_checks.libraries,
    not_looked_at,
)


def diagnose(context: Context, checks: Sequence[Check] = CHECKS) -> Diagnosis:
    """Run every check; issues of one severity stay in the order of the checks."""
    found = [issue for check in checks for issue in check(context)]
    return Diagnosis(tables_of(context.facts), tuple(sorted(found, key=lambda issue: _RANK[issue.severity])))
