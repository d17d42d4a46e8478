"""Confirmation: interleaved runs of the reference build and the build under test, same cards, same night. They are
compared with the level of the nights before (helpers.judging.case.level)."""

from __future__ import annotations

import enum
import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from helpers.judging.case.evalue import Direction, evalue, odds_against
from helpers.judging.case.evidence import Build, Evidence, RunEvidence, Stage
from helpers.judging.case.level import LEVEL_ERROR, LEVEL_PAIRS, Level, accepted_as_low, level_error, pair_tau
from helpers.judging.case.noise import Noise
from helpers.judging.case.screen import (
    CLEARLY_NO_DROP,
    STALL_MARGIN,
    STALL_SPREADS,
    SUSPECT_DROP,
    Screening,
    records,
    unanchored,
)
from helpers.judging.case.verdict import NeedRuns
from helpers.judging.finding import Code, Finding, found
from helpers.judging.statistics import EffectSize, effect_of, hodges_lehmann, robust_sigma

# The e-value that every night needs. With so many pairs to reach it, 1200 finds as much as 200 does, with a fifth of
# the false alarms (docs/verdicts.md, "One case, one night").
THRESHOLD = 1200.0
# That e-value is for a night of up to so many cases. With more cases, each of them needs a higher one.
CASES = 60
# The number of pairs at which they are first looked at.
FIRST_LOOK = 2
# A level needs more than two pairs, because one run of each build may be bad.
FIRST_LEVEL = 3
# If both e-values are below this, the builds are the same.
SAME_BELOW = 0.2
# Pairs that show no drop end if the odds against a drop beyond the band (RecordedReference) are at least these.
RULED_OUT = 20.0
# From this share of the pairs on, there is no drop if a drop explains them no better than no change does.
LATE = 0.25
# After FIRST_LIMITED pairs, the pairs end if the level's standard error is at least LEVEL_OUTWEIGHS times their own:
# all further pairs together could make the error of the comparison only a tenth smaller.
FIRST_LIMITED, LEVEL_OUTWEIGHS = 8, 2.0
# A larger gain than this is believed only if both builds' losses agree within this.
LARGE_GAIN, LOSS_TOLERANCE = 0.10, 0.25


class Conclusion(enum.Enum):
    """What the pairs showed."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    # The pairs do not show that the builds are the same, but they show no drop and rule a large one out.
    NO_DROP = "no drop"
    OPEN = "open"
    # Nothing was suspected; the pairs measured where the nights stand against the good build.
    MEASURED = "measured"


@dataclass(frozen=True)
class Confirmation:
    """What the pairs showed, compared with ``level``, or with the good build itself if the level is not known."""

    conclusion: Conclusion
    pairs: int
    effect: EffectSize
    # The pairs' e-value for a drop, and their e-value for the likelier direction.
    e_drop: float
    evidence: float
    threshold: float
    # The level of the nights before against the good build.
    level: Level
    # Log rates of either build, pair by pair.
    new: tuple[float, ...]
    good: tuple[float, ...]
    # As in Screening.
    stalls: Finding | None = None

    @property
    def differences(self) -> list[float]:
        """Log rates of the new build minus those of the good one."""
        return [new - good for new, good in zip(self.new, self.good, strict=True)]


def threshold_of(evidence: Evidence) -> float:
    """The e-value that a verdict needs, so that the error rates hold over all of the night's cases together."""
    return THRESHOLD * max(1.0, evidence.cases_tonight / CASES)


def confirm(
    evidence: Evidence,
    screening: Screening,
    level: Level,
    candidate: Sequence[float],
    reference: Sequence[float],
    why: Finding,
) -> Confirmation | NeedRuns:
    """What the pairs so far show, or a request for the runs of the next one.

    ``candidate`` and ``reference`` are the log rates of the usable confirmation runs, in the order they were made.
    """
    if len(candidate) == len(reference) >= FIRST_LOOK:
        decided = _decide(evidence, screening, level, tuple(candidate), tuple(reference))
        if decided is not None:
            return decided
    request = next_runs(evidence, len(candidate), len(reference), why)
    return replace(request, why=request.why.by(so_far(evidence, screening, level, candidate, reference)))


def so_far(
    evidence: Evidence, screening: Screening, level: Level, candidate: Sequence[float], reference: Sequence[float]
) -> Finding | None:
    """What the whole pairs so far show, and what would decide; None before there are enough to look at."""
    differences = [new - good - level.offset for new, good in zip(candidate, reference, strict=False)]
    if len(differences) < FIRST_LOOK:
        return None
    sigma, tau = math.sqrt(2) * screening.noise.sigma, pair_tau(level)
    slower, faster = (evalue(differences, sigma, tau, direction) for direction in Direction)
    if max(slower, faster) < SUSPECT_DROP and (
        measures(evidence, screening, level) or refines(evidence, screening, level)
    ):
        return found(Code.LEVEL_SO_FAR, error=level_error(differences, screening.noise))
    return found(
        Code.PAIRS_SO_FAR,
        change=math.expm1(hodges_lehmann(differences)),
        evidence=max(slower, faster),
        gain=faster > slower,
        threshold=threshold_of(evidence),
    )


def _decide(
    evidence: Evidence, screening: Screening, level: Level, new: tuple[float, ...], good: tuple[float, ...]
) -> Confirmation | None:
    sigma, tau = math.sqrt(2) * screening.noise.sigma, pair_tau(level)
    differences = [one - other - level.offset for one, other in zip(new, good, strict=True)]
    threshold = threshold_of(evidence)
    slower = evalue(differences, sigma, tau)
    faster = evalue(differences, sigma, tau, Direction.GAIN)
    low = slower < SUSPECT_DROP or accepted_as_low(evidence, screening, new, good)
    conclusion: Conclusion | None
    if low and measures(evidence, screening, level):
        known = _well_known(evidence, screening, differences, evidence.budget.pairs)
        conclusion = Conclusion.MEASURED if known else None
    else:
        # Where nobody accepted so low a level, pairs that look slower are no measure of it: they are to be decided.
        conclusion = _conclusion(evidence, screening, level, differences, (slower, faster, threshold))
    if conclusion is Conclusion.OPEN and slower < RULED_OUT and refines(evidence, screening, level):
        # Nothing was suspected, and the level was known too badly to tell more: it is known better now.
        conclusion = Conclusion.MEASURED
    if conclusion is None:
        return None
    if records(evidence) and not _well_known(evidence, screening, differences, LEVEL_PAIRS):
        return None
    effect = effect_of(differences, sigma, tau)
    stalls = _stalls(evidence, screening)
    return Confirmation(conclusion, len(new), effect, slower, max(slower, faster), threshold, level, new, good, stalls)


def _well_known(evidence: Evidence, screening: Screening, differences: list[float], most: int) -> bool:
    """Whether the pairs have measured the level as exactly as counts, or are used up (``most``, or the budget)."""
    tolerance = evidence.smallest_change
    exact = len(differences) >= FIRST_LEVEL and level_error(differences, screening.noise) <= tolerance
    return exact or len(differences) >= min(most, evidence.budget.pairs)


def _conclusion(
    evidence: Evidence,
    screening: Screening,
    level: Level,
    differences: list[float],
    e: tuple[float, float, float],
) -> Conclusion | None:
    """What the pairs show; None if more are needed. ``e`` has their e-values for a drop and for a gain, and the
    threshold."""
    slower, faster, threshold = e
    pairs = len(differences)
    if max(slower, faster) >= threshold:
        return Conclusion.SLOWER if slower > faster else Conclusion.FASTER
    if refines(evidence, screening, level):
        together = 1 / math.hypot(1 / level.error, 1 / level_error(differences, screening.noise))
        if together > LEVEL_ERROR and pairs < evidence.budget.pairs:
            return None
    if max(slower, faster) < SAME_BELOW:
        return Conclusion.SAME
    last = pairs >= evidence.budget.pairs or level_limits(level, differences, screening.noise)
    if _no_drop(evidence, screening, level, differences, (slower, faster), last):
        return Conclusion.NO_DROP
    return Conclusion.OPEN if last else None


def level_limits(level: Level, differences: list[float], noise: Noise) -> bool:
    """Whether more pairs would hardly help: the level is known so badly that the pairs' own scatter no longer
    counts."""
    return len(differences) >= FIRST_LIMITED and level.error >= LEVEL_OUTWEIGHS * level_error(differences, noise)


def _no_drop(
    evidence: Evidence,
    screening: Screening,
    level: Level,
    differences: list[float],
    e: tuple[float, float],
    last: bool,
) -> bool:
    """Whether more pairs would hardly show a drop, and a drop as large as the band is ruled out.

    The first pairs must speak clearly against a drop, and no gain may be suspected while pairs are left. Later, it is
    enough that a drop explains the pairs no better than no change does. ``e`` has the e-values for a drop and for a
    gain; ``last`` says that there will be no further pair.
    """
    slower, faster = e
    late = len(differences) >= evidence.budget.pairs * LATE
    if slower >= (1.0 if last or late else CLEARLY_NO_DROP):
        return False
    if not last and screening.gain_suspected and faster >= CLEARLY_NO_DROP:
        return False
    band = -math.log1p(-(evidence.recorded.band if evidence.recorded else evidence.band))
    return odds_against(differences, math.sqrt(2) * screening.noise.sigma, pair_tau(level), band) >= RULED_OUT


def measures(evidence: Evidence, screening: Screening, level: Level) -> bool:
    """Whether the pairs only serve to learn the level: it is unknown, and nothing is suspected."""
    return not (level.known or _suspected(evidence, screening) or unanchored(evidence, screening))


def refines(evidence: Evidence, screening: Screening, level: Level) -> bool:
    """Whether the pairs only serve to learn the level better, because earlier pairs left it uncertain."""
    settled = not level.known or level.settled(screening.mature)
    return not (settled or _suspected(evidence, screening))


def _suspected(evidence: Evidence, screening: Screening) -> bool:
    return bool(screening.drop_suspected or screening.gain_suspected or screening.stalls or evidence.suspicion)


def next_runs(evidence: Evidence, candidates: int, references: int, why: Finding) -> NeedRuns:
    """The next pair, or the missing run of the pair under way. Orders alternate: AB, BA, AB (A is the good build)."""
    pair = max(candidates, references)
    if candidates != references:
        half = found(Code.HALF_PAIR, why, pair=pair, most=evidence.budget.pairs)
        order: tuple[Build, ...] = (Build.CANDIDATE if candidates < references else Build.REFERENCE,)
        return NeedRuns(order[0], order, 1, half, Stage.CONFIRM)
    order = (Build.REFERENCE, Build.CANDIDATE)
    if pair % 2 != _first_order(evidence):
        order = (Build.CANDIDATE, Build.REFERENCE)
    next_pair = found(Code.NEXT_PAIR, why, pair=pair + 1, most=evidence.budget.pairs)
    return NeedRuns(order[0], order, 2, next_pair, Stage.CONFIRM)


def _first_order(evidence: Evidence) -> int:
    """0 or 1, chosen by the seed, because the first pair must not always warm the machine for the same build."""
    return hashlib.sha256(f"{evidence.seed}/{evidence.case_id}".encode()).digest()[0] % 2


def runs_of(runs: Sequence[RunEvidence], build: Build) -> tuple[RunEvidence, ...]:
    """The usable confirmation runs of a build."""
    return tuple(run for run in runs if run.stage is Stage.CONFIRM and run.build is build and run.usable)


def _stalls(evidence: Evidence, screening: Screening) -> Finding | None:
    """How much more the new build stalls than the reference beside it; None if it does not stall more. Stalls of the
    reference are the machine's."""
    new, good = (
        [run.stall_share for run in runs_of(evidence.runs, build) if run.stall_share is not None]
        for build in (Build.CANDIDATE, Build.REFERENCE)
    )
    if not new or not good:
        return screening.stalls
    share, beside = statistics.median(new), statistics.median(good)
    if share <= beside + max(STALL_MARGIN, STALL_SPREADS * max(robust_sigma(new), robust_sigma(good))):
        return None
    return found(Code.STALLS, share=share, most=beside, nights=None)


def losses_of(runs: Sequence[RunEvidence]) -> tuple[float, float] | None:
    """The median losses of the new build and of the reference build; None if they cannot be compared."""
    losses = [[run.loss for run in runs_of(runs, build)] for build in (Build.CANDIDATE, Build.REFERENCE)]
    medians = []
    for of_build in losses:
        known = [loss for loss in of_build if loss is not None and math.isfinite(loss)]
        if not known or len(known) < len(of_build):
            return None
        medians.append(statistics.median(known))
    return medians[0], medians[1]


def work_changed(new: float, good: float) -> bool:
    """Whether two builds with these losses do not train alike."""
    return abs(new - good) > LOSS_TOLERANCE * abs(good)
