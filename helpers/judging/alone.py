"""The recorded question without pairs: no good build at hand, or nothing that asks for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from helpers.judging import wording
from helpers.judging.answer import Found
from helpers.judging.confirm import LARGE_GAIN, threshold_of
from helpers.judging.evalue import evalue
from helpers.judging.evidence import Evidence, RecordedReference
from helpers.judging.noise import learn
from helpers.judging.power import LARGEST_TOLD
from helpers.judging.screen import SUSPECT_DROP, Screening, one_more, recorded_night
from helpers.judging.statistics import number
from helpers.judging.verdict import NeedRuns, Status

UNEXPLAINED = "nothing explains why the segment began"
# docs/verdicts.md, "No good build".
SLOWER_RUNS = 3
SLOWER = "slower-unconfirmed"


def alone(evidence: Evidence, recorded: RecordedReference, screening: Screening, smallest: float) -> Found:
    """The answer without pairs: no reference build at hand, or nothing to confirm."""
    if (slower := slower_than_recorded(evidence, recorded, screening)) is not None:
        return slower
    numbers = wording.screened(evidence, screening)
    missing = evidence.why_no_reference or "no reference build was given"
    remedy = f"not confirmed ({missing}): run it again with --reference-env PATH of the good build"
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
    if evidence.past.unexplained:
        # The nights before it fell and stayed so: what is as slow as they were is no pass.
        return Found(Status.INCONCLUSIVE, "unexplained", _since_unexplained(evidence, recorded, screening, numbers))
    if screening.gain_suspected:
        gain = wording.strength(screening.e_gain)
        return Found(Status.PASS, "faster-unconfirmed", f"faster, {remedy}: {numbers}, of a gain {gain}; {after}")
    if screening.drop_suspected:
        small = f"a drop, but smaller than the tolerance of {recorded.tolerance:.1%}"
        return Found(Status.PASS, "below-tolerance", f"{small}: {numbers}; {after}")
    if smallest >= LARGEST_TOLD:
        return Found(Status.INCONCLUSIVE, "too-noisy", f"{after}: {numbers}")
    turn = "" if screening.mature or evidence.reference_build is None else "; not its turn for the reference build"
    return Found(Status.PASS, "no-drop", f"no drop: {numbers}{turn}; {after}")


def slower_than_recorded(evidence: Evidence, recorded: RecordedReference, screening: Screening) -> Found | None:
    """SLOWER where no good build is at hand and every one of at least 3 runs lies below the recorded figure by more
    than the band, beyond doubt; else None."""
    if evidence.reference_build is not None or not recorded.gates:
        return None
    rates = [screening.noise.centre + each for each in screening.differences]
    if not (below := beyond_doubt(evidence, recorded, screening, rates)):
        return None
    missing = evidence.why_no_reference or "no good build was given"
    return Found(
        Status.SLOWER,
        SLOWER,
        f"slower: {below}; {missing}, so build and machine cannot be told apart: "
        f"run it again with --reference-env PATH of the good build; {wording.screened(evidence, screening)}",
    )


def beyond_doubt(evidence: Evidence, recorded: RecordedReference, screening: Screening, rates: Sequence[float]) -> str:
    """How each of 3 runs or more, of log ``rates``, lies below the recorded figure by more than the band, with an
    evidence that leaves no doubt; empty where they do not."""
    highest = math.expm1(max(rates) - math.log(recorded.images_per_s))
    strength, bar = _evidence_below(evidence, screening, rates), threshold_of(evidence)
    if len(rates) < SLOWER_RUNS or highest >= -recorded.band or strength < bar:
        return ""
    return (
        f"each of {len(rates)} runs lies {-highest:.1%} or more below the recorded {number(recorded.images_per_s)} "
        f"images/s ({recorded.label}; band {recorded.band:.1%}, evidence {wording.strength(strength)}, "
        f"threshold {bar:.0f})"
    )


def runs_for_slower(evidence: Evidence, recorded: RecordedReference, screening: Screening) -> NeedRuns | None:
    """The next of the 3 runs that SLOWER takes, where all before it point there; None where it needs none."""
    made = len(screening.differences)
    if made >= min(SLOWER_RUNS, evidence.budget.screen_runs) or not _all_below_band(evidence, recorded, screening):
        return None
    rates = [screening.noise.centre + each for each in screening.differences]
    if _evidence_below(evidence, screening, rates) < SUSPECT_DROP:
        return None
    told = f"{recorded.band:.1%} below what is recorded, and no good build at hand"
    return one_more(f"{told}: run {made + 1} of {SLOWER_RUNS}")


def _all_below_band(evidence: Evidence, recorded: RecordedReference, screening: Screening) -> bool:
    if evidence.reference_build is not None or not recorded.gates:
        return False
    edge = math.log(recorded.images_per_s) + math.log1p(-recorded.band)
    return all(screening.noise.centre + each < edge for each in screening.differences)


def _evidence_below(evidence: Evidence, screening: Screening, rates: Sequence[float]) -> float:
    """Of a drop from the nights before and of one from the recorded entry, their mean: an e-value as both are. Where
    nobody explained why a segment began, or the nights sank bit by bit, only the entry tells."""
    before = learn((), evidence.past.siblings, recorded_night(evidence))
    tonight = [rate - before.centre for rate in rates]
    return (screening.evidence + evalue(tonight, before.sigma, before.tau)) / 2


def _since_unexplained(evidence: Evidence, recorded: RecordedReference, screening: Screening, numbers: str) -> str:
    """What a night is told that is as the nights before it, which nobody explained."""
    change = math.expm1(screening.log_rate - math.log(recorded.images_per_s))
    missing = evidence.why_no_reference or "no reference build was given"
    remedy = f"not confirmed ({missing}): run it again with --reference-env PATH of the good build"
    if evidence.reference_build is not None:
        remedy = "not its turn for the reference build: wait for it"
    return (
        f"{UNEXPLAINED}: its nights stand apart from those before, the first run now {change:+.1%} against the "
        f"recorded {number(recorded.images_per_s)} ({recorded.label}); {remedy}, or record this level: "
        f'{evidence.record_command} --accept-regression "{evidence.case_id}=REASON"; within the segment {numbers}'
    )
