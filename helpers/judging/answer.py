"""The recorded question's answer, and the one where nothing is recorded."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.judging.evidence import Evidence, RecordedReference
from helpers.judging.verdict import Question, Reason, Standing, Status, SubVerdict


@dataclass(frozen=True)
class Answer:
    """The recorded question's answer, and what it leaves to later nights; None where it was not asked."""

    told: SubVerdict
    standing: Standing | None = None


@dataclass(frozen=True)
class Beside:
    """What the interleaved runs of a night say beside their differences.

    - ``below``: whether the new build's own runs of the pairs still lie below where it is held to stand.
    - ``good_shift``: the good build tonight less its own earlier figures, in the logarithm; None where nobody knows.
    - ``good_below``: whether that is a fall as far as the new build's.
    """

    below: bool
    good_shift: float | None
    good_below: bool


@dataclass(frozen=True)
class Found:
    """A status with its reason, before the standing is drawn from it. ``settled``: the suspicion is dealt with;
    ``beside`` is None without pairs."""

    status: Status
    code: str
    message: str
    settled: bool = False
    beside: Beside | None = None


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
