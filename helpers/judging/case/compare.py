"""Compares two builds, dates or sessions of one case, from what history keeps. Pure.

Interleaved pairs of these two builds say most, because whatever the machine did that night, it did to both. They are
decided as a night decides them (case.confirm), in whatever the stacks of the two builds differ. If there are
none, B's runs are judged against the level of A's nights as a session without a reference build judges them. Nights
confirm nothing, so such a comparison can only have the answers of such a session.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from helpers.judging.case.compare_sides import Pairing, Side, runs_of_nights, side_of
from helpers.judging.case.evidence import Budget, Evidence, RecordedReference
from helpers.judging.case.noise import Noise
from helpers.judging.case.shown import figures_of
from helpers.judging.case.verdict import Reason, Standing, Status
from helpers.judging.finding import Code, Finding, found
from helpers.judging.statistics import EffectSize, hodges_lehmann

if TYPE_CHECKING:
    # Not imported at run time before something is compared: they load numpy, which takes longer than most commands
    # take to answer.
    from helpers.judging.case.confirm import Confirmation
    from helpers.judging.case.level import Level


@dataclass(frozen=True)
class CaseComparison:
    """B compared with A for one case."""

    case_id: str
    target: str
    status: Status
    reason: Reason
    a: Side
    b: Side
    rule: str
    # The smallest effect that counts, as a fraction: that of the night that decided, as its reason or what was recorded
    # states it; else today's.
    tolerance: float
    # ``pairs`` or ``nights``; empty if nothing was compared.
    basis: str = ""
    pairs: int = 0
    # B's change as a fraction (-0.02 is 2% slower), with its 95% interval.
    effect: EffectSize | None = None
    # The e-values for a drop and for a gain, and what they have to reach.
    e_drop: float | None = None
    e_gain: float | None = None
    threshold: float | None = None

    @property
    def change(self) -> float | None:
        """B's change as a fraction: the effect; without one, that of the sides' medians, if they are compared."""
        if self.effect is not None or not self.basis:
            return None if self.effect is None else self.effect.point
        return (self.b.samples_per_s or math.nan) / (self.a.samples_per_s or math.nan) - 1

    def of_standing(self, standing: Standing | None) -> CaseComparison:
        """The comparison with the numbers of a night's verdict; unchanged if that has none."""
        if standing is None:
            return self
        nights = replace(self, basis="nights", effect=standing.effect, e_drop=standing.e_drop)
        if (pairs := standing.pairs) is None:
            return nights
        slower = standing.effect is not None and standing.effect.point < 0
        e_drop, e_gain = (pairs.evidence, None) if slower else (None, pairs.evidence)
        return replace(nights, basis="pairs", pairs=pairs.count, e_drop=e_drop, e_gain=e_gain)


def compare(
    pairing: Pairing,
    noise: Noise,
    *,
    tolerance: float,
    band: float,
    rule: str,
    cases: int,
    level: Level | None = None,
) -> CaseComparison:
    """B against A.

    ``cases`` is how many cases are compared on this basis at once; the error rate holds over all of them. ``band`` is
    the drop beyond which separate nights fail, because no pairs can confirm it (RecordedReference). ``level`` is that
    of the nights before against A, with which pairs are compared; without it, with A itself.
    """
    sides = side_of(pairing.a), side_of(pairing.b)
    empty = CaseComparison(
        pairing.case_id, pairing.target, Status.INCOMPARABLE, Reason(""), *sides, rule=rule, tolerance=tolerance
    )
    if not pairing.a or not pairing.b:
        return replace(empty, reason=Reason.of(found(Code.ONE_SIDED, side="B" if pairing.a else "A")))
    if pairing.pairs:
        return _of_pairs(empty, pairing, _confirmed(pairing, noise, empty, band, cases, level))
    if pairing.apart:
        apart = found(Code.OTHER_STACK, differences=pairing.apart)
        return replace(empty, reason=Reason.of(apart, code=Code.OTHER_SEGMENT))
    return _of_nights(empty, pairing, noise, band, cases)


def _confirmed(
    pairing: Pairing, noise: Noise, empty: CaseComparison, band: float, cases: int, level: Level | None
) -> Confirmation:
    """What the pairs show by the rules of a night that has no time for more."""
    from helpers.judging.case.confirm import Confirmation, confirm
    from helpers.judging.case.level import Level
    from helpers.judging.case.screen import Screening

    old, new = zip(*pairing.pairs, strict=True)
    evidence = Evidence(
        pairing.case_id,
        empty.rule,
        planned_runs=1,
        recorded=RecordedReference(empty.a.samples_per_s or 1.0, empty.rule, "A", empty.tolerance, band=band),
        budget=Budget(pairs=len(pairing.pairs)),
        # So no pair is taken for one that only measures the level.
        suspicion=found(Code.COMPARED),
        cases_tonight=cases,
    )
    shown = confirm(Screening(evidence, (), noise, noise.nights), level or Level(), new, old, found(Code.COMPARED))
    assert isinstance(shown, Confirmation), "all pairs that the budget allows are made"
    return shown


def _of_pairs(empty: CaseComparison, pairing: Pairing, shown: Confirmation) -> CaseComparison:
    from helpers.judging.case.confirm import RULED_OUT, Conclusion

    slower = shown.e_drop >= shown.evidence
    answer = replace(
        empty,
        basis="pairs",
        pairs=shown.pairs,
        effect=shown.effect,
        e_drop=shown.e_drop,
        e_gain=None if slower else shown.evidence,
        threshold=shown.threshold,
    )
    status, code = {
        Conclusion.SLOWER: (Status.REGRESSION, Code.COMPARED_SLOWER),
        Conclusion.FASTER: (Status.IMPROVEMENT, Code.COMPARED_FASTER),
        Conclusion.SAME: (Status.PASS, Code.COMPARED_SAME),
        Conclusion.NO_DROP: (Status.PASS, Code.COMPARED_NO_DROP),
    }.get(shown.conclusion or Conclusion.OPEN, (Status.INCONCLUSIVE, Code.COMPARED_OPEN))
    if status in (Status.REGRESSION, Status.IMPROVEMENT) and abs(shown.effect.point) <= empty.tolerance:
        status, code = Status.PASS, Code.WITHIN_TOLERANCE
    claim = found(code, _numbers(answer, shown), level=shown.level.known, odds=RULED_OUT)
    apart = found(Code.SIDES_DIFFER, differences=pairing.apart) if pairing.apart else None
    stable = Code.NO_DROP if code is Code.COMPARED_NO_DROP else code
    return replace(answer, status=status, reason=Reason.of(claim, apart, code=stable))


def _of_nights(empty: CaseComparison, pairing: Pairing, noise: Noise, band: float, cases: int) -> CaseComparison:
    """B's runs judged as a night without a reference build would be, against the level of A's nights.

    How well that level is known is part of the night's own offset. A log names neither its machine nor its stack, so a
    comparison with one fails nothing. A log is a single run, and the noise of other runs is not its own, so with fewer
    than SLOWER_RUNS on a side it has no interval.
    """
    from helpers.judging.case.answers import SLOWER_RUNS, alone
    from helpers.judging.case.confirm import threshold_of
    from helpers.judging.case.power import Detection, smallest_drop
    from helpers.judging.case.screen import Screening

    few = min(empty.a.runs, empty.b.runs) < SLOWER_RUNS
    if few and pairing.is_with_logs:
        reason = Reason.of(found(Code.TOO_FEW_RUNS, found(Code.NIGHTS_APART), needed=SLOWER_RUNS))
        return replace(empty, basis="nights", status=Status.INCONCLUSIVE, reason=reason)
    nights = runs_of_nights(pairing.a)
    level = hodges_lehmann([statistics.fmean(night) for night in nights])
    known = math.hypot(noise.tau / math.sqrt(len(nights)), noise.sigma / math.sqrt(len(pairing.a)))
    noise = replace(noise, centre=level, tau=math.hypot(noise.tau, known))
    differences = tuple(run.log_rate - level for run in pairing.b)
    rate, gates = math.exp(level), not pairing.is_with_logs
    band = max(band, empty.tolerance)
    recorded = RecordedReference(rate, empty.rule, "A", empty.tolerance, gates=gates, band=band)
    evidence = Evidence(pairing.case_id, empty.rule, 1, recorded=recorded, cases_tonight=cases)
    screening = Screening(evidence, differences, noise, noise.nights)
    runs, threshold = len(differences), threshold_of(evidence)
    smallest = smallest_drop(Detection(noise.sigma, noise.tau, runs, runs, 0, threshold, empty.tolerance))
    answer = alone(screening, smallest)
    status, reason = answer.status, Reason.of(*answer.reason.findings, found(Code.NIGHTS_APART), code=answer.code)
    if status is Status.PASS and few:
        status = Status.INCONCLUSIVE
        reason = Reason.of(found(Code.TOO_FEW_RUNS, *reason.findings, needed=SLOWER_RUNS))
    return replace(
        empty,
        basis="nights",
        effect=screening.effect,
        e_drop=screening.e_drop,
        e_gain=screening.e_gain,
        threshold=threshold,
        status=status,
        reason=reason,
    )


def _numbers(answer: CaseComparison, shown: Confirmation) -> Finding:
    level = shown.level
    at_level = level.known and bool(level.offset or level.error)
    return found(
        Code.COMPARED_PAIRS,
        effect=figures_of(shown.effect),
        pairs=shown.pairs,
        a=(answer.a.runs, answer.a.nights),
        b=(answer.b.runs, answer.b.nights),
        rule=answer.rule,
        e_drop=answer.e_drop,
        e_gain=answer.e_gain,
        threshold=answer.threshold,
        tolerance=answer.tolerance,
        level=math.expm1(level.offset) if at_level else None,
        level_error=level.error,
        itself=math.expm1(hodges_lehmann(shown.differences)),
    )
