"""The recorded question's answers, without pairs and after them.

There are no pairs if no good build is at hand, or if nothing asks for one. Interleaved runs of both builds show whether
the build or the machine is slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.judging import wording
from helpers.judging.confirm import LARGE_GAIN, RULED_OUT, Conclusion, Confirmation, threshold_of, work_changed
from helpers.judging.evalue import evalue
from helpers.judging.evidence import Evidence, RecordedReference
from helpers.judging.level import Beside, accepted_as_low, compare_with_past
from helpers.judging.noise import learn
from helpers.judging.power import LARGEST_REPORTED
from helpers.judging.rates import rate_unit
from helpers.judging.screen import (
    ACCEPT_UP_TO,
    SUSPECT_DROP,
    Screening,
    is_young,
    one_more,
    recorded_night,
    unaccepted_in_a_row,
)
from helpers.judging.statistics import number
from helpers.judging.verdict import NeedRuns, Status

# The standing that a night leaves to later ones depends on these codes.
MACHINE_SLOW, GOOD_SLOWER = "machine-slow", "good-build-slower"
LEVEL_UNKNOWN, BELOW_GOOD = "level-unknown", "below-good-build"
SLOWER = "slower-unconfirmed"
# After so many nights in a row a slow machine is no passing state: somebody has to explain it, or record it.
LASTING_NIGHTS = 5
# docs/verdicts.md, "No good build".
SLOWER_RUNS = 3
_ITSELF = "driver, libraries, trainer code or machine"


@dataclass(frozen=True)
class Found:
    """A status with its reason. The night's standing is computed from it afterwards."""

    status: Status
    code: str
    message: str
    # Whether the suspicion is settled.
    settled: bool = False
    # None without pairs.
    beside: Beside | None = None


def alone(evidence: Evidence, recorded: RecordedReference, screening: Screening, smallest: float) -> Found:
    """The answer without pairs; ``smallest`` is the smallest drop that tonight would have found."""
    if (slower := slower_than_recorded(evidence, recorded, screening)) is not None:
        return slower
    numbers = wording.screened(evidence, screening)
    remedy = _unconfirmed(evidence)
    if not recorded.gates:
        remedy = "not confirmed: the recorded figure is only shown"
    if evidence.suspicion:
        return Found(
            Status.INCONCLUSIVE, "unconfirmed-drop", f"unconfirmed drop: {evidence.suspicion}; {numbers}; {remedy}"
        )
    if screening.drop_suspected and screening.effect.low < -recorded.tolerance:
        return Found(Status.INCONCLUSIVE, "unconfirmed-drop", f"unconfirmed drop: {numbers}; {remedy}")
    if screening.stalls:
        return Found(Status.INCONCLUSIVE, "stalls", f"{screening.stalls}; {remedy}; {numbers}")
    if screening.gain_suspected and screening.effect.point > LARGE_GAIN:
        unchecked = f"faster beyond {LARGE_GAIN:.0%}, and nothing shows that the work is unchanged"
        return Found(Status.INCONCLUSIVE, "work-unchecked", f"{unchecked}: {numbers}; {remedy}")
    after = wording.would_have_found(smallest, confirmed=evidence.reference_build is not None)
    if screening.gain_suspected:
        gain = wording.strength(screening.e_gain)
        return Found(Status.PASS, "faster-unconfirmed", f"faster, {remedy}: {numbers}, of a gain {gain}; {after}")
    if screening.drop_suspected:
        small = f"a drop, but smaller than the tolerance of {recorded.tolerance:.1%}"
        return Found(Status.PASS, "below-tolerance", f"{small}: {numbers}; {after}")
    if smallest >= LARGEST_REPORTED:
        return Found(Status.INCONCLUSIVE, "too-noisy", f"{after}: {numbers}")
    return Found(Status.PASS, "no-drop", f"no drop: {numbers}; {after}")


def slower_than_recorded(evidence: Evidence, recorded: RecordedReference, screening: Screening) -> Found | None:
    """SLOWER if no good build is at hand and each of at least 3 runs lies below the band beyond doubt; else None."""
    if evidence.reference_build is not None or not recorded.gates:
        return None
    if not (below := beyond_doubt(evidence, recorded, screening, screening.log_rates)):
        return None
    missing = evidence.why_no_reference or "no good build was given"
    return Found(
        Status.SLOWER,
        SLOWER,
        f"slower: {below}; {missing}, so build and machine cannot be told apart: "
        f"run it again with --reference-env PATH of the good build; {wording.screened(evidence, screening)}",
    )


def beyond_doubt(evidence: Evidence, recorded: RecordedReference, screening: Screening, rates: Sequence[float]) -> str:
    """Says that each of at least 3 runs lies below the recorded figure by more than the band, with evidence that leaves
    no doubt; empty if that is not so, or if the figure is of another stack. ``rates`` are the runs' log rates."""
    if not recorded.comparable:
        return ""
    highest = math.expm1(max(rates) - math.log(recorded.samples_per_s))
    strength, bar = _evidence_below(evidence, screening, rates), threshold_of(evidence)
    if len(rates) < SLOWER_RUNS or highest >= -recorded.band or strength < bar:
        return ""
    return (
        f"each of {len(rates)} runs lies {-highest:.1%} or more below the recorded {number(recorded.samples_per_s)} "
        f"{rate_unit(evidence.case_id)} ({recorded.label}; band {recorded.band:.1%}, "
        f"evidence {wording.strength(strength)}, threshold {bar:.0f})"
    )


def runs_for_slower(evidence: Evidence, recorded: RecordedReference, screening: Screening) -> NeedRuns | None:
    """A request for the next of the 3 runs that SLOWER needs, while all runs so far point to it; else None."""
    made = len(screening.differences)
    if made >= min(SLOWER_RUNS, evidence.budget.screen_runs) or not _all_below_band(evidence, recorded, screening):
        return None
    if _evidence_below(evidence, screening, screening.log_rates) < SUSPECT_DROP:
        return None
    why = f"{recorded.band:.1%} below what is recorded, and no good build at hand"
    return one_more(f"{why}: run {made + 1} of {SLOWER_RUNS}")


def _all_below_band(evidence: Evidence, recorded: RecordedReference, screening: Screening) -> bool:
    if evidence.reference_build is not None or not recorded.gates:
        return False
    edge = math.log(recorded.samples_per_s) + math.log1p(-recorded.band)
    return all(rate < edge for rate in screening.log_rates)


def _evidence_below(evidence: Evidence, screening: Screening, rates: Sequence[float]) -> float:
    """The mean of two e-values, which is an e-value too: one for a drop from the nights before, one for a drop from the
    recorded entry. Where nights sank bit by bit, or a segment began without an explanation, only the entry shows the
    drop."""
    before = learn((), evidence.past.siblings, recorded_night(evidence))
    tonight = [rate - before.centre for rate in rates]
    return (screening.evidence + evalue(tonight, before.sigma, before.tau)) / 2


def _unconfirmed(evidence: Evidence) -> str:
    missing = evidence.why_no_reference or "no reference build was given"
    return f"not confirmed ({missing}): run it again with --reference-env PATH of the good build"


def _left_open(evidence: Evidence, confirmation: Confirmation) -> tuple[str, str]:
    """Why the pairs ended without an answer: a code and a text."""
    if confirmation.pairs >= evidence.budget.pairs:
        return "pairs-used-up", f"open after all {confirmation.pairs} pairs (budgets: pairs)"
    level = confirmation.level
    return "level-uncertain", (
        f"open after {confirmation.pairs} pairs, and more could hardly tell: the level of the nights before is known "
        f"to ±{level.error:.2%} from {level.pairs} pairs, and tonight's make it better known"
    )


def after_pairs(
    evidence: Evidence,
    recorded: RecordedReference,
    screening: Screening,
    confirmation: Confirmation,
    smallest: float,
) -> Found:
    """The answer after interleaved runs of both builds, compared with the level of the nights before."""
    numbers = wording.paired(evidence, recorded, confirmation)
    before = wording.suspected(evidence, screening)
    conclusion, point = confirmation.conclusion, confirmation.effect.point
    beside = compare_with_past(evidence, screening, confirmation.level, confirmation.new, confirmation.good)
    rates = [*screening.log_rates, *confirmation.new]

    def found(status: Status, code: str, message: str, settled: bool = False) -> Found:
        return Found(status, code, message, settled, beside)

    if conclusion is Conclusion.SLOWER and point < -recorded.tolerance:
        if confirmation.level.known:
            return found(Status.REGRESSION, "confirmed-regression", f"slower: {numbers}; {before}")
        as_low = accepted_as_low(evidence, screening, confirmation.new, confirmation.good)
        if as_low and not beyond_doubt(evidence, recorded, screening, rates):
            unknown = f"slower than the good build, but what was recorded is as low: {_unknown(evidence)}"
            return found(Status.INCONCLUSIVE, LEVEL_UNKNOWN, f"{unknown}; {numbers}; {before}")
        return found(Status.REGRESSION, "confirmed-regression", f"slower: {numbers}; {before}")
    if confirmation.stalls:
        message = f"{confirmation.stalls}; {numbers}; {before}"
        return found(Status.INCONCLUSIVE, "stalls", message, conclusion is Conclusion.SAME)
    if conclusion is Conclusion.OPEN:
        code, ended = _left_open(evidence, confirmation)
        return found(Status.INCONCLUSIVE, code, f"{ended}: {numbers}; {before}")
    suspected = screening.drop_suspected or bool(evidence.suspicion)
    alike = conclusion is not Conclusion.SLOWER and beside.below
    # A few lucky nights of another stack say less than the pairs at a level that is known.
    outweighed = is_young(evidence, screening) and confirmation.level.known and not beside.good_below
    odd = screening.e_drop > ACCEPT_UP_TO or (suspected and not confirmation.level.known)
    if alike and odd and not outweighed:
        doubtless = beyond_doubt(evidence, recorded, screening, rates)
        return _below_though_alike(evidence, confirmation, beside, f"{numbers}; {before}", doubtless)
    asked_for_drop = screening.drop_suspected or (evidence.suspicion and not screening.gain_suspected)
    if conclusion is Conclusion.FASTER and point > recorded.tolerance and not asked_for_drop:
        return _faster(evidence, point, f"{numbers}; {before}", beside)
    after = wording.would_have_found(smallest, confirmed=True)
    stalls = "; the reference build stalls alike" if screening.stalls else ""
    details = f"{numbers}; {before}{stalls}; {after}"
    if conclusion is Conclusion.MEASURED and not screening.mature and confirmation.e_drop >= confirmation.threshold:
        below = (
            "slower than the good build; what was recorded may have been so too, and counts as the level from now on"
        )
        return found(Status.INCONCLUSIVE, BELOW_GOOD, f"{below}, unless it is recorded anew: {details}", settled=True)
    if conclusion is Conclusion.MEASURED:
        return found(
            Status.PASS, "level-measured", f"no drop; measured where the nights stand: {details}", settled=True
        )
    if conclusion is Conclusion.FASTER and point > recorded.tolerance:
        # A drop was suspected: a build below the nights before has gained nothing, however slow the good one is.
        return found(Status.PASS, "drop-not-repeated", f"the pairs do not repeat the drop: {details}", settled=True)
    if conclusion in (Conclusion.SLOWER, Conclusion.FASTER):
        small = f"{conclusion.value}, but by less than the tolerance of {recorded.tolerance:.1%}"
        return found(Status.PASS, "below-tolerance", f"{small}: {details}", settled=True)
    if conclusion is Conclusion.NO_DROP:
        beyond = f"no drop, one of {recorded.band:.1%} or more ruled out ({RULED_OUT:.0f} to 1)"
        return found(Status.PASS, "no-drop-beside-reference", f"{beyond}: {details}", settled=True)
    return found(Status.PASS, "same-as-reference", f"no change: {details}", settled=True)


def _unknown(evidence: Evidence) -> str:
    """Says that the level is not known, and how it is learned."""
    return (
        f"nobody knows where those nights stand against {evidence.reference_build}: compare a build of those nights "
        f"with it (--reference-env), or record this level: {_accepting(evidence)}"
    )


def _accepting(evidence: Evidence) -> str:
    """The command that records a lower level."""
    return f'{evidence.record_command} --accept-regression "{evidence.case_id}=REASON"'


def _below_though_alike(
    evidence: Evidence, confirmation: Confirmation, beside: Beside, numbers: str, doubtless: str
) -> Found:
    """The answer for a build that is slower than it was, but not slower than the good build beside it.

    ``doubtless`` is what beyond_doubt() returned.
    """
    level = confirmation.level
    tolerance = evidence.smallest_change
    again = f"or record this level: {_accepting(evidence)}"
    if beside.good_below and beside.good_shift is not None:
        own = wording.counted(level.good_nights, "night")
        fell = f"the good build is itself {-math.expm1(beside.good_shift):.1%} below its own {own} ({_ITSELF})"
        row = unaccepted_in_a_row(evidence.past.nights) + 1
        # A drift that is smaller than what counts needs no explanation.
        if row >= LASTING_NIGHTS and -math.expm1(beside.good_shift) > tolerance:
            lasting = f"the machine is slow for {row} nights in a row, both builds alike"
            message = f"{lasting}: {fell}; find the cause, {again}"
            return Found(Status.INCONCLUSIVE, GOOD_SLOWER, f"{message}; {numbers}", beside=beside)
        message = f"the machine is slow tonight, both builds alike: {fell}"
        return Found(Status.PASS, MACHINE_SLOW, f"{message}; {numbers}", settled=True, beside=beside)
    if -math.expm1(beside.fall) <= tolerance:
        small = f"below the nights before, but by less than the tolerance of {tolerance:.1%}"
        message = f"{small}, and no slower than the good build beside it; {numbers}"
        return Found(Status.PASS, "below-tolerance", message, settled=True, beside=beside)
    if not level.known and beside.good_shift is None and doubtless:
        return Found(Status.SLOWER, SLOWER, f"slower: {doubtless}; {_unknown(evidence)}; {numbers}", beside=beside)
    if not level.known:
        message = (
            "below the nights before and not below the good build: an accepted gain may be lost or the machine be slow"
        )
        return Found(Status.INCONCLUSIVE, LEVEL_UNKNOWN, f"{message}; {_unknown(evidence)}; {numbers}", beside=beside)
    message = f"below the nights before, and neither the new build nor the good one shows why; run it again, {again}"
    return Found(Status.INCONCLUSIVE, "drop-not-explained", f"{message}; {numbers}", beside=beside)


def _faster(evidence: Evidence, point: float, numbers: str, beside: Beside) -> Found:
    """The answer to a confirmed gain: an improvement, unless it is large and the two builds' work differs or cannot be
    compared."""
    if point > LARGE_GAIN:
        changed = work_changed(evidence.runs)
        if changed is None:
            unchecked = "the losses of both builds are needed to show that the work is unchanged"
            message = f"faster beyond {LARGE_GAIN:.0%}; {unchecked}: {numbers}"
            return Found(Status.INCONCLUSIVE, "work-unchecked", message, beside=beside)
        if changed:
            return Found(
                Status.INCONCLUSIVE,
                "work-changed",
                f"faster, but the work changed: {changed}; {numbers}",
                beside=beside,
            )
    remedy = f"make it the reference: {evidence.record_command}"
    return Found(Status.IMPROVEMENT, "confirmed-improvement", f"faster: {numbers}; {remedy}", True, beside)
