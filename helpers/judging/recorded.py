"""The recorded question: is this build slower on this machine than before? VERDICT.md from screening to verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from helpers.evidence import Build, Evidence, RecordedReference, RunEvidence
from helpers.judging import wording
from helpers.judging.answer import Answer, no_baseline, recorded_answer
from helpers.judging.confirm import LARGE_GAIN, Confirmation, Outcome, confirm, runs_of, threshold_of, work_changed
from helpers.judging.noise import KNOWN_NIGHTS
from helpers.judging.pastless import without_past
from helpers.judging.power import LARGEST_TOLD, Detection, smallest_drop
from helpers.judging.published import by_rule
from helpers.judging.screen import (
    ACCEPT_UP_TO,
    CARRIED_LEAST,
    CARRIED_MOST,
    SUSPECT_DROP,
    SUSPECT_GAIN,
    Screening,
    due,
    more_screening,
    screen,
    unaccepted_in_a_row,
)
from helpers.rules import MEDIAN_STEP
from helpers.stats import number
from helpers.verdict import NeedRuns, Standing, Status, SubVerdict

# So many nights in a row that nobody could explain are the new state of the machine (VERDICT.md, Judge).
UNEXPLAINED_NIGHTS = 5
UNEXPLAINED = "nothing explains why the segment began"


@dataclass(frozen=True)
class _Found:
    """A status with its reason, before the standing is drawn from it. ``settled``: the suspicion is dealt with."""

    status: Status
    code: str
    message: str
    settled: bool = False


def against_recorded(evidence: Evidence, runs: Sequence[RunEvidence]) -> Answer | NeedRuns:
    """The answer, or the runs it still needs. ``runs`` are the usable screening runs, at least one."""
    recorded = evidence.recorded
    if recorded is None:
        return Answer(no_baseline("nothing recorded for this case on this machine", evidence))
    measured = by_rule(runs, recorded.rule)
    if isinstance(measured, str):
        return Answer(recorded_answer(recorded, Status.INCONCLUSIVE, "rule-not-computable", f"recorded: {measured}"))
    if (apart := _incomparable(evidence, recorded, measured, len(runs))) is not None:
        return Answer(apart)
    rates = _log_rates(runs)
    candidate, reference = (_log_rates(runs_of(evidence.runs, build)) for build in (Build.CANDIDATE, Build.REFERENCE))
    if rates is None or candidate is None or reference is None:
        message = f"recorded: a run has no figure by {MEDIAN_STEP}"
        return Answer(recorded_answer(recorded, Status.INCONCLUSIVE, "rule-not-computable", message, measured))
    screening = screen(evidence, runs, rates)
    if evidence.past.unreachable:
        return without_past(evidence, recorded, screening, candidate, reference, measured)
    if not recorded.gates:
        # Only shown: nothing is run for it and nothing learned from it.
        shown = _alone(evidence, recorded, screening, smallest_drop(_detection(evidence, recorded, screening)))
        return Answer(recorded_answer(recorded, shown.status, shown.code, shown.message, measured))
    if (more := more_screening(evidence, screening)) is not None:
        return more
    confirmation: Confirmation | None = None
    if evidence.reference_build is not None and (why := _why_confirm(evidence, screening)):
        pairs = confirm(evidence, screening, candidate, reference, why)
        if isinstance(pairs, NeedRuns):
            return pairs
        confirmation = pairs
    smallest = smallest_drop(_detection(evidence, recorded, screening))
    if confirmation is None:
        found = _alone(evidence, recorded, screening, smallest)
    else:
        found = _confirmed(evidence, recorded, screening, confirmation, smallest)
    standing = _standing(evidence, screening, confirmation, found, smallest)
    message = found.message
    if standing.new_segment:
        message += f"; a new segment begins: {standing.segment_reason}"
    return Answer(recorded_answer(recorded, found.status, found.code, message, measured), standing)


def _incomparable(evidence: Evidence, recorded: RecordedReference, measured: float, runs: int) -> SubVerdict | None:
    """The answer where tonight must not be held against what was recorded; None where it may."""
    change = measured / recorded.images_per_s - 1
    numbers = (
        f"{number(measured)} images/s is {change:+.1%} against the recorded {number(recorded.images_per_s)} "
        f"({recorded.label}; by {recorded.rule}; n={runs})"
    )
    apart = []
    if recorded.differences:
        apart.append(f"recorded in another segment ({wording.first_few(recorded.differences)})")
    if recorded.rule != MEDIAN_STEP:
        apart.append(f"recorded by {recorded.rule}, judged by {MEDIAN_STEP}: {evidence.record_command}")
    if evidence.overrides:
        changed = f"settings changed ({', '.join(evidence.overrides)})"
        told = "; ".join([changed, "a recorded figure is only for the case as it stands", *apart])
        return recorded_answer(recorded, Status.INCOMPARABLE, "overridden", f"{told}: {numbers}", measured)
    if apart:
        code = "other-segment" if recorded.differences else "other-rule"
        return recorded_answer(recorded, Status.INCOMPARABLE, code, f"{'; '.join(apart)}: {numbers}", measured)
    return None


def _log_rates(runs: Sequence[RunEvidence]) -> list[float] | None:
    rates = [run.log_rate for run in runs if run.log_rate is not None and math.isfinite(run.log_rate)]
    return rates if len(rates) == len(runs) else None


def _why_confirm(evidence: Evidence, screening: Screening) -> str:
    """Why the reference build is to be run beside the new one; empty where nothing asks for it."""
    if evidence.suspicion:
        return evidence.suspicion
    if screening.drop_suspected:
        return f"a drop is suspected (evidence {wording.strength(screening.evidence)}, from {SUSPECT_DROP:g})"
    if screening.gain_suspected:
        return f"a gain is suspected (evidence {wording.strength(screening.e_gain)}, from {SUSPECT_GAIN:g})"
    if screening.stalls:
        return screening.stalls
    if due(evidence, screening):
        why = f"{screening.known} of {KNOWN_NIGHTS} nights known"
        return f"{UNEXPLAINED if evidence.past.unexplained else why}, and it is this case's turn"
    return ""


def _alone(evidence: Evidence, recorded: RecordedReference, screening: Screening, smallest: float) -> _Found:
    """The answer without pairs: no reference build at hand, or nothing to confirm."""
    numbers = wording.screened(evidence, screening)
    missing = evidence.why_no_reference or "no reference build was given"
    remedy = f"not confirmed ({missing}): run it again with --reference-env PATH of the good build"
    if not recorded.gates:
        remedy = "not confirmed: the recorded figure is only shown"
    if evidence.suspicion:
        return _Found(
            Status.INCONCLUSIVE, "unconfirmed-drop", f"unconfirmed drop: {evidence.suspicion}; {numbers}; {remedy}"
        )
    if screening.drop_suspected and screening.effect.low < -recorded.tolerance:
        return _Found(Status.INCONCLUSIVE, "unconfirmed-drop", f"unconfirmed drop: {numbers}; {remedy}")
    if screening.stalls:
        return _Found(Status.INCONCLUSIVE, "stalls", f"{screening.stalls}; {remedy}; {numbers}")
    if screening.gain_suspected and screening.effect.point > LARGE_GAIN:
        unchecked = f"faster beyond {LARGE_GAIN:.0%}, and nothing shows that the work is unchanged"
        return _Found(Status.INCONCLUSIVE, "work-unchecked", f"{unchecked}: {numbers}; {remedy}")
    after = wording.would_have_found(smallest, confirmed=evidence.reference_build is not None)
    if evidence.past.unexplained:
        # The nights before it fell and stayed so: what is as slow as they were is no pass.
        return _Found(Status.INCONCLUSIVE, "unexplained", _since_unexplained(evidence, recorded, screening, numbers))
    if screening.gain_suspected:
        gain = wording.strength(screening.e_gain)
        return _Found(Status.PASS, "faster-unconfirmed", f"faster, {remedy}: {numbers}, of a gain {gain}; {after}")
    if screening.drop_suspected:
        small = f"a drop, but smaller than the tolerance of {recorded.tolerance:.1%}"
        return _Found(Status.PASS, "below-tolerance", f"{small}: {numbers}; {after}")
    if smallest >= LARGEST_TOLD:
        return _Found(Status.INCONCLUSIVE, "too-noisy", f"{after}: {numbers}")
    turn = "" if screening.mature or evidence.reference_build is None else "; not its turn for the reference build"
    return _Found(Status.PASS, "no-drop", f"no drop: {numbers}{turn}; {after}")


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
        f"{evidence.record_command} --accept-regression REASON; within the segment {numbers}"
    )


def _confirmed(
    evidence: Evidence,
    recorded: RecordedReference,
    screening: Screening,
    confirmation: Confirmation,
    smallest: float,
) -> _Found:
    """The answer after interleaved runs of both builds."""
    numbers = wording.paired(evidence, recorded, confirmation)
    before = wording.suspected(evidence, screening)
    outcome, point = confirmation.outcome, confirmation.effect.point
    if outcome is Outcome.SLOWER and point < -recorded.tolerance:
        return _Found(Status.REGRESSION, "confirmed-regression", f"slower: {numbers}; {before}")
    if confirmation.stalls:
        settled = outcome is Outcome.SAME
        return _Found(Status.INCONCLUSIVE, "stalls", f"{confirmation.stalls}; {numbers}; {before}", settled)
    if outcome is Outcome.OPEN:
        used = f"open after all {confirmation.pairs} pairs (budgets: pairs)"
        return _Found(Status.INCONCLUSIVE, "pairs-used-up", f"{used}: {numbers}; {before}")
    if outcome is Outcome.FASTER and point > recorded.tolerance:
        return _faster(evidence, point, f"{numbers}; {before}")
    after = wording.would_have_found(smallest, confirmed=True)
    alike = "; the reference build stalls alike" if screening.stalls else ""
    if outcome is not Outcome.SAME:
        small = f"{outcome.value}, but by less than the tolerance of {recorded.tolerance:.1%}"
        return _Found(Status.PASS, "below-tolerance", f"{small}: {numbers}; {before}{alike}; {after}", settled=True)
    if screening.e_drop > ACCEPT_UP_TO:
        slow = "the machine is slow tonight, both builds alike"
        return _Found(Status.PASS, "machine-slow", f"{slow}: {numbers}; {before}{alike}; {after}", settled=True)
    return _Found(Status.PASS, "same-as-reference", f"no change: {numbers}; {before}{alike}; {after}", settled=True)


def _faster(evidence: Evidence, point: float, numbers: str) -> _Found:
    """A confirmed gain: an improvement, unless it is large and the work is another or unknown."""
    if point > LARGE_GAIN:
        changed = work_changed(evidence.runs)
        if changed is None:
            unchecked = "the losses of both builds are needed to show that the work is unchanged"
            return _Found(
                Status.INCONCLUSIVE, "work-unchecked", f"faster beyond {LARGE_GAIN:.0%}; {unchecked}: {numbers}"
            )
        if changed:
            return _Found(Status.INCONCLUSIVE, "work-changed", f"faster, but the work changed: {changed}; {numbers}")
    remedy = f"make it the reference: {evidence.record_command}"
    return _Found(Status.IMPROVEMENT, "confirmed-improvement", f"faster: {numbers}; {remedy}", settled=True)


def _detection(evidence: Evidence, recorded: RecordedReference, screening: Screening) -> Detection:
    """What tonight was able to find, by the budget and the reference at hand."""
    with_reference = evidence.reference_build is not None
    runs = max(evidence.planned_runs, 1)
    if not screening.mature and not with_reference:
        runs = max(runs, evidence.budget.first_runs)
    return Detection(
        screening.noise.sigma,
        screening.noise.tau,
        runs,
        max(runs, evidence.budget.screen_runs),
        evidence.budget.pairs if with_reference else 0,
        threshold_of(evidence, screening.mature),
        recorded.tolerance,
        screened=not (with_reference and (evidence.suspicion or due(evidence, screening))),
    )


def _standing(
    evidence: Evidence, screening: Screening, confirmation: Confirmation | None, found: _Found, smallest: float
) -> Standing:
    stalled = bool(screening.stalls or (confirmation is not None and confirmation.stalls))
    # A night of stalls must not become what later nights' stalls are held against.
    accepted = not (screening.e_drop > ACCEPT_UP_TO or found.status is Status.REGRESSION or stalled)
    row = 0 if found.status is Status.REGRESSION or accepted else unaccepted_in_a_row(evidence.past.nights) + 1
    why = ""
    if found.status is Status.IMPROVEMENT:
        why = "a confirmed improvement"
    elif row >= UNEXPLAINED_NIGHTS:
        why = f"{row} nights in a row stand apart and no regression was confirmed"
    effect = screening.effect if confirmation is None else confirmation.effect
    explained = found.settled and found.status is not Status.INCONCLUSIVE
    carried = screening.evidence
    if found.settled or why:
        carried = 1.0
    elif confirmation is not None:
        # The pairs know more than the screening: the next night goes on from them.
        carried = min(max(confirmation.e_drop, CARRIED_LEAST), CARRIED_MOST)
    standing = Standing(
        log_rate=screening.log_rate,
        e_drop=screening.e_drop,
        evidence=carried,
        accepted=accepted or bool(why),
        sigma=screening.noise.sigma,
        tau=screening.noise.tau,
        nights=screening.known,
        runs=len(screening.differences),
        shift=screening.effect.point,
        effect=effect.point,
        low=effect.low,
        high=effect.high,
        smallest_drop=smallest,
        new_segment=bool(why),
        segment_reason=why,
        unexplained=(evidence.past.unexplained or row >= UNEXPLAINED_NIGHTS) and not explained,
    )
    if confirmation is None:
        return standing
    slow = confirmation.outcome is Outcome.SAME and screening.e_drop > ACCEPT_UP_TO
    return replace(standing, pairs=confirmation.pairs, e_confirm=confirmation.evidence, machine_slow=slow)
