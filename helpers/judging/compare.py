"""Compares two builds, dates or sessions of one case, from what history keeps. Pure.

Interleaved pairs of these two builds say most, because whatever the machine did that night, it did to both. They are
decided as a night decides them (helpers.judging.confirm), in whatever the stacks of the two builds differ. If there are
none, nights are compared with nights, and a night counts as one replicate. Nights confirm nothing, so such a comparison
can only have the answers of a session without a good build.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from helpers.judging.compare_sides import Pairing, Side, runs_of_nights, side_of
from helpers.judging.evidence import Budget, Evidence, RecordedReference
from helpers.judging.noise import Noise
from helpers.judging.statistics import effect_of, hodges_lehmann
from helpers.judging.verdict import Reason, Standing, Status
from helpers.judging.wording import counted, first_few

if TYPE_CHECKING:
    # Not imported at run time before something is compared: they load numpy, which takes longer than most commands
    # take to answer.
    from helpers.judging.confirm import Confirmation
    from helpers.judging.level import Level

_CAUTION = "the nights differ in more than the build: interleaved runs confirm it (--reference-env)"
_ASIDE = (
    "run them in turn on the same cards, and pairs decide whatever else differs: "
    "pytest perf_tests --build B --reference-build A"
)


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
    # The smallest effect that counts, as a fraction.
    tolerance: float
    # ``pairs`` or ``nights``; empty if nothing was compared.
    basis: str = ""
    pairs: int = 0
    # B's change as a fraction (-0.02 is 2% slower), with its 95% interval.
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    # The e-values for a drop and for a gain, and what they have to reach.
    e_drop: float | None = None
    e_gain: float | None = None
    threshold: float | None = None

    def of_standing(self, standing: Standing | None) -> CaseComparison:
        """The comparison with the numbers of a night's verdict; unchanged if that has none."""
        if standing is None:
            return self
        slower = (standing.effect or 0.0) < 0
        return replace(
            self,
            basis="pairs" if standing.pairs else "nights",
            pairs=standing.pairs,
            effect=standing.effect,
            low=standing.low,
            high=standing.high,
            e_drop=standing.e_drop if not standing.pairs else standing.e_confirm if slower else None,
            e_gain=standing.e_confirm if standing.pairs and not slower else None,
        )


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
        pairing.case_id, pairing.target, Status.INCOMPARABLE, Reason("", ""), *sides, rule=rule, tolerance=tolerance
    )
    if not pairing.a or not pairing.b:
        which = "A" if not pairing.a else "B"
        return replace(empty, reason=Reason("one-sided", f"{which} has no usable run of this case"))
    if pairing.pairs:
        return _of_pairs(empty, pairing, _confirmed(pairing, noise, empty, band, cases, level))
    if pairing.apart:
        message = f"not of one stack and protocol ({'; '.join(pairing.apart)}): {_ASIDE}"
        return replace(empty, reason=Reason("other-segment", message))
    return _of_nights(empty, pairing, noise, band, cases)


def _confirmed(
    pairing: Pairing, noise: Noise, empty: CaseComparison, band: float, cases: int, level: Level | None
) -> Confirmation:
    """What the pairs show by the rules of a night that has no time for more."""
    from helpers.judging.confirm import Confirmation, confirm
    from helpers.judging.level import Level
    from helpers.judging.screen import Screening

    old, new = zip(*pairing.pairs, strict=True)
    evidence = Evidence(
        pairing.case_id,
        empty.rule,
        planned_runs=1,
        recorded=RecordedReference(empty.a.samples_per_s or 1.0, empty.rule, "A", empty.tolerance, band=band),
        budget=Budget(pairs=len(pairing.pairs)),
        # So no pair is taken for one that only measures the level.
        suspicion="compared",
        cases_tonight=cases,
    )
    screening = Screening((), noise, noise.nights, (), carry=1.0, e_drop=1.0, e_gain=1.0)
    found = confirm(evidence, screening, level or Level(), new, old, "compared")
    assert isinstance(found, Confirmation), "all pairs that the budget allows are made"
    return found


def _of_pairs(empty: CaseComparison, pairing: Pairing, found: Confirmation) -> CaseComparison:
    from helpers.judging.confirm import RULED_OUT, Conclusion

    slower = found.e_drop >= found.evidence
    answer = replace(
        empty,
        basis="pairs",
        pairs=found.pairs,
        effect=found.effect.point,
        low=found.effect.low,
        high=found.effect.high,
        e_drop=found.e_drop,
        e_gain=None if slower else found.evidence,
        threshold=found.threshold,
    )
    beyond = abs(found.effect.point) > empty.tolerance
    than = "the nights before" if found.level.known else "A"
    status, code, why = {
        Conclusion.SLOWER: (Status.REGRESSION, "slower", f"slower than {than}, beyond the tolerance"),
        Conclusion.FASTER: (Status.IMPROVEMENT, "faster", f"faster than {than}, beyond the tolerance"),
        Conclusion.SAME: (Status.PASS, "same", f"as fast as {than}"),
        Conclusion.NO_DROP: (
            Status.PASS,
            "no-drop",
            f"no drop, and one beyond the band is ruled out ({RULED_OUT:.0f} to 1)",
        ),
    }.get(found.conclusion, (Status.INCONCLUSIVE, "open", "neither shown nor excluded: more pairs are needed"))
    if status in (Status.REGRESSION, Status.IMPROVEMENT) and not beyond:
        status, code, why = Status.PASS, "within-tolerance", "a change, within the tolerance"
    differ = f"; A and B differ in more than the build: {first_few(pairing.apart)}" if pairing.apart else ""
    return replace(answer, status=status, reason=Reason(code, f"{_numbers(answer, found)}: {why}{differ}"))


def all_below(pairing: Pairing, band: float) -> bool:
    """Whether each of B's runs lies below A's level by more than ``band``."""
    level = hodges_lehmann([statistics.fmean(night) for night in runs_of_nights(pairing.a)])
    return all(run.log_rate < level + math.log1p(-band) for run in pairing.b)


def _of_nights(empty: CaseComparison, pairing: Pairing, noise: Noise, band: float, cases: int) -> CaseComparison:
    """Each of B's nights compared with the level of A's (docs/verdicts.md, "Judge").

    The offset includes how well that level is known. If B has a single night, its runs are used instead, and the offset
    includes the night's own effect too.
    """
    from helpers.judging.confirm import CASES, THRESHOLD
    from helpers.judging.evalue import Direction, evalue
    from helpers.judging.level import PAIR_TAU

    # E-values above 20 times the number of cases keep the false alarms over all cases together below 5%. On a single
    # night the whole machine may have been slow, so it needs what a night needs.
    threshold = THRESHOLD * cases / CASES
    if min(empty.a.nights, empty.b.nights) < 2:
        threshold = max(threshold, THRESHOLD)
    mine, theirs = runs_of_nights(pairing.a), runs_of_nights(pairing.b)
    spread = night_sigma(noise)
    error_a, error_b = (
        math.sqrt(sum(spread**2 + noise.sigma**2 / len(night) for night in nights)) / len(nights)
        for nights in (mine, theirs)
    )
    before = hodges_lehmann([statistics.fmean(night) for night in mine])
    offset = math.hypot(error_a, PAIR_TAU)
    if len(theirs) == 1:
        after = [rate - before for rate in theirs[0]]
        width = noise.sigma, math.hypot(offset, spread)
    else:
        after = [statistics.fmean(night) - before for night in theirs]
        width = error_b * math.sqrt(len(theirs)), offset
    size = effect_of(after, *width)
    e_drop, e_gain = (evalue(after, *width, direction) for direction in Direction)
    answer = replace(
        empty,
        basis="nights",
        effect=size.point,
        low=size.low,
        high=size.high,
        e_drop=e_drop,
        e_gain=e_gain,
        threshold=threshold,
    )
    status, code, why = _status(answer, e_drop, e_gain, all_below(pairing, band))
    return replace(answer, status=status, reason=Reason(code, f"{_numbers(answer)}: {why}"))


def night_sigma(noise: Noise) -> float:
    """The standard deviation of a night's own effect: ``tau`` without the uncertainty of the centre.

    ``tau`` squared is night² + (π/2)(night² + sigma²)/nights (helpers.judging.noise).
    """
    centre = math.pi / 2 / noise.nights
    return math.sqrt(max(noise.tau**2 - centre * noise.sigma**2, 0.0) / (1 + centre))


def _status(answer: CaseComparison, e_drop: float, e_gain: float, below: bool) -> tuple[Status, str, str]:
    """The answer of separate nights; ``below`` says whether each of B's runs lies below A by more than the band."""
    from helpers.judging.answers import SLOWER_RUNS
    from helpers.judging.confirm import THRESHOLD
    from helpers.judging.screen import AMBIGUOUS_FROM, SUSPECT_DROP

    effect, threshold = answer.effect or 0.0, answer.threshold or math.inf
    if e_drop >= threshold and effect < -answer.tolerance:
        if below and answer.b.runs >= SLOWER_RUNS and e_drop >= THRESHOLD:
            return Status.SLOWER, "slower", f"a drop beyond the band in every run; {_CAUTION}"
        return Status.INCONCLUSIVE, "unconfirmed-drop", f"a drop beyond the tolerance; {_CAUTION}"
    if e_gain >= threshold and effect > answer.tolerance:
        return Status.PASS, "faster-unconfirmed", f"a gain beyond the tolerance; {_CAUTION}"
    if max(e_drop, e_gain) >= threshold:
        return Status.PASS, "within-tolerance", "a change, within the tolerance"
    if min(answer.a.runs, answer.b.runs) < SLOWER_RUNS:
        return Status.INCONCLUSIVE, "too-few-runs", f"fewer than {SLOWER_RUNS} runs on a side"
    # What a night would ask another run for is open, until there are as many runs as it asks for.
    settled = answer.b.runs >= Budget().screen_runs or effect >= -answer.tolerance
    if e_drop < AMBIGUOUS_FROM or (e_drop < SUSPECT_DROP and settled):
        return Status.PASS, "no-drop", f"no drop; one larger than {-(answer.low or 0.0):.1%} is excluded"
    return Status.INCONCLUSIVE, "open", "neither shown nor excluded: more runs are needed"


def _numbers(answer: CaseComparison, by_pairs: Confirmation | None = None) -> str:
    effect, low, high = answer.effect or 0.0, answer.low or 0.0, answer.high or 0.0
    how = "nights apart" if by_pairs is None else f"{answer.pairs} interleaved pairs{_level_text(by_pairs)}"
    counts = ", ".join(
        f"{name} n={side.runs} in {counted(side.nights, 'night')}" for name, side in (("A", answer.a), ("B", answer.b))
    )
    gain = "" if answer.e_gain is None else f", {evidence_text(answer.e_gain)} for a gain"
    evidence = (
        f"evidence {evidence_text(answer.e_drop)} for a drop{gain} of the {evidence_text(answer.threshold)} needed"
    )
    return (
        f"{effect:+.2%} [{low:+.2%}, {high:+.2%}] by {how} ({counts}; rule {answer.rule}; {evidence}; "
        f"tolerance {answer.tolerance:.1%})"
    )


def _level_text(found: Confirmation) -> str:
    """With what the pairs were compared, if that is not A itself."""
    if not found.level.known or not (found.level.offset or found.level.error):
        return ""
    where, itself = math.expm1(found.level.offset), math.expm1(hodges_lehmann(found.differences))
    return (
        f" at the level of the nights before ({where:+.2%} against A, from {counted(found.level.pairs, 'pair')}; B is "
        f"{itself:+.2%} against A itself)"
    )


def evidence_text(value: float | None) -> str:
    """An e-value in few characters: 0.03, 2.1, 340, 1e+06 and above as >1e6."""
    if value is None:
        return "-"
    if value > 1e6:
        return ">1e6"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
