"""What every measuring rule is made of: a function of a run's step logs, and the error where it gives no figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.steplog import StepLog


class RuleError(SuiteError):
    """The rule cannot be computed from these logs; never replaced by another rule's figure."""


RunRule = Callable[[Sequence[StepLog]], float]


@dataclass(frozen=True)
class Rule:
    """A run's throughput by ``run``; the case's is the median of ``runs`` runs or more (1: of whatever was run).

    ``steps``: the first steps of a run, warm-up among them, without which it gives no figure; 0: the window's alone.
    """

    name: str
    source: str
    run: RunRule
    runs: int = 1
    steps: int = 0


def too_short(rule: str, logs: Sequence[StepLog], needed: int) -> RuleError:
    return RuleError(
        f"rule {rule}",
        got=f"{min(len(log.steps) for log in logs)} steps",
        expected=f"{needed} or more",
        remedy="Lengthen the window of the protocol in perf.yaml",
    )
