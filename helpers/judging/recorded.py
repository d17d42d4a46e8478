"""The recorded question, from screening to verdict: is this build slower on this machine than before?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from helpers.judging import wording
from helpers.judging.answers import (
    BELOW_GOOD,
    GOOD_SLOWER,
    LEVEL_UNKNOWN,
    MACHINE_SLOW,
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
from helpers.judging.level import Level, accepted_as_low, learn_level, pair_tau
from helpers.judging.power import Detection, smallest_drop
from helpers.judging.rates import rate_unit
from helpers.judging.recorded_hour import doubt_about_hour, shift_of_hour
from helpers.judging.rules import MEDIAN_STEP, median_over_runs
from helpers.judging.screen import (
    ACCEPT_UP_TO,
    CARRIED_LEAST,
    CARRIED_MOST,
    SUSPECT_GAIN,
    Screening,
    due,
    is_young,
    more_screening,
    records,
    screen,
    unanchored,
)
from helpers.judging.statistics import hodges_lehmann, number
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
NOTHING_RECORDED = "nothing recorded for this case on this machine"


def against_recorded(evidence: Evidence, runs: Sequence[RunEvidence]) -> AnswerAndStanding | NeedRuns:
    """The answer, or the runs it still needs. ``runs`` are the usable screening runs, at least one."""
    by_pairs = evidence.reference_build is not None and not evidence.why_not_recorded and not evidence.overrides
    if evidence.recorded is None and not by_pairs:
        return AnswerAndStanding(no_baseline(NOTHING_RECORDED, evidence))
    rule = evidence.recorded.rule if evidence.recorded is not None else MEDIAN_STEP
    measured = median_over_runs(rule, [run.figures for run in runs])
    if isinstance(measured, str):
        recorded = evidence.recorded or _nothing(evidence, 1.0)
        return _answer(recorded, Status.INCONCLUSIVE, "rule-not-computable", f"recorded: {measured}")
    recorded = evidence.recorded or _nothing(evidence, measured)
    apart = _apart(evidence, recorded)
    if evidence.overrides or (apart and not (by_pairs and recorded.gates)):
        return AnswerAndStanding(_incomparable(evidence, recorded, apart, measured, len(runs)))
    recorded = replace(recorded, comparable=recorded.comparable and not apart)
    evidence = replace(evidence, recorded=recorded)
    rates = _log_rates(runs)
    candidate, reference = (_log_rates(runs_of(evidence.runs, build)) for build in (Build.CANDIDATE, Build.REFERENCE))
    if rates is None or candidate is None or reference is None:
        message = f"recorded: a run has no figure by {MEDIAN_STEP}"
        return _answer(recorded, Status.INCONCLUSIVE, "rule-not-computable", message, measured)
    screening = screen(evidence, runs, rates)
    evidence = _in_time(evidence, screening)
    aside = _aside(evidence, recorded, apart)
    if evidence.past.unreachable:
        return without_history(evidence, recorded, screening, candidate, reference, measured, aside)
    if not recorded.gates:
        # For a figure that is only shown no run is made, and nothing is learned from it.
        shown = alone(evidence, recorded, screening, smallest_drop(_detection(evidence, recorded, screening, Level())))
        return _answer(recorded, shown.status, shown.code, shown.message, measured)
    level = learn_level(evidence, screening.noise)
    due_tonight, doubt = due(evidence, screening, level.settled(screening.mature)), ""
    if not (due_tonight or _asked(evidence, screening)):
        told = doubt_about_hour(evidence, screening, level, reference)
        if isinstance(told, NeedRuns):
            return told
        due_tonight, doubt = bool(told), told
    more = more_screening(evidence, screening, due_tonight) or runs_for_slower(evidence, recorded, screening)
    if more is not None:
        return more
    confirmation: Confirmation | None = None
    if evidence.reference_build is not None and (why := doubt or _why_confirm(evidence, screening, level, due_tonight)):
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
    if hour := doubt or (shift_of_hour(evidence, level, reference) if confirmation is None else ""):
        message += f"; {hour}"
    if standing.new_segment:
        message += f"; a new segment begins: {standing.segment_reason}"
    if not recorded.comparable:
        message, recorded = f"{message}; {aside}", _stand_in(evidence, recorded, screening, confirmation)
        measured = math.exp(statistics.median(screening.log_rates))
    return _answer(recorded, found.status, found.code, message, measured, standing)


def _answer(
    recorded: RecordedReference,
    status: Status,
    code: str,
    message: str,
    measured: float | None = None,
    standing: Standing | None = None,
) -> AnswerAndStanding:
    answer = answer_about(recorded, status, code, message, measured)
    if not recorded.comparable:
        # What only lends its tolerance and band is no figure to show beside tonight's.
        answer = replace(answer, reference=None, label="")
    return AnswerAndStanding(answer, standing)


def _nothing(evidence: Evidence, measured: float) -> RecordedReference:
    """What stands for a recorded figure where there is none: its tolerance and band alone count."""
    return RecordedReference(
        measured, MEDIAN_STEP, NOTHING_RECORDED, evidence.tolerance, band=evidence.band, comparable=False
    )


def _stand_in(
    evidence: Evidence, recorded: RecordedReference, screening: Screening, confirmation: Confirmation | None
) -> RecordedReference:
    """The figure that tonight was compared with in place of one that is not recorded, or not comparable: the reference
    build's of tonight at the level of the nights before, or the nights' own."""
    if confirmation is None:
        rate, label = screening.noise.centre, f"the {wording.counted(screening.known, 'night')} before on this stack"
    else:
        rate = hodges_lehmann(confirmation.good) + confirmation.level.offset
        label = f"{evidence.reference_build} beside it"
    return replace(recorded, samples_per_s=math.exp(rate), rule=MEDIAN_STEP, label=label, comparable=True)


def _aside(evidence: Evidence, recorded: RecordedReference, apart: Sequence[str]) -> str:
    """Why tonight is not compared with a recorded figure, and what to do."""
    if not apart:
        if evidence.to_record:
            return f"{NOTHING_RECORDED}; this session records it, or says under Baselines why not"
        return f"{NOTHING_RECORDED}: record it, and a night needs fewer pairs: {evidence.record_command}"
    rate = f"{number(recorded.samples_per_s)} {rate_unit(evidence.case_id)}"
    return (
        f"not compared with the recorded {rate} ({recorded.label}): {'; '.join(apart)}; "
        f"record it again: {evidence.record_command}"
    )


def _apart(evidence: Evidence, recorded: RecordedReference) -> list[str]:
    """Why tonight must not be compared with the recorded figure; empty if it may."""
    apart = []
    if recorded.differences:
        apart.append(f"since then changed: {wording.first_few(recorded.differences)}")
    if recorded.rule != MEDIAN_STEP:
        apart.append(f"recorded by {recorded.rule}, judged by {MEDIAN_STEP}")
    return apart


def _incomparable(
    evidence: Evidence, recorded: RecordedReference, apart: Sequence[str], measured: float, runs: int
) -> SubVerdict:
    """The answer where tonight must not be compared with what was recorded."""
    change = measured / recorded.samples_per_s - 1
    numbers = (
        f"{number(measured)} {rate_unit(evidence.case_id)} is {change:+.1%} against the recorded "
        f"{number(recorded.samples_per_s)} ({recorded.label}; by {recorded.rule}; n={runs})"
    )
    if evidence.overrides:
        changed = f"settings changed ({', '.join(evidence.overrides)})"
        why = "; ".join([changed, "a recorded figure is only for the case as it stands", *apart])
        return answer_about(recorded, Status.INCOMPARABLE, "overridden", f"{why}: {numbers}", measured)
    code = "other-segment" if recorded.differences else "other-rule"
    missing = evidence.why_no_reference or "no reference build was given"
    remedy = f"{missing}: name one (--reference-env PATH), and pairs decide; or record again: {evidence.record_command}"
    return answer_about(
        recorded, Status.INCOMPARABLE, code, f"recorded, and {'; '.join(apart)}: {numbers}; {remedy}", measured
    )


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
    if records(evidence):
        return "it is recorded with its level"
    if unanchored(evidence, screening):
        return f"only pairs can tell: {wording.counted(screening.known, 'night')} known of this stack"
    why = f"nobody knows where the nights before stand against {evidence.reference_build}"
    if level.known:
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
    aside: str,
) -> AnswerAndStanding | NeedRuns:
    """The answer while the history does not answer: nothing is known of earlier nights, so no case passes.

    It is INCONCLUSIVE, with what the recorded entry alone shows. Two statuses need no earlier night and are possible
    too: REGRESSION, if pairs with a reference build confirm it, and SLOWER, if the drop from the entry is beyond doubt.
    ``screening`` compares tonight's runs with the entry, if there is one to be compared with, else ``aside`` says why
    there is none; ``candidate`` and ``reference`` are the confirmation runs' log
    rates. There is no standing: a night that was compared with no other must not change what later nights are compared
    with.
    """
    rate = f"recorded {number(recorded.samples_per_s)} {rate_unit(evidence.case_id)} ({recorded.label})"
    against = f"by the recorded entry alone: {wording.screened(evidence, screening)}, {rate}"
    if not recorded.comparable:
        against = aside
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
        fell = pairs.conclusion is Conclusion.SLOWER and pairs.effect.point < -recorded.tolerance
        if fell and (level.known or not accepted_as_low(evidence, screening, pairs.new, pairs.good)):
            message = f"slower: {numbers}; {away}; {against}"
            return _answer(recorded, Status.REGRESSION, "confirmed-regression", message, measured)
        against = f"no regression confirmed: {numbers}; {against}"
    message = f"{away}; {against}; {remedy}"
    return _answer(recorded, Status.INCONCLUSIVE, HISTORY_UNREACHABLE, message, measured)


def _standing_of(
    evidence: Evidence, screening: Screening, confirmation: Confirmation | None, found: Found, smallest: float
) -> Standing:
    """What tonight leaves to later nights; ``smallest`` is the smallest drop that it would have found."""
    stalled = bool(screening.stalls or (confirmation is not None and confirmation.stalls))
    # Later nights must not be compared with a night that had stalls.
    refused = stalled or found.status is Status.REGRESSION or found.code == LEVEL_UNKNOWN
    # A few nights that lie too high by chance must not keep every later one out.
    by_pairs = confirmation is not None and is_young(evidence, screening) and found.status is Status.PASS
    usual = screening.e_drop <= ACCEPT_UP_TO or (by_pairs and found.code != MACHINE_SLOW)
    accepted = usual and not refused
    why = "a confirmed improvement" if found.status is Status.IMPROVEMENT else ""
    effect = screening.effect if confirmation is None else confirmation.effect
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
    )
    if confirmation is None:
        return standing
    return _with_pairs(standing, evidence, confirmation, found)


def _with_pairs(standing: Standing, evidence: Evidence, confirmation: Confirmation, found: Found) -> Standing:
    level, beside = confirmation.level, found.beside
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
        teaches_level=found.status is Status.IMPROVEMENT or (standing.accepted and (as_before or open_though_usual)),
        teaches_good=good_usual and (standing.accepted or found.status is Status.REGRESSION),
    )
