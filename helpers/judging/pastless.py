"""The recorded question while the history cannot be asked: nothing is known of the nights before, so nothing passes."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.judging import wording
from helpers.judging.alone import runs_for_slower, slower_than_recorded
from helpers.judging.answer import Answer, recorded_answer
from helpers.judging.confirm import Outcome, confirm
from helpers.judging.evidence import Evidence, RecordedReference
from helpers.judging.level import learn_level
from helpers.judging.screen import SUSPECT_DROP, Screening, due
from helpers.judging.statistics import number
from helpers.judging.verdict import NeedRuns, Status

CODE = "history-unreachable"


def without_past(
    evidence: Evidence,
    recorded: RecordedReference,
    screening: Screening,
    candidate: Sequence[float],
    reference: Sequence[float],
    measured: float,
) -> Answer | NeedRuns:
    """INCONCLUSIVE with what the recorded entry alone says, or what rests on no earlier night: the REGRESSION that
    pairs with a reference build confirm, and the SLOWER of a drop from the entry that nobody can doubt.

    ``screening`` holds tonight's runs against the entry; ``candidate`` and ``reference`` are the confirmation runs'
    log rates. No standing: a night that was held against nothing must not move what later nights are held against.
    """
    against = f"by the recorded entry alone: {wording.screened(evidence, screening)}"
    told = f"{evidence.past.unreachable}, so tonight cannot be held against the nights before"
    remedy = "the runs are kept: judge again with --resume once the history answers"
    if (more := runs_for_slower(evidence, recorded, screening)) is not None:
        return more
    if (slower := slower_than_recorded(evidence, recorded, screening)) is not None:
        return Answer(recorded_answer(recorded, slower.status, slower.code, f"{slower.message}; {told}", measured))
    level = learn_level(evidence, screening.noise)
    why = _why_confirm(evidence, screening, level.known)
    if recorded.gates and evidence.reference_build is not None and why:
        pairs = confirm(evidence, screening, level, candidate, reference, why)
        if isinstance(pairs, NeedRuns):
            return pairs
        numbers = wording.paired(evidence, recorded, pairs)
        if level.known and pairs.outcome is Outcome.SLOWER and pairs.effect.point < -recorded.tolerance:
            message = f"slower: {numbers}; {told}; {against}"
            return Answer(recorded_answer(recorded, Status.REGRESSION, "confirmed-regression", message, measured))
        against = f"no regression confirmed: {numbers}; {against}"
    message = f"{told}; {against}, recorded {number(recorded.images_per_s)} images/s ({recorded.label}); {remedy}"
    return Answer(recorded_answer(recorded, Status.INCONCLUSIVE, CODE, message, measured))


def _why_confirm(evidence: Evidence, screening: Screening, level_known: bool) -> str:
    """Why the reference build is to be run beside the new one; empty where nothing asks for it. A gain is not asked
    for: it could not be called one."""
    if evidence.suspicion:
        return evidence.suspicion
    if screening.drop_suspected:
        return f"a drop is suspected (evidence {wording.strength(screening.evidence)}, from {SUSPECT_DROP:g})"
    if due(evidence, screening, level_known):
        return "the history cannot be asked, and it is this case's turn"
    return ""
