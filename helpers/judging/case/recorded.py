"""The recorded question, from screening to verdict: is this build slower on this machine than before?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from helpers.judging.case.answers import RecordedAnswer, after_pairs, alone, runs_for_slower, slower_than_recorded
from helpers.judging.case.confirm import Conclusion, Confirmation, confirm, threshold_of
from helpers.judging.case.evalue import Direction, evalue, noise_factor
from helpers.judging.case.evidence import Build, Evidence, RunEvidence, Stage
from helpers.judging.case.level import Level, accepted_as_low, learn_level, pair_tau
from helpers.judging.case.power import Detection, smallest_drop
from helpers.judging.case.screen import (
    ACCEPT_UP_TO,
    CARRIED_LEAST,
    CARRIED_MOST,
    Screening,
    more_screening,
    records,
    screen,
)
from helpers.judging.case.shown import beside_recorded, paired, screened
from helpers.judging.case.verdict import (
    NeedRuns,
    PairStanding,
    Reason,
    Standing,
    Status,
    SubVerdict,
    answer_about,
    no_baseline,
    to_record,
)
from helpers.judging.finding import Code, Finding, found
from helpers.judging.rules.own import MEDIAN_STEP, median_over_runs
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import hodges_lehmann

# The answer to the recorded question, and what it leaves to later nights: None if nothing was compared with earlier
# nights.
Answered = tuple[SubVerdict, Standing | None]

# The label of a reference for which the nights before stand.
BY_THE_NIGHTS = "the nights before on this stack"


def against_recorded(evidence: Evidence) -> Answered | NeedRuns:
    """The answer, or the runs it still needs. There must be a usable screening run."""
    runs, entry = evidence.screened, evidence.entry
    by_pairs = evidence.reference_build is not None and not evidence.overrides
    if evidence.recorded is None and not by_pairs:
        return no_baseline(found(Code.NOTHING_RECORDED), evidence), None
    measured = median_over_runs(entry.rule, [run.figures for run in runs])
    if isinstance(measured, str):
        why = found(Code.NOT_COMPUTABLE, of="recorded", why=measured)
        return _answer(evidence, Status.INCONCLUSIVE, Reason.of(why)), None
    apart = _apart(evidence)
    if evidence.overrides or (apart and not (by_pairs and entry.gates)):
        return _incomparable(evidence, apart, measured), None
    evidence = replace(evidence, recorded=replace(entry, comparable=entry.comparable and not apart))
    rates = _log_rates(runs)
    candidate, reference = (_log_rates(evidence.in_pairs(build)) for build in Build)
    if rates is None or candidate is None or reference is None:
        why = found(Code.NOT_COMPUTABLE, of="recorded", why=None)
        return _answer(evidence, Status.INCONCLUSIVE, Reason.of(why), measured), None
    screening = screen(evidence, rates)
    aside = () if evidence.entry.comparable else _aside(evidence, apart)
    if evidence.past.unreachable:
        return without_history(screening, candidate, reference, measured, aside)
    if not entry.gates:
        # For a figure that is only shown no run is made, and nothing is learned from it.
        shown = alone(screening, smallest_drop(_detection(screening, Level())))
        return _answer(evidence, shown.status, shown.reason, measured), None
    level = learn_level(evidence, screening.noise)
    due_tonight = screening.due(level.settled(screening.mature))
    doubt: Finding | None = None
    if not due_tonight and screening.asked is None:
        asked = doubt_about_hour(screening, level, reference)
        if isinstance(asked, NeedRuns):
            return asked
        due_tonight, doubt = asked is not None, asked
    more = more_screening(screening, due_tonight) or runs_for_slower(screening)
    if more is not None:
        return more
    confirmation: Confirmation | None = None
    why_pairs = doubt or _why_confirm(screening, level, due_tonight)
    if evidence.reference_build is not None and why_pairs is not None:
        pairs = confirm(screening, level, candidate, reference, why_pairs)
        if isinstance(pairs, NeedRuns):
            return pairs
        confirmation = pairs
    smallest = smallest_drop(_detection(screening, level, confirmation))
    answer = alone(screening, smallest) if confirmation is None else after_pairs(confirmation, smallest)
    standing = _standing_of(screening, confirmation, answer, smallest)
    hour = doubt or (shift_of_hour(evidence, level, reference) if confirmation is None else None)
    reason = Reason.of(
        *answer.reason.findings,
        hour,
        found(Code.NEW_SEGMENT) if standing.new_segment else None,
        *aside,
        code=answer.code,
    )
    if not evidence.entry.comparable:
        evidence = _stand_in(screening, confirmation)
        measured = math.exp(statistics.median(screening.log_rates))
    return _answer(evidence, answer.status, reason, measured), standing


def _answer(evidence: Evidence, status: Status, reason: Reason, measured: float | None = None) -> SubVerdict:
    answer = answer_about(evidence.entry, status, reason, measured)
    # What only lends its tolerance and band is no figure to show beside tonight's.
    return answer if evidence.entry.comparable else replace(answer, reference=None, label="")


def _stand_in(screening: Screening, confirmation: Confirmation | None) -> Evidence:
    """The evidence with the figure that tonight was compared with in place of one that is not recorded, or not
    comparable: the reference build's of tonight at the level of the nights before, or the nights' own."""
    if confirmation is None:
        rate, label = screening.noise.centre, BY_THE_NIGHTS
    else:
        rate = hodges_lehmann(confirmation.good) + confirmation.level.offset
        label = screening.case.reference_build or ""
    entry = replace(screening.case.entry, samples_per_s=math.exp(rate), rule=MEDIAN_STEP, label=label, comparable=True)
    return replace(screening.case, recorded=entry)


def _aside(evidence: Evidence, apart: Sequence[Finding]) -> tuple[Finding, ...]:
    """Why tonight is not compared with a recorded figure, and what to do."""
    if not apart:
        return found(Code.NOTHING_RECORDED), to_record(evidence)
    rate, unit = evidence.entry.samples_per_s, rate_unit(evidence.case_id)
    why = found(Code.NOT_COMPARED, *apart, recorded=rate, unit=unit, label=evidence.entry.label)
    return why, found(Code.RECORD_AGAIN, options=evidence.record_options)


def _apart(evidence: Evidence) -> list[Finding]:
    """Why tonight must not be compared with the recorded figure; empty if it may."""
    apart, entry = [], evidence.entry
    if entry.differences:
        apart.append(found(Code.OTHER_SEGMENT, differences=entry.differences))
    if entry.rule != MEDIAN_STEP:
        apart.append(found(Code.OTHER_RULE, rule=entry.rule, own=MEDIAN_STEP))
    return apart


def _incomparable(evidence: Evidence, apart: Sequence[Finding], measured: float) -> SubVerdict:
    """The answer where tonight must not be compared with what was recorded."""
    numbers = beside_recorded(evidence, measured, differences=())
    if evidence.overrides:
        reason = Reason.of(
            found(Code.OVERRIDDEN, *apart, numbers, settings=", ".join(evidence.overrides), recorded=True)
        )
    else:
        first, *others = apart
        missing = found(Code.NAME_REFERENCE, why=evidence.why_no_reference, options=evidence.record_options)
        reason = Reason.of(first.by(*others, numbers), missing)
    return answer_about(evidence.entry, Status.INCOMPARABLE, reason, measured)


def _log_rates(runs: Sequence[RunEvidence]) -> list[float] | None:
    rates = [run.log_rate for run in runs if run.log_rate is not None and math.isfinite(run.log_rate)]
    return rates if len(rates) == len(runs) else None


def _why_confirm(screening: Screening, level: Level, due_tonight: bool) -> Finding | None:
    """Why the reference build is to be run in turn with the new one; None if there is no reason."""
    if screening.asked is not None or not due_tonight:
        return screening.asked
    if records(screening.case):
        return found(Code.RECORDED_WITH_LEVEL)
    if screening.unanchored:
        return found(Code.ONLY_PAIRS_TELL, nights=screening.known)
    return found(Code.TURN, build=screening.case.reference_build, error=level.error if level.known else None)


def _detection(screening: Screening, level: Level, confirmation: Confirmation | None = None) -> Detection:
    """How tonight could find a drop: by the budget, the reference build at hand and the noise.

    If the recorded runs, tonight's or the pairs scatter more than was learned, their own noise counts.
    """
    evidence, sigma = screening.case, screening.noise.sigma
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
    pairs_wanted = evidence.suspicion is not None or screening.due(level.settled(screening.mature))
    return Detection(
        sigma=scatter * sigma,
        tau=screening.noise.tau,
        runs=runs,
        most_runs=max(runs, evidence.budget.screen_runs),
        pairs=evidence.budget.pairs if with_reference else 0,
        threshold=threshold_of(evidence),
        tolerance=evidence.entry.tolerance,
        screened=not (with_reference and pairs_wanted),
        pair_tau=pair_tau(level),
    )


def without_history(
    screening: Screening,
    candidate: Sequence[float],
    reference: Sequence[float],
    measured: float,
    aside: Sequence[Finding],
) -> Answered | NeedRuns:
    """The answer while the history does not answer: nothing is known of earlier nights, so no case passes.

    It is INCONCLUSIVE, with what the recorded entry alone shows. Two statuses need no earlier night and are possible
    too: REGRESSION, if pairs with a reference build confirm it, and SLOWER, if the drop from the entry is beyond doubt.
    ``screening`` compares tonight's runs with the entry, if there is one to be compared with, else ``aside`` says why
    there is none; ``candidate`` and ``reference`` are the confirmation runs' log rates. There is no standing: a night
    that was compared with no other must not change what later nights are compared with.
    """
    evidence, entry = screening.case, screening.case.entry
    rate = found(Code.ENTRY, recorded=entry.samples_per_s, unit=rate_unit(evidence.case_id), label=entry.label)
    against: Sequence[Finding] = aside or (found(Code.BY_ENTRY_ALONE, screened(screening), rate),)
    away = found(Code.HISTORY_UNREACHABLE, why=evidence.past.unreachable)
    if (more := runs_for_slower(screening)) is not None:
        return more
    if (slower := slower_than_recorded(screening)) is not None:
        return _answer(evidence, slower.status, Reason.of(*slower.reason.findings, away), measured), None
    level = learn_level(evidence, screening.noise)
    why = screening.suspected_drop
    if why is None and screening.due(level.settled(screening.mature)):
        why = found(Code.TURN_WITHOUT_HISTORY)
    if entry.gates and evidence.reference_build is not None and why is not None:
        pairs = confirm(screening, level, candidate, reference, why)
        if isinstance(pairs, NeedRuns):
            return pairs
        numbers = paired(pairs)
        fell = pairs.conclusion is Conclusion.SLOWER and pairs.effect.point < -entry.tolerance
        if fell and (level.known or not accepted_as_low(screening, pairs.new, pairs.good)):
            reason = Reason.of(found(Code.REGRESSION, numbers), away, *against)
            return _answer(evidence, Status.REGRESSION, reason, measured), None
        against = (found(Code.NOT_A_REGRESSION, numbers), *against)
    reason = Reason.of(away, *against, found(Code.JUDGE_AGAIN))
    return _answer(evidence, Status.INCONCLUSIVE, reason, measured), None


def _standing_of(
    screening: Screening, confirmation: Confirmation | None, answer: RecordedAnswer, smallest: float
) -> Standing:
    """What tonight leaves to later nights; ``smallest`` is the smallest drop that it would have found."""
    stalled = screening.stalls is not None or (confirmation is not None and confirmation.stalls is not None)
    # Later nights must not be compared with a night that had stalls.
    refused = stalled or answer.status is Status.REGRESSION or answer.code == Code.LEVEL_UNKNOWN
    # A few nights that lie too high by chance must not keep every later one out.
    by_pairs = confirmation is not None and screening.young and answer.status is Status.PASS
    usual = screening.e_drop <= ACCEPT_UP_TO or (by_pairs and answer.code != Code.MACHINE_SLOW)
    improved = answer.status is Status.IMPROVEMENT
    accepted = (usual and not refused) or improved
    carried = screening.evidence
    if answer.settled or improved:
        carried = 1.0
    elif confirmation is not None and answer.code != Code.LEVEL_UNKNOWN:
        # The pairs show more than the screening does, so the next night goes on from them.
        carried = min(max(confirmation.e_drop, CARRIED_LEAST), CARRIED_MOST)
    return Standing(
        log_rate=screening.log_rates[0],
        e_drop=screening.e_drop,
        evidence=carried,
        accepted=accepted,
        sigma=screening.noise.sigma,
        tau=screening.noise.tau,
        nights=screening.known,
        runs=len(screening.differences),
        effect=screening.effect if confirmation is None else confirmation.effect,
        shift=screening.effect.point,
        pairs=None if confirmation is None else _pairs_of(accepted, confirmation, answer),
        smallest_drop=smallest,
        new_segment=improved,
    )


def _pairs_of(accepted: bool, confirmation: Confirmation, answer: RecordedAnswer) -> PairStanding:
    level, beside = confirmation.level, answer.beside
    as_before = confirmation.conclusion in (Conclusion.SAME, Conclusion.NO_DROP, Conclusion.MEASURED) and (
        answer.status is Status.PASS or answer.code == Code.BELOW_REFERENCE
    )
    # The level is also learned from pairs that leave the question open, if the new build ran as before. If it were
    # learned only from pairs that end early, it would be that of the lucky nights, and no night could correct it.
    open_though_usual = confirmation.conclusion is Conclusion.OPEN and beside is not None and not beside.below
    good_usual = beside is not None and not (beside.below and beside.good_below)
    return PairStanding(
        count=confirmation.pairs,
        evidence=confirmation.evidence,
        level=math.expm1(level.offset) if level.known else None,
        level_error=level.error if level.known else None,
        good_shift=None if beside is None or beside.good_shift is None else math.expm1(beside.good_shift),
        machine_slow=answer.code in (Code.MACHINE_SLOW, Code.REFERENCE_SLOWER),
        teaches_level=answer.status is Status.IMPROVEMENT or (accepted and (as_before or open_though_usual)),
        teaches_good=good_usual and (accepted or answer.status is Status.REGRESSION),
    )


# ---- the hour in which a case was recorded: whether the machine ran then as it does now
#
# If it was slow in that hour, a build that is as much slower looks as fast as what is recorded. The reference build's
# own figure is known from the recording, so one run of it shows this on the first night that has it at hand.

# If a change explains the reference build's run better than no change does, in either direction, pairs decide. On a
# case so noisy that one run says little, this is so more often.
_DOUBTED = 1.0


def doubt_about_hour(screening: Screening, level: Level, good: Sequence[float]) -> NeedRuns | Finding | None:
    """Why tonight must not be compared with what is recorded alone; None if nothing speaks against it.

    That is only doubted while the reference build's own figures are known from the recording alone, and too few nights
    are known to outweigh what was recorded. ``good`` are the log rates of the reference build's runs of tonight;
    without one, the answer is a request for it.
    """
    case, noise = screening.case, screening.noise
    outweighed = screening.mature or case.past.gained
    if case.reference_build is None or not case.entry.comparable or not level.known or outweighed:
        return None
    if level.good is None or not level.good_once:
        return None
    if not good:
        return NeedRuns((Build.REFERENCE,), found(Code.HOUR_UNKNOWN, build=case.reference_build), Stage.CONFIRM)
    if max(evalue([good[0] - level.good], noise.sigma, noise.tau, direction) for direction in Direction) < _DOUBTED:
        return None
    return found(Code.HOUR_DOUBTED, shift_of_hour(case, level, good))


def shift_of_hour(evidence: Evidence, level: Level, good: Sequence[float]) -> Finding | None:
    """How the reference build's first run of tonight lies to its figure of the recording; None if either is not
    known."""
    if level.good is None or not good:
        return None
    return found(Code.HOUR_SHIFT, build=evidence.reference_build, change=math.expm1(good[0] - level.good))
