"""The recorded question's answers, without pairs and after them.

There are no pairs if no reference build is at hand, or if nothing asks for one. Interleaved runs of both builds show
whether the build or the machine is slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.judging.case.confirm import (
    LARGE_GAIN,
    RULED_OUT,
    Conclusion,
    Confirmation,
    losses_of,
    threshold_of,
    work_changed,
)
from helpers.judging.case.evalue import evalue
from helpers.judging.case.evidence import Evidence
from helpers.judging.case.level import Beside, accepted_as_low, compare_with_past
from helpers.judging.case.noise import learn
from helpers.judging.case.screen import (
    ACCEPT_UP_TO,
    SUSPECT_DROP,
    Screening,
    one_more,
    recorded_night,
    unaccepted_in_a_row,
)
from helpers.judging.case.shown import paired, screened, suspected, would_have_found
from helpers.judging.case.verdict import LARGEST_REPORTED, NeedRuns, Reason, Status
from helpers.judging.finding import Code, Finding, found
from helpers.judging.rules.rates import rate_unit

_Claim = tuple[Status, Finding, *tuple[Finding, ...]]

# After so many nights in a row a slow machine is no passing state: somebody has to explain it, or record it.
LASTING_NIGHTS = 5
# docs/verdicts.md, "Without a reference build".
SLOWER_RUNS = 3


@dataclass(frozen=True)
class RecordedAnswer:
    """The answer to the recorded question. The night's standing is computed from it afterwards."""

    status: Status
    reason: Reason
    # Whether the suspicion is settled.
    settled: bool = False
    # None without pairs.
    beside: Beside | None = None

    @property
    def code(self) -> str:
        return self.reason.code


def alone(screening: Screening, smallest: float) -> RecordedAnswer:
    """The answer without pairs; ``smallest`` is the smallest drop that tonight would have found."""
    if (slower := slower_than_recorded(screening)) is not None:
        return slower
    evidence, tolerance, numbers = screening.case, screening.case.entry.tolerance, screened(screening)
    remedy = found(Code.NOT_CONFIRMED, why=evidence.why_no_reference)
    if not evidence.entry.gates:
        remedy = found(Code.ONLY_SHOWN)

    def open_answer(claim: Finding) -> RecordedAnswer:
        return RecordedAnswer(Status.INCONCLUSIVE, Reason.of(claim))

    if evidence.suspicion is not None:
        return open_answer(found(Code.UNCONFIRMED_DROP, evidence.suspicion, numbers, remedy))
    if screening.drop_suspected and screening.effect.low < -tolerance:
        return open_answer(found(Code.UNCONFIRMED_DROP, numbers, remedy))
    if screening.stalls is not None:
        return open_answer(screening.stalls.by(numbers, remedy))
    if screening.gain_suspected and screening.effect.point > LARGE_GAIN:
        return open_answer(found(Code.WORK_UNCHECKED, numbers, remedy, gain=LARGE_GAIN, losses=False))
    after = would_have_found(smallest, confirmed=evidence.reference_build is not None)
    if screening.gain_suspected:
        gain = found(Code.GAIN_EVIDENCE, evidence=screening.e_gain)
        return RecordedAnswer(Status.PASS, Reason.of(found(Code.FASTER_UNCONFIRMED, numbers, gain, remedy, after)))
    if screening.drop_suspected:
        small = found(Code.BELOW_TOLERANCE, numbers, after, what="drop", tolerance=tolerance)
        return RecordedAnswer(Status.PASS, Reason.of(small))
    if smallest >= LARGEST_REPORTED:
        return open_answer(found(Code.TOO_NOISY, after, numbers))
    return RecordedAnswer(Status.PASS, Reason.of(found(Code.NO_DROP, numbers, after)))


def slower_than_recorded(screening: Screening) -> RecordedAnswer | None:
    """SLOWER if no reference build is at hand and each of at least 3 runs lies below the band beyond doubt; else
    None."""
    if screening.case.reference_build is not None or not screening.case.entry.gates:
        return None
    if (below := beyond_doubt(screening, screening.log_rates)) is None:
        return None
    alike = found(Code.BUILD_OR_MACHINE, why=screening.case.why_no_reference)
    return RecordedAnswer(Status.SLOWER, Reason.of(found(Code.SLOWER, below, alike, screened(screening))))


def beyond_doubt(screening: Screening, rates: Sequence[float]) -> Finding | None:
    """That each of at least 3 runs lies below the recorded figure by more than the band, with evidence that leaves no
    doubt; None if that is not so, or if the figure is of another stack. ``rates`` are the runs' log rates."""
    entry, bar = screening.case.entry, threshold_of(screening.case)
    highest = math.expm1(max(rates) - math.log(entry.samples_per_s))
    if not entry.comparable or len(rates) < SLOWER_RUNS or highest >= -entry.band:
        return None
    if (strength := _evidence_below(screening, rates)) < bar:
        return None
    return found(
        Code.ALL_BELOW,
        n=len(rates),
        drop=-highest,
        recorded=entry.samples_per_s,
        unit=rate_unit(screening.case.case_id),
        label=entry.label,
        band=entry.band,
        evidence=strength,
        threshold=bar,
    )


def runs_for_slower(screening: Screening) -> NeedRuns | None:
    """A request for the next of the 3 runs that SLOWER needs, while all runs so far point to it; else None."""
    case, entry, made = screening.case, screening.case.entry, len(screening.differences)
    if case.reference_build is not None or not entry.gates or made >= min(SLOWER_RUNS, case.budget.screen_runs):
        return None
    if max(screening.log_rates) >= math.log(entry.samples_per_s) + math.log1p(-entry.band):
        return None
    if _evidence_below(screening, screening.log_rates) < SUSPECT_DROP:
        return None
    return one_more(found(Code.RUN_FOR_SLOWER, band=entry.band, run=made + 1, most=SLOWER_RUNS))


def _evidence_below(screening: Screening, rates: Sequence[float]) -> float:
    """The mean of two e-values, which is an e-value too: one for a drop from the nights before, one for a drop from the
    recorded entry. Where nights sank bit by bit, or a segment began without an explanation, only the entry shows the
    drop."""
    before = learn((), screening.case.past.siblings, recorded_night(screening.case))
    tonight = [rate - before.centre for rate in rates]
    return (screening.evidence + evalue(tonight, before.sigma, before.tau)) / 2


def after_pairs(confirmation: Confirmation, smallest: float) -> RecordedAnswer:
    """The answer after interleaved runs of both builds, compared with the level of the nights before."""
    screening, evidence, level = confirmation.screening, confirmation.screening.case, confirmation.level
    tolerance = evidence.entry.tolerance
    numbers = (paired(confirmation), evidence.suspicion, suspected(screening))
    conclusion, point = confirmation.conclusion, confirmation.effect.point
    beside = compare_with_past(screening, level, confirmation.new, confirmation.good)
    rates = [*screening.log_rates, *confirmation.new]

    def answer(status: Status, claim: Finding, *more: Finding, settled: bool = False) -> RecordedAnswer:
        return RecordedAnswer(status, Reason.of(claim.by(*numbers), *more), settled, beside)

    if conclusion is Conclusion.SLOWER and point < -tolerance:
        as_low = accepted_as_low(screening, confirmation.new, confirmation.good)
        if level.known or not as_low or beyond_doubt(screening, rates) is not None:
            return answer(Status.REGRESSION, found(Code.REGRESSION))
        return answer(Status.INCONCLUSIVE, found(Code.LEVEL_UNKNOWN, as_low=True), *_learn_level(evidence))
    if confirmation.stalls is not None:
        return answer(Status.INCONCLUSIVE, confirmation.stalls, settled=conclusion is Conclusion.SAME)
    if conclusion is Conclusion.OPEN:
        return answer(Status.INCONCLUSIVE, _left_open(confirmation))
    suspicious = screening.drop_suspected or evidence.suspicion is not None
    alike = conclusion is not Conclusion.SLOWER and beside.below
    # A few lucky nights of another stack say less than the pairs at a level that is known.
    outweighed = screening.young and level.known and not beside.good_below
    odd = screening.e_drop > ACCEPT_UP_TO or (suspicious and not level.known)
    if alike and odd and not outweighed:
        status, claim, *more = _below_though_alike(confirmation, beside, beyond_doubt(screening, rates))
        return answer(status, claim, *more, settled=status is Status.PASS)
    asked_for_drop = screening.drop_suspected or (evidence.suspicion is not None and not screening.gain_suspected)
    if conclusion is Conclusion.FASTER and point > tolerance and not asked_for_drop:
        status, claim, *more = _faster(evidence, point)
        return answer(status, claim, *more, settled=status is Status.IMPROVEMENT)
    status, claim = _no_change(confirmation)
    after = would_have_found(smallest, confirmed=True)
    stalls = found(Code.STALLS_ALIKE) if screening.stalls is not None else None
    return RecordedAnswer(status, Reason.of(claim.by(*numbers, stalls, after)), True, beside)


def _no_change(confirmation: Confirmation) -> tuple[Status, Finding]:
    """The answer to pairs that show no change that counts."""
    conclusion, entry = confirmation.conclusion, confirmation.screening.case.entry
    if conclusion is Conclusion.MEASURED:
        low = not confirmation.screening.mature and confirmation.e_drop >= confirmation.threshold
        return (Status.INCONCLUSIVE, found(Code.BELOW_REFERENCE)) if low else (Status.PASS, found(Code.LEVEL_MEASURED))
    if conclusion is Conclusion.FASTER and confirmation.effect.point > entry.tolerance:
        # A drop was suspected: a build below the nights before has gained nothing, however slow the good one is.
        return Status.PASS, found(Code.DROP_NOT_REPEATED)
    if conclusion in (Conclusion.SLOWER, Conclusion.FASTER):
        return Status.PASS, found(Code.BELOW_TOLERANCE, what=conclusion.value, tolerance=entry.tolerance)
    if conclusion is Conclusion.NO_DROP:
        return Status.PASS, found(Code.NO_DROP_BESIDE, band=entry.band, odds=RULED_OUT)
    return Status.PASS, found(Code.SAME)


def _left_open(confirmation: Confirmation) -> Finding:
    """Why the pairs ended without an answer."""
    level, pairs = confirmation.level, confirmation.pairs
    if pairs >= confirmation.screening.case.budget.pairs:
        return found(Code.PAIRS_USED_UP, pairs=pairs)
    return found(Code.LEVEL_UNCERTAIN, pairs=pairs, error=level.error, level_pairs=level.pairs)


def _learn_level(evidence: Evidence) -> tuple[Finding, Finding]:
    """That the level is not known, and how it becomes known."""
    return found(Code.LEARN_LEVEL, build=evidence.reference_build), _accept(evidence)


def _accept(evidence: Evidence) -> Finding:
    """How a lower level is recorded."""
    return found(Code.ACCEPT, options=evidence.record_options, case=evidence.case_id)


def _below_though_alike(confirmation: Confirmation, beside: Beside, doubtless: Finding | None) -> _Claim:
    """The answer for a build that is slower than it was, but not slower than the reference build beside it.

    ``doubtless`` is what beyond_doubt() returned.
    """
    level, evidence = confirmation.level, confirmation.screening.case
    tolerance = evidence.entry.tolerance
    if beside.good_below and beside.good_shift is not None:
        fall = -math.expm1(beside.good_shift)
        fell = found(Code.GOOD_FELL, drop=fall, nights=level.good_nights)
        row = unaccepted_in_a_row(evidence.past.nights) + 1
        # A drift that is smaller than what counts needs no explanation.
        if row >= LASTING_NIGHTS and fall > tolerance:
            return Status.INCONCLUSIVE, found(Code.REFERENCE_SLOWER, fell, nights=row), _accept(evidence)
        return Status.PASS, found(Code.MACHINE_SLOW, fell)
    if -math.expm1(beside.fall) <= tolerance:
        return Status.PASS, found(Code.BELOW_TOLERANCE, what="fell", tolerance=tolerance)
    if not level.known and beside.good_shift is None and doubtless is not None:
        return Status.SLOWER, found(Code.SLOWER, doubtless), *_learn_level(evidence)
    if not level.known:
        return Status.INCONCLUSIVE, found(Code.LEVEL_UNKNOWN, as_low=False), *_learn_level(evidence)
    return Status.INCONCLUSIVE, found(Code.DROP_NOT_EXPLAINED), _accept(evidence)


def _faster(evidence: Evidence, point: float) -> _Claim:
    """The answer to a confirmed gain: an improvement, unless it is large and the two builds' work differs or cannot be
    compared."""
    if point > LARGE_GAIN:
        losses = losses_of(evidence)
        if losses is None:
            return Status.INCONCLUSIVE, found(Code.WORK_UNCHECKED, gain=LARGE_GAIN, losses=True)
        if work_changed(*losses):
            return Status.INCONCLUSIVE, found(Code.WORK_CHANGED, new=losses[0], good=losses[1])
    return Status.IMPROVEMENT, found(Code.IMPROVEMENT), found(Code.MAKE_REFERENCE, options=evidence.record_options)
