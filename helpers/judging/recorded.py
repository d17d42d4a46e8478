"""The recorded question: is this build slower on this machine than before? From screening to verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from helpers.judging import wording
from helpers.judging.alone import UNEXPLAINED, alone, runs_for_slower
from helpers.judging.answer import Answer, no_baseline, recorded_answer
from helpers.judging.confirm import Confirmation, confirm, pair_tau, runs_of, threshold_of
from helpers.judging.evidence import Build, Evidence, RecordedReference, RunEvidence
from helpers.judging.level import Level, learn_level
from helpers.judging.likelihood import noise_factor
from helpers.judging.noise import KNOWN_NIGHTS
from helpers.judging.paired import after_pairs
from helpers.judging.pastless import without_past
from helpers.judging.power import Detection, smallest_drop
from helpers.judging.published import by_rule
from helpers.judging.rules import MEDIAN_STEP
from helpers.judging.screen import SUSPECT_GAIN, Screening, due, more_screening, screen
from helpers.judging.standing import standing_of
from helpers.judging.statistics import number
from helpers.judging.verdict import NeedRuns, Status, SubVerdict


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
        shown = alone(evidence, recorded, screening, smallest_drop(_detection(evidence, recorded, screening, Level())))
        return Answer(recorded_answer(recorded, shown.status, shown.code, shown.message, measured))
    level = learn_level(evidence, screening.noise)
    due_tonight = due(evidence, screening, level.known)
    more = more_screening(evidence, screening, due_tonight) or runs_for_slower(evidence, recorded, screening)
    if more is not None:
        return more
    confirmation: Confirmation | None = None
    if evidence.reference_build is not None and (why := _why_confirm(evidence, screening, due_tonight)):
        pairs = confirm(evidence, screening, level, candidate, reference, why)
        if isinstance(pairs, NeedRuns):
            return pairs
        confirmation = pairs
    smallest = smallest_drop(_detection(evidence, recorded, screening, level, confirmation))
    if confirmation is None:
        found = alone(evidence, recorded, screening, smallest)
    else:
        found = after_pairs(evidence, recorded, screening, confirmation, smallest)
    standing = standing_of(evidence, screening, confirmation, found, smallest)
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


def _why_confirm(evidence: Evidence, screening: Screening, due_tonight: bool) -> str:
    """Why the reference build is to be run beside the new one; empty where nothing asks for it."""
    if evidence.suspicion:
        return evidence.suspicion
    if screening.drop_suspected:
        return f"a drop is suspected (evidence {wording.strength(screening.evidence)}, from {screening.suspect_from:g})"
    if screening.gain_suspected:
        return f"a gain is suspected (evidence {wording.strength(screening.e_gain)}, from {SUSPECT_GAIN:g})"
    if screening.stalls:
        return screening.stalls
    if not due_tonight:
        return ""
    why = f"{screening.known} of {KNOWN_NIGHTS} nights known"
    if evidence.past.unexplained:
        why = UNEXPLAINED
    elif screening.mature:
        why = f"nobody knows where the nights before stand against {evidence.reference_build}"
    return f"{why}, and it is this case's turn"


def _detection(
    evidence: Evidence,
    recorded: RecordedReference,
    screening: Screening,
    level: Level,
    confirmation: Confirmation | None = None,
) -> Detection:
    """What tonight was able to find, by the budget and the reference at hand, and the noise that the recorded runs,
    tonight's and its pairs show: where they lie further apart than was learned, that counts."""
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
    return Detection(
        scatter * sigma,
        screening.noise.tau,
        runs,
        max(runs, evidence.budget.screen_runs),
        evidence.budget.pairs if with_reference else 0,
        threshold_of(evidence),
        recorded.tolerance,
        screened=not (with_reference and (evidence.suspicion or due(evidence, screening, level.known))),
        pair_tau=pair_tau(level),
    )
