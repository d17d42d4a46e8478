"""The recorded question's answer, and the one where nothing is recorded."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.evidence import Evidence, RecordedReference
from helpers.verdict import Question, Reason, Standing, Status, SubVerdict


@dataclass(frozen=True)
class Answer:
    """The recorded question's answer, and what it leaves to later nights; None where it was not asked."""

    told: SubVerdict
    standing: Standing | None = None


def no_baseline(what: str, evidence: Evidence) -> SubVerdict:
    if evidence.why_not_recorded:
        return SubVerdict(
            Question.RECORDED, Status.NO_BASELINE, Reason("no-baseline", f"recorded: {evidence.why_not_recorded}")
        )
    remedy = f"record it: {evidence.record_command}"
    if evidence.overrides:
        remedy = f"settings changed ({', '.join(evidence.overrides)}), so this is not recorded; without --set, {remedy}"
    return SubVerdict(Question.RECORDED, Status.NO_BASELINE, Reason("no-baseline", f"{what}; {remedy}"))


def recorded_answer(
    recorded: RecordedReference, status: Status, code: str, message: str, measured: float | None = None
) -> SubVerdict:
    """The recorded question's answer; ``measured`` in images/s by the entry's rule."""
    return SubVerdict(
        Question.RECORDED,
        status,
        Reason(code, message),
        recorded.rule,
        measured,
        recorded.images_per_s,
        recorded.tolerance,
        recorded.label,
        recorded.gates,
    )
