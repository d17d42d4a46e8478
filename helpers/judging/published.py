"""The published question: does this machine deliver what the table says, by the table's own rule, within a band?"""

from __future__ import annotations

from collections.abc import Sequence

from helpers.judging.evidence import Evidence, PublishedReference, RunEvidence
from helpers.judging.rules import case_figure
from helpers.judging.statistics import number
from helpers.judging.verdict import Question, Reason, Status, SubVerdict

# A figure exactly at the edge of a band is inside it, whatever the last bits of the division say.
_ROUNDING = 1e-9


def against_published(evidence: Evidence, reference: PublishedReference, runs: Sequence[RunEvidence]) -> SubVerdict:
    """The answer for one published figure; ``runs`` are the usable screening runs."""

    def answer(status: Status, code: str, message: str, measured: float | None = None) -> SubVerdict:
        return SubVerdict(
            Question.PUBLISHED,
            status,
            Reason(code, message),
            reference.rule,
            measured,
            reference.images_per_s,
            reference.tolerance,
            reference.label,
            reference.gates,
        )

    measured = by_rule(runs, reference.rule)
    if isinstance(measured, str):
        return answer(Status.INCONCLUSIVE, "rule-not-computable", f"published: {measured}")
    ratio = measured / reference.images_per_s
    numbers = (
        f"{number(measured)} images/s is {ratio - 1:+.1%} against the published {number(reference.images_per_s)} "
        f"({reference.label}; by {reference.rule}; n={len(runs)}; band -{reference.tolerance:.1%})"
    )
    if changed := [key for key in evidence.overrides if key not in evidence.neutral]:
        told = f"settings changed ({', '.join(changed)}): {numbers}"
        return answer(Status.INCOMPARABLE, "overridden", told, measured)
    numbers += _neutral_note(evidence)
    if ratio < 1 - reference.tolerance - _ROUNDING:
        return answer(Status.BELOW_PUBLISHED, "below-published", numbers, measured)
    return answer(Status.PASS, "within-published", numbers, measured)


def by_rule(runs: Sequence[RunEvidence], rule: str) -> float | str:
    """The case's median by a rule, or why there is none."""
    found = case_figure(rule, [run.figures for run in runs])
    return found.reason if found.images_per_s is None else found.images_per_s


def _neutral_note(evidence: Evidence) -> str:
    """The changed settings that the throughput does not depend on, empty without any."""
    told = [f"{key}: {evidence.neutral[key]}" for key in evidence.overrides]
    return f"; changed, but not what a step does ({'; '.join(told)})" if told else ""
