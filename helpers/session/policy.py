"""What a status does to the build: docs/reference.md, "Statuses" and "Exit codes"."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from helpers.judging.verdict import Status
from helpers.session.outcome import CaseEffect, CaseOutcome

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
    """What the status does to this case's test; ``gated`` is None outside the gate."""
    normal = _NORMAL[status]
    if gated is None:
        return normal
    if normal in (CaseEffect.WARN, CaseEffect.SKIP):
        return CaseEffect.FAIL
    if gated.needs is not Needs.RECORDED and not gated.has_published and normal is CaseEffect.PASS:
        return CaseEffect.FAIL
    return normal


def gate_reason(status: Status, gated: Gated) -> str | None:
    """Why the gate fails a case that would not fail outside it; None where it does not."""
    if effect(status, gated) is not CaseEffect.FAIL or effect(status) is CaseEffect.FAIL:
        return None
    if status is not Status.NOT_RUN and gated.needs is not Needs.RECORDED and not gated.has_published:
        return f"the gate needs a {Needs.PUBLISHED.value} figure of this case and none applies to this machine"
    return f"the gate does not let {status.value} pass (needs: {gated.needs.value})"


_SLOWER = (Status.REGRESSION, Status.SLOWER, Status.BELOW_PUBLISHED)
_NOT_MEASURED = (Status.INFRA_ERROR, Status.INVALID, Status.NOT_RUN)


def outside_gate(normal: CaseEffect) -> CaseEffect:
    """The effect under ``--gate`` of a case that the gate does not judge: it is shown, and cannot fail the gate."""
    return CaseEffect.WARN if normal in (CaseEffect.FAIL, CaseEffect.ERROR) else normal


def exit_code(
    outcomes: Iterable[CaseOutcome],
    pytest_exit: int,
    other_failures: bool = False,
    night: Status | None = None,
    gate: bool = False,
) -> int:
    """The session's exit code from its cases' outcomes, and from the night's status where it has one.

    docs/reference.md, "Exit codes". ``pytest_exit`` is pytest's own: 2 to 5 stay (interrupted, internal, usage,
    nothing collected). 1 outranks 6. ``other_failures`` says that a test failed which is no case: this keeps pytest's
    1. A session that measured none of the cases that it judges is 6, also where each of them was skipped for a reason.
    """
    judged = [(each.status, each.effect) for each in outcomes if each.judged]
    if night is not None:
        # It counts as a case of its status, under --gate as a gated one.
        judged.append((night, effect(night, Gated(Needs.RECORDED, False) if gate else None)))
    if pytest_exit not in (EXIT_OK, EXIT_SLOWER):
        return pytest_exit
    if other_failures or any(status in _SLOWER and does is CaseEffect.FAIL for status, does in judged):
        return EXIT_SLOWER
    if any(does in (CaseEffect.ERROR, CaseEffect.FAIL) for _, does in judged):
        return EXIT_NOT_JUDGED
    if all(status in _NOT_MEASURED for status, _ in judged):
        return EXIT_NOT_JUDGED
    # A 1 that no case explains is not turned into a 0.
    return pytest_exit
