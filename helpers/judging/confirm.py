"""Confirmation: interleaved runs of the reference build and the build under test, same cards, same night."""

from __future__ import annotations

import enum
import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.evidence import Build, Evidence, RunEvidence, Stage
from helpers.judging.estimate import Effect, effect_of
from helpers.judging.evalue import Direction, evalue
from helpers.judging.screen import STALL_MARGIN, STALL_SPREADS, Screening, spread
from helpers.verdict import NeedRuns

# VERDICT.md, "Judge": the bar, the bar while fewer than 15 nights are known, what two builds may differ by unchanged.
THRESHOLD, FIRST_THRESHOLD = 200.0, 1200.0
# The number of cases that the bars are for; with more of them, each has to clear a higher one.
CASES = 60
PAIR_TAU = 3e-4
FIRST_LOOK, FIRST_SAME = 2, 3
SAME_BELOW = 0.2
# A gain beyond this is believed only where both builds' losses agree this well.
LARGE_GAIN, LOSS_TOLERANCE = 0.10, 0.25


class Outcome(enum.Enum):
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    OPEN = "open"


@dataclass(frozen=True)
class Confirmation:
    """What the pairs say: ``e_drop`` is their e-value for a drop, ``evidence`` for the likelier direction.

    ``stalls`` as in Screening.
    """

    outcome: Outcome
    pairs: int
    effect: Effect
    e_drop: float
    evidence: float
    threshold: float
    stalls: str = ""


def threshold_of(evidence: Evidence, mature: bool) -> float:
    """The e-value that a verdict needs, so that the error rates hold over all of the night's cases together."""
    return (THRESHOLD if mature else FIRST_THRESHOLD) * max(1.0, evidence.cases_tonight / CASES)


def confirm(
    evidence: Evidence, screening: Screening, candidate: Sequence[float], reference: Sequence[float], why: str
) -> Confirmation | NeedRuns:
    """The outcome of the pairs made so far, or the runs of the next one.

    ``candidate`` and ``reference`` are the log rates of the usable confirmation runs, in the order they were made.
    """
    pairs = min(len(candidate), len(reference))
    differences = [new - good for new, good in zip(candidate, reference, strict=False)]
    if pairs >= FIRST_LOOK and len(candidate) == len(reference):
        found = _decide(evidence, screening, differences)
        if found is not None:
            return found
    return _next_runs(evidence, len(candidate), len(reference), why)


def _decide(evidence: Evidence, screening: Screening, differences: list[float]) -> Confirmation | None:
    pairs, sigma = len(differences), math.sqrt(2) * screening.noise.sigma
    threshold = threshold_of(evidence, screening.mature)
    slower = evalue(differences, sigma, PAIR_TAU)
    faster = evalue(differences, sigma, PAIR_TAU, Direction.GAIN)
    if max(slower, faster) >= threshold:
        outcome = Outcome.SLOWER if slower > faster else Outcome.FASTER
    elif pairs >= FIRST_SAME and max(slower, faster) < SAME_BELOW:
        outcome = Outcome.SAME
    elif pairs >= evidence.budget.pairs:
        outcome = Outcome.OPEN
    else:
        return None
    effect = effect_of(differences, sigma, screening.noise.degrees, night=PAIR_TAU)
    return Confirmation(outcome, pairs, effect, slower, max(slower, faster), threshold, _stalls(evidence, screening))


def _next_runs(evidence: Evidence, candidates: int, references: int, why: str) -> NeedRuns:
    """The next pair, or what is missing of the one under way. Orders alternate: AB, BA, AB, BA (A the good build)."""
    pair = max(candidates, references)
    if candidates != references:
        order: tuple[Build, ...] = (Build.CANDIDATE if candidates < references else Build.REFERENCE,)
        return NeedRuns(order[0], order, 1, f"{why}; the {order[0].value} run of pair {pair}", Stage.CONFIRM)
    order = (Build.REFERENCE, Build.CANDIDATE)
    if pair % 2 != _first_order(evidence):
        order = (Build.CANDIDATE, Build.REFERENCE)
    told = f"{why}; pair {pair + 1} of at most {evidence.budget.pairs}"
    return NeedRuns(order[0], order, 2, told, Stage.CONFIRM)


def _first_order(evidence: Evidence) -> int:
    """0 or 1, a coin that the seed throws: the first pair must not always warm the machine for the same build."""
    return hashlib.sha256(f"{evidence.seed}/{evidence.case_id}".encode()).digest()[0] % 2


def runs_of(runs: Sequence[RunEvidence], build: Build) -> tuple[RunEvidence, ...]:
    """The usable confirmation runs of a build."""
    return tuple(run for run in runs if run.stage is Stage.CONFIRM and run.build is build and run.usable)


def _stalls(evidence: Evidence, screening: Screening) -> str:
    """How the new build stalls more than the reference does beside it, whose stalls are the machine's."""
    new, good = (
        [run.stall_share for run in runs_of(evidence.runs, build) if run.stall_share is not None]
        for build in (Build.CANDIDATE, Build.REFERENCE)
    )
    if not new or not good:
        return screening.stalls
    share, beside = statistics.median(new), statistics.median(good)
    if share <= beside + max(STALL_MARGIN, STALL_SPREADS * max(spread(new), spread(good))):
        return ""
    return f"stalls take {share:.1%} beyond the median step, {beside:.1%} with the reference build"


def work_changed(runs: Sequence[RunEvidence]) -> str | None:
    """How both builds' losses differ, "" where they agree; None where they cannot be compared."""
    losses = [[run.loss for run in runs_of(runs, build)] for build in (Build.CANDIDATE, Build.REFERENCE)]
    medians = []
    for told in losses:
        known = [loss for loss in told if loss is not None and math.isfinite(loss)]
        if not known or len(known) < len(told):
            return None
        medians.append(statistics.median(known))
    new, good = medians
    if abs(new - good) <= LOSS_TOLERANCE * abs(good):
        return ""
    return f"loss {new:.3g}, {good:.3g} with the reference build on the same images"
