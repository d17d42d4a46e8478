"""The recorded question, from screening to verdict: is this build slower on this machine than before?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from helpers.judging import wording
from helpers.judging.answers import (
    BELOW_GOOD,
    GOOD_SLOWER,
    LEVEL_UNKNOWN,
    MACHINE_SLOW,
    UNEXPLAINED,
    Found,
    after_pairs,
    alone,
    runs_for_slower,
    slower_than_recorded,
)
from helpers.judging.confirm import (
    Conclusion,
    Confirmation,
    confirm,
    runs_of,
    threshold_of,
)
from helpers.judging.evalue import noise_factor
from helpers.judging.evidence import Build, Evidence, RecordedReference, RunEvidence
from helpers.judging.level import Level, learn_level, pair_tau
from helpers.judging.noise import KNOWN_NIGHTS
from helpers.judging.power import Detection, smallest_drop
from helpers.judging.rates import rate_unit
from helpers.judging.rules import MEDIAN_STEP, median_over_runs
from helpers.judging.screen import (
    ACCEPT_UP_TO,
    CARRIED_LEAST,
    CARRIED_MOST,
    SUSPECT_GAIN,
    Screening,
    due,
    more_screening,
    screen,
    unaccepted_in_a_row,
)
from helpers.judging.statistics import number
from helpers.judging.verdict import (
    AnswerAndStanding,
    NeedRuns,
    Standing,
    Status,
    SubVerdict,
    answer_about,
    no_baseline,
)

HISTORY_UNREACHABLE = "history-unreachable"
# After so many unexplained nights in a row their level is taken for the machine's new state (docs/verdicts.md,
# "Judge").
UNEXPLAINED_NIGHTS = 5


def against_recorded(evidence: Evidence, runs: Sequence[RunEvidence]) -> AnswerAndStanding | NeedRuns:
    """The answer, or the runs it still needs. ``runs`` are the usable screening runs, at least one."""
    recorded = evidence.recorded
    if recorded is None:
        return AnswerAndStanding(no_baseline("nothing recorded for this case on this machine", evidence))
    measured = median_over_runs(recorded.rule, [run.figures for run in runs])
    if isinstance(measured, str):
        return _answer(recorded, Status.INCONCLUSIVE, "rule-not-computable", f"recorded: {measured}")
    if (apart := _incomparable(evidence, recorded, measured, len(runs))) is not None:
        return AnswerAndStanding(apart)
    rates = _log_rates(runs)
    candidate, reference = (_log_rates(runs_of(evidence.runs, build)) for build in (Build.CANDIDATE, Build.REFERENCE))
    if rates is None or candidate is None or reference is None:
        message = f"recorded: a run has no figure by {MEDIAN_STEP}"
        return _answer(recorded, Status.INCONCLUSIVE, "rule-not-computable", message, measured)
    screening = screen(evidence, runs, rates)
    evidence = _in_time(evidence, screening)
    if evidence.past.unreachable:
        return without_history(evidence, recorded, screening, candidate, reference, measured)
    if not recorded.gates:
        # For a figure that is only shown no run is made, and nothing is learned from it.
        shown = alone(evidence, recorded, screening, smallest_drop(_detection(evidence, recorded, screening, Level())))
        return _answer(recorded, shown.status, shown.code, shown.message, measured)
    level = learn_level(evidence, screening.noise)
    due_tonight = due(evidence, screening, level.settled(screening.mature))
    more = more_screening(evidence, screening, due_tonight) or runs_for_slower(evidence, recorded, screening)
    if more is not None:
        return more
    confirmation: Confirmation | None = None
    if evidence.reference_build is not None and (why := _why_confirm(evidence, screening, level, due_tonight)):
        pairs = confirm(evidence, screening, level, candidate, reference, why)
        if isinstance(pairs, NeedRuns):
            return pairs
        confirmation = pairs
    smallest = smallest_drop(_detection(evidence, recorded, screening, level, confirmation))
    if confirmation is None:
        found = alone(evidence, recorded, screening, smallest)
    else:
        found = after_pairs(evidence, recorded, screening, confirmation, smallest)
    standing = _standing_of(evidence, screening, confirmation, found, smallest)
    message = found.message
    if standing.new_segment:
        message += f"; a new segment begins: {standing.segment_reason}"
    return _answer(recorded, found.status, found.code, message, measured, standing)


def _answer(
    recorded: RecordedReference,
    status: Status,
    code: str,
    message: str,
    measured: float | None = None,
    standing: Standing | None = None,
) -> AnswerAndStanding:
    return AnswerAndStanding(answer_about(recorded, status, code, message, measured), standing)


def _incomparable(evidence: Evidence, recorded: RecordedReference, measured: float, runs: int) -> SubVerdict | None:
    """The answer where tonight must not be compared with what was recorded; None if it may."""
    change = measured / recorded.samples_per_s - 1
    numbers = (
        f"{number(measured)} {rate_unit(evidence.case_id)} is {change:+.1%} against the recorded "
        f"{number(recorded.samples_per_s)} ({recorded.label}; by {recorded.rule}; n={runs})"
    )
    apart = []
    if recorded.differences:
        apart.append(f"recorded in another segment ({wording.first_few(recorded.differences)})")
    if recorded.rule != MEDIAN_STEP:
        apart.append(f"recorded by {recorded.rule}, judged by {MEDIAN_STEP}: {evidence.record_command}")
    if evidence.overrides:
        changed = f"settings changed ({', '.join(evidence.overrides)})"
        why = "; ".join([changed, "a recorded figure is only for the case as it stands", *apart])
        return answer_about(recorded, Status.INCOMPARABLE, "overridden", f"{why}: {numbers}", measured)
    if apart:
        code = "other-segment" if recorded.differences else "other-rule"
        return answer_about(recorded, Status.INCOMPARABLE, code, f"{'; '.join(apart)}: {numbers}", measured)
    return None


def _log_rates(runs: Sequence[RunEvidence]) -> list[float] | None:
    rates = [run.log_rate for run in runs if run.log_rate is not None and math.isfinite(run.log_rate)]
    return rates if len(rates) == len(runs) else None


def _why_confirm(evidence: Evidence, screening: Screening, level: Level, due_tonight: bool) -> str:
    """Why the reference build is to be run in turn with the new one; empty if there is no reason."""
    if why := _asked(evidence, screening):
        return why
    if not due_tonight:
        return ""
    if evidence.in_pairs:
        return "tonight's plan compares this case in pairs"
    why = f"{screening.known} of {KNOWN_NIGHTS} nights known"
    if evidence.past.unexplained:
        why = UNEXPLAINED
    elif screening.mature and not level.known:
        why = f"nobody knows where the nights before stand against {evidence.reference_build}"
    elif screening.mature:
        why = f"it is known to ±{level.error:.2%} only where the nights before stand against {evidence.reference_build}"
    return f"{why}, and it is this case's turn"


def _asked(evidence: Evidence, screening: Screening) -> str:
    """Why tonight's runs ask for a confirmation; empty if they do not."""
    if why := _suspected_drop(evidence, screening):
        return why
    if screening.gain_suspected:
        return f"a gain is suspected (evidence {wording.strength(screening.e_gain)}, from {SUSPECT_GAIN:g})"
    return screening.stalls


def _in_time(evidence: Evidence, screening: Screening) -> Evidence:
    """The evidence with as many pairs as a night of limited time has for this case: fewer if nothing asks for them."""
    if evidence.unasked_pairs is None or _asked(evidence, screening):
        return evidence
    pairs = min(evidence.budget.pairs, evidence.unasked_pairs)
    return replace(evidence, budget=replace(evidence.budget, pairs=pairs))


def _suspected_drop(evidence: Evidence, screening: Screening) -> str:
    """Why a drop of the case is suspected; empty if none is."""
    if evidence.suspicion or not screening.drop_suspected:
        return evidence.suspicion
    return f"a drop is suspected (evidence {wording.strength(screening.evidence)}, from {screening.suspect_from:g})"


def _detection(
    evidence: Evidence,
    recorded: RecordedReference,
    screening: Screening,
    level: Level,
    confirmation: Confirmation | None = None,
) -> Detection:
    """How tonight could find a drop: by the budget, the reference build at hand and the noise.

    If the recorded runs, tonight's or the pairs scatter more than was learned, their own noise counts.
    """
    sigma = screening.noise.sigma
    pairs = confirmation.differences if confirmation is not None else []
    scatter = max(
        1.0,
        screening.noise.scatter,
        noise_factor(screening.differences, sigma),
        noise_factor(pairs, math.sqrt(2) * sigma),
    )
    with_reference = evidence.reference_build is not None
    runs = max(evidence.planned_runs, 1)
    if not screening.mature and not with_reference:
        runs = max(runs, evidence.budget.first_runs)
    settled = level.settled(screening.mature)
    return Detection(
        sigma=scatter * sigma,
        tau=screening.noise.tau,
        runs=runs,
        most_runs=max(runs, evidence.budget.screen_runs),
        pairs=evidence.budget.pairs if with_reference else 0,
        threshold=threshold_of(evidence),
        tolerance=recorded.tolerance,
        screened=not (with_reference and (evidence.suspicion or due(evidence, screening, settled))),
        pair_tau=pair_tau(level),
    )


def without_history(
    evidence: Evidence,
    recorded: RecordedReference,
    screening: Screening,
    candidate: Sequence[float],
    reference: Sequence[float],
    measured: float,
) -> AnswerAndStanding | NeedRuns:
    """The answer while the history does not answer: nothing is known of earlier nights, so no case passes.

    It is INCONCLUSIVE, with what the recorded entry alone shows. Two statuses need no earlier night and are possible
    too: REGRESSION, if pairs with a reference build confirm it, and SLOWER, if the drop from the entry is beyond doubt.
    ``screening`` compares tonight's runs with the entry; ``candidate`` and ``reference`` are the confirmation runs' log
    rates. There is no standing: a night that was compared with no other must not change what later nights are compared
    with.
    """
    against = f"by the recorded entry alone: {wording.screened(evidence, screening)}"
    away = f"{evidence.past.unreachable}, so tonight cannot be compared with the nights before"
    remedy = "the runs are kept: judge again with --resume once the history answers"
    if (more := runs_for_slower(evidence, recorded, screening)) is not None:
        return more
    if (slower := slower_than_recorded(evidence, recorded, screening)) is not None:
        return _answer(recorded, slower.status, slower.code, f"{slower.message}; {away}", measured)
    level = learn_level(evidence, screening.noise)
    why = _suspected_drop(evidence, screening)
    if not why and due(evidence, screening, level.settled(screening.mature)):
        turn = "tonight's plan compares it in pairs" if evidence.in_pairs else "it is this case's turn"
        why = f"the history cannot be asked, and {turn}"
    if recorded.gates and evidence.reference_build is not None and why:
        pairs = confirm(evidence, screening, level, candidate, reference, why)
        if isinstance(pairs, NeedRuns):
            return pairs
        numbers = wording.paired(evidence, recorded, pairs)
        if level.known and pairs.conclusion is Conclusion.SLOWER and pairs.effect.point < -recorded.tolerance:
            message = f"slower: {numbers}; {away}; {against}"
            return _answer(recorded, Status.REGRESSION, "confirmed-regression", message, measured)
        against = f"no regression confirmed: {numbers}; {against}"
    rate = f"{number(recorded.samples_per_s)} {rate_unit(evidence.case_id)}"
    message = f"{away}; {against}, recorded {rate} ({recorded.label}); {remedy}"
    return _answer(recorded, Status.INCONCLUSIVE, HISTORY_UNREACHABLE, message, measured)


def _standing_of(
    evidence: Evidence, screening: Screening, confirmation: Confirmation | None, found: Found, smallest: float
) -> Standing:
    """What tonight leaves to later nights; ``smallest`` is the smallest drop that it would have found."""
    stalled = bool(screening.stalls or (confirmation is not None and confirmation.stalls))
    # Later nights must not be compared with a night that had stalls.
    refused = stalled or found.status is Status.REGRESSION or found.code == LEVEL_UNKNOWN
    accepted = not (screening.e_drop > ACCEPT_UP_TO or refused)
    row = 0 if found.status is Status.REGRESSION or accepted else unaccepted_in_a_row(evidence.past.nights) + 1
    why = ""
    if found.status is Status.IMPROVEMENT:
        why = "a confirmed improvement"
    elif row >= UNEXPLAINED_NIGHTS:
        why = f"{row} nights in a row stand apart and no regression was confirmed"
    effect = screening.effect if confirmation is None else confirmation.effect
    # A slow machine settles the suspicion of one night, but it does not explain a lasting fall.
    explained = found.settled and found.status is not Status.INCONCLUSIVE and found.code != MACHINE_SLOW
    carried = screening.evidence
    if found.settled or why:
        carried = 1.0
    elif confirmation is not None and found.code != LEVEL_UNKNOWN:
        # The pairs show more than the screening does, so the next night goes on from them.
        carried = min(max(confirmation.e_drop, CARRIED_LEAST), CARRIED_MOST)
    standing = Standing(
        log_rate=screening.log_rates[0],
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
    return _with_pairs(standing, evidence, confirmation, found)


def _with_pairs(standing: Standing, evidence: Evidence, confirmation: Confirmation, found: Found) -> Standing:
    level, beside = confirmation.level, found.beside
    explained = not standing.unexplained and not evidence.past.unexplained
    as_before = confirmation.conclusion in (Conclusion.SAME, Conclusion.NO_DROP, Conclusion.MEASURED) and (
        found.status is Status.PASS or found.code == BELOW_GOOD
    )
    # The level is also learned from pairs that leave the question open, if the new build ran as before. If it were
    # learned only from pairs that end early, it would be that of the lucky nights, and no night could correct it.
    open_though_usual = confirmation.conclusion is Conclusion.OPEN and beside is not None and not beside.below
    good_usual = beside is not None and not (beside.below and beside.good_below)
    return replace(
        standing,
        pairs=confirmation.pairs,
        e_confirm=confirmation.evidence,
        machine_slow=found.code in (MACHINE_SLOW, GOOD_SLOWER),
        level=math.expm1(level.offset) if level.known else None,
        level_error=level.error if level.known else None,
        good_shift=None if beside is None or beside.good_shift is None else math.expm1(beside.good_shift),
        teaches_level=found.status is Status.IMPROVEMENT
        or (explained and standing.accepted and (as_before or open_though_usual)),
        teaches_good=explained and good_usual and (standing.accepted or found.status is Status.REGRESSION),
    )
