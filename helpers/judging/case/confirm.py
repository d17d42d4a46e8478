"""Confirmation: interleaved runs of the reference build and the build under test, same cards, same night. They are
compared with the level of the nights before (helpers.judging.case.level)."""

from __future__ import annotations

import enum
import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from helpers.judging.case.evalue import Direction, evalue, odds_against
from helpers.judging.case.evidence import Build, Evidence, Stage
from helpers.judging.case.level import LEVEL_ERROR, LEVEL_PAIRS, Level, accepted_as_low, level_error, pair_tau
from helpers.judging.case.screen import (
    CLEARLY_NO_DROP,
    STALL_MARGIN,
    STALL_SPREADS,
    SUSPECT_DROP,
    Screening,
    records,
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
    # Nothing was suspected; the pairs measured where the nights stand against the reference build.
    MEASURED = "measured"


def threshold_of(evidence: Evidence) -> float:
    """The e-value that a verdict needs, so that the error rates hold over all of the night's cases together."""
    return THRESHOLD * max(1.0, evidence.cases_tonight / CASES)


@dataclass(frozen=True)
class Confirmation:
    """Whole pairs, compared with ``level``, or with the reference build itself if the level is not known."""

    screening: Screening
    # The level of the nights before against the reference build.
    level: Level
    # Log rates of either build, pair by pair.
    new: tuple[float, ...]
    good: tuple[float, ...]

    @property
    def pairs(self) -> int:
        return len(self.new)

    @property
    def differences(self) -> list[float]:
        """Log rates of the new build minus those of the good one."""
        return [new - good for new, good in zip(self.new, self.good, strict=True)]

    @property
    def from_level(self) -> list[float]:
        """The differences minus the level."""
        return [each - self.level.offset for each in self.differences]

    @property
    def effect(self) -> EffectSize:
        return effect_of(self.from_level, *self._widths)

    @property
    def e_drop(self) -> float:
        """The pairs' e-value for a drop."""
        return evalue(self.from_level, *self._widths)

    @property
    def e_gain(self) -> float:
        """The pairs' e-value for a gain."""
        return evalue(self.from_level, *self._widths, Direction.GAIN)

    @property
    def evidence(self) -> float:
        """The e-value for the likelier direction."""
        return max(self.e_drop, self.e_gain)

    @property
    def threshold(self) -> float:
        return threshold_of(self.screening.case)

    @property
    def error(self) -> float:
        """The standard error of a level that is learned from these pairs alone."""
        return level_error(self.from_level, self.screening.noise)

    @property
    def _widths(self) -> tuple[float, float]:
        """The standard deviations of the differences between pairs, and of the offset that all pairs share."""
        return math.sqrt(2) * self.screening.noise.sigma, pair_tau(self.level)

    @property
    def _measures(self) -> bool:
        """Whether the pairs only serve to learn the level: it is unknown, and nothing is suspected."""
        return not (self.level.known or self.screening.asked or self.screening.unanchored)

    @property
    def _refines(self) -> bool:
        """Whether the pairs only serve to learn the level better, because earlier pairs left it uncertain."""
        settled = not self.level.known or self.level.settled(self.screening.mature)
        return not (settled or self.screening.asked)

    @property
    def so_far(self) -> Finding | None:
        """What the pairs so far show, and what would decide; None before there are enough to look at."""
        if self.pairs < FIRST_LOOK:
            return None
        if self.evidence < SUSPECT_DROP and (self._measures or self._refines):
            return found(Code.LEVEL_SO_FAR, error=self.error)
        return found(
            Code.PAIRS_SO_FAR,
            change=math.expm1(hodges_lehmann(self.from_level)),
            evidence=self.evidence,
            gain=self.e_gain > self.e_drop,
            threshold=self.threshold,
        )

    @cached_property
    def conclusion(self) -> Conclusion | None:
        """What the pairs show; None if more are needed."""
        case, most = self.screening.case, self.screening.case.budget.pairs
        low = self.e_drop < SUSPECT_DROP or accepted_as_low(self.screening, self.new, self.good)
        if low and self._measures:
            conclusion = Conclusion.MEASURED if self._well_known(most) else None
        else:
            # Where nobody accepted so low a level, pairs that look slower are no measure of it: they are to be decided.
            conclusion = self._decided()
        if conclusion is Conclusion.OPEN and self.e_drop < RULED_OUT and self._refines:
            # Nothing was suspected, and the level was known too badly to tell more: it is known better now.
            conclusion = Conclusion.MEASURED
        return None if records(case) and not self._well_known(min(LEVEL_PAIRS, most)) else conclusion

    def _well_known(self, most: int) -> bool:
        """Whether the pairs have measured the level as exactly as counts, or are as many as ``most``."""
        exact = self.pairs >= FIRST_LEVEL and self.error <= self.screening.case.entry.tolerance
        return exact or self.pairs >= most

    def _decided(self) -> Conclusion | None:
        """What the pairs show, if they do not only measure the level; None if more are needed."""
        most = self.screening.case.budget.pairs
        if self.evidence >= self.threshold:
            return Conclusion.SLOWER if self.e_drop > self.e_gain else Conclusion.FASTER
        if self._refines:
            together = 1 / math.hypot(1 / self.level.error, 1 / self.error)
            if together > LEVEL_ERROR and self.pairs < most:
                return None
        if self.evidence < SAME_BELOW:
            return Conclusion.SAME
        # More pairs would hardly help if the level is known so badly that their own scatter no longer counts.
        limited = self.pairs >= FIRST_LIMITED and self.level.error >= LEVEL_OUTWEIGHS * self.error
        last = self.pairs >= most or limited
        if self._no_drop(last):
            return Conclusion.NO_DROP
        return Conclusion.OPEN if last else None

    def _no_drop(self, last: bool) -> bool:
        """Whether more pairs would hardly show a drop, and a drop as large as the band is ruled out.

        The first pairs must speak clearly against a drop, and no gain may be suspected while pairs are left. Later, it
        is enough that a drop explains the pairs no better than no change does. ``last`` says that there will be no
        further pair.
        """
        late = self.pairs >= self.screening.case.budget.pairs * LATE
        if self.e_drop >= (1.0 if last or late else CLEARLY_NO_DROP):
            return False
        if not last and self.screening.gain_suspected and self.e_gain >= CLEARLY_NO_DROP:
            return False
        return odds_against(self.from_level, *self._widths, -math.log1p(-self.screening.case.entry.band)) >= RULED_OUT

    @property
    def stalls(self) -> Finding | None:
        """How much more the new build stalls than the reference beside it; None if it does not stall more. Stalls of
        the reference are the machine's."""
        new, good = (
            [run.stall_share for run in self.screening.case.in_pairs(build) if run.stall_share is not None]
            for build in Build
        )
        if not new or not good:
            return self.screening.stalls
        share, beside = statistics.median(new), statistics.median(good)
        if share <= beside + max(STALL_MARGIN, STALL_SPREADS * max(robust_sigma(new), robust_sigma(good))):
            return None
        return found(Code.STALLS, share=share, most=beside, nights=None)


def confirm(
    screening: Screening, level: Level, candidate: Sequence[float], reference: Sequence[float], why: Finding
) -> Confirmation | NeedRuns:
    """What the pairs so far show, or a request for the runs of the next one.

    ``candidate`` and ``reference`` are the log rates of the usable confirmation runs, in the order they were made.
    """
    whole = min(len(candidate), len(reference))
    pairs = Confirmation(screening, level, tuple(candidate[:whole]), tuple(reference[:whole]))
    if len(candidate) == len(reference) >= FIRST_LOOK and pairs.conclusion is not None:
        return pairs
    request = next_runs(screening.case, len(candidate), len(reference), why)
    return replace(request, why=request.why.by(pairs.so_far))


def next_runs(evidence: Evidence, candidates: int, references: int, why: Finding) -> NeedRuns:
    """The next pair, or the missing run of the pair under way. Orders alternate: AB, BA, AB (A is the reference
    build)."""
    pair = max(candidates, references)
    if candidates != references:
        half = found(Code.HALF_PAIR, why, pair=pair, most=evidence.budget.pairs)
        return NeedRuns((Build.CANDIDATE if candidates < references else Build.REFERENCE,), half, Stage.CONFIRM)
    order = (Build.REFERENCE, Build.CANDIDATE)
    if pair % 2 != _first_order(evidence):
        order = (Build.CANDIDATE, Build.REFERENCE)
    next_pair = found(Code.NEXT_PAIR, why, pair=pair + 1, most=evidence.budget.pairs)
    return NeedRuns(order, next_pair, Stage.CONFIRM)


def _first_order(evidence: Evidence) -> int:
    """0 or 1, chosen by the seed, because the first pair must not always warm the machine for the same build."""
    return hashlib.sha256(f"{evidence.seed}/{evidence.case_id}".encode()).digest()[0] % 2


def losses_of(evidence: Evidence) -> tuple[float, float] | None:
    """The median losses of the new build and of the reference build; None if they cannot be compared."""
    losses = [[run.loss for run in evidence.in_pairs(build)] for build in Build]
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
