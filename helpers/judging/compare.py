"""Compares two builds, dates or sessions of one case, from what history keeps. Pure.

Interleaved pairs of these two builds say most, because whatever the machine did that night, it did to both. If there
are none, nights are compared with nights, and a night counts as one replicate. Nights confirm nothing, so such a
comparison can only have the answers of a session without a good build.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from helpers.judging.compare_sides import Pairing, Side, runs_of_nights, side_of
from helpers.judging.noise import Noise
from helpers.judging.statistics import effect_of, hodges_lehmann
from helpers.judging.verdict import Reason, Standing, Status
from helpers.judging.wording import counted


@dataclass(frozen=True)
class Thresholds:
    """What an answer needs (docs/verdicts.md, "Judge" and "No history")."""

    # The e-value of interleaved pairs, as on a night.
    pairs: float = 1200.0
    # The e-value that separate nights need for each case compared, and that pairs need where more than 60 cases have
    # them. E-values above 20 times the number of cases keep the false alarms over all cases together below 5%.
    per_case: float = 20.0
    # The e-value that separate nights need if a side is a single night: the whole machine may have been slow on it.
    one_night: float = 1200.0
    # With both e-values below this, pairs show the builds to be the same.
    same: float = 0.2
    # Pairs that a drop explains no better than no change does pass if the odds against a drop beyond the band are at
    # least these.
    ruled_out: float = 20.0
    # A drop with evidence from ``clear`` to ``suspect`` is neither shown nor excluded.
    suspect: float = 2.0
    clear: float = 0.7
    # The standard deviation of the difference between two equal builds, in the logarithm.
    offset: float = 3e-4
    # The fewest runs of a side with which separate nights can pass.
    runs: int = 3


THRESHOLDS = Thresholds()
_CAUTION = "the nights differ in more than the build: interleaved runs confirm it (--reference-env)"


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
) -> CaseComparison:
    """B against A.

    ``cases`` is how many cases are compared on this basis at once; the error rate holds over all of them. ``band`` is
    the drop beyond which separate nights fail, because no pairs can confirm it (RecordedReference).
    """
    sides = side_of(pairing.a), side_of(pairing.b)
    empty = CaseComparison(
        pairing.case_id, pairing.target, Status.INCOMPARABLE, Reason("", ""), *sides, rule=rule, tolerance=tolerance
    )
    if not pairing.a or not pairing.b:
        which = "A" if not pairing.a else "B"
        return replace(empty, reason=Reason("one-sided", f"{which} has no usable run of this case"))
    if pairing.differences:
        return _decided(
            empty,
            _from_pairs(pairing, noise),
            max(THRESHOLDS.pairs, THRESHOLDS.per_case * cases),
            ruled_out=_odds_against_band(pairing, noise, band) >= THRESHOLDS.ruled_out,
        )
    if pairing.apart:
        apart = "; ".join(pairing.apart)
        return replace(empty, reason=Reason("other-segment", f"measured in different segments ({apart})"))
    threshold = THRESHOLDS.per_case * cases
    if min(side.nights for side in sides) < 2:
        threshold = max(threshold, THRESHOLDS.one_night)
    found = _from_nights(pairing, noise)
    return _decided(empty, found, threshold, below=all_below(pairing, band))


def all_below(pairing: Pairing, band: float) -> bool:
    """Whether each of B's runs lies below A's level by more than ``band``."""
    level = hodges_lehmann([statistics.fmean(night) for night in runs_of_nights(pairing.a)])
    return all(run.log_rate < level + math.log1p(-band) for run in pairing.b)


@dataclass(frozen=True)
class _Found:
    """The result on one basis: the effect as a fraction with its interval, and the e-values for a drop and for a
    gain."""

    basis: str
    effect: float
    low: float
    high: float
    e_drop: float
    e_gain: float
    pairs: int = 0


def _from_pairs(pairing: Pairing, noise: Noise) -> _Found:
    """docs/verdicts.md, "Judge": evalue(d, √2·σ_run, 3e-4)."""
    found, sigma = pairing.differences, math.sqrt(2) * noise.sigma
    size = effect_of(found, sigma, THRESHOLDS.offset)
    evidence = _both_ways(found, sigma, THRESHOLDS.offset)
    return _Found("pairs", size.point, size.low, size.high, *evidence, pairs=len(found))


def _from_nights(pairing: Pairing, noise: Noise) -> _Found:
    """Each of B's nights compared with the level of A's (docs/verdicts.md, "Judge").

    The offset includes how well that level is known. If B has a single night, its runs are used instead, and the offset
    includes the night's own effect too.
    """
    mine, theirs = runs_of_nights(pairing.a), runs_of_nights(pairing.b)
    spread = night_sigma(noise)
    error_a, error_b = (
        math.sqrt(sum(spread**2 + noise.sigma**2 / len(night) for night in nights)) / len(nights)
        for nights in (mine, theirs)
    )
    before = hodges_lehmann([statistics.fmean(night) for night in mine])
    offset = math.hypot(error_a, THRESHOLDS.offset)
    if len(theirs) == 1:
        after = [rate - before for rate in theirs[0]]
        width = noise.sigma, math.hypot(offset, spread)
    else:
        after = [statistics.fmean(night) - before for night in theirs]
        width = error_b * math.sqrt(len(theirs)), offset
    size, evidence = effect_of(after, *width), _both_ways(after, *width)
    return _Found("nights", size.point, size.low, size.high, *evidence)


def _odds_against_band(pairing: Pairing, noise: Noise, band: float) -> float:
    # Imported here because it loads numpy.
    from helpers.judging.evalue import odds_against

    return odds_against(pairing.differences, math.sqrt(2) * noise.sigma, THRESHOLDS.offset, -math.log1p(-band))


def night_sigma(noise: Noise) -> float:
    """The standard deviation of a night's own effect: ``tau`` without the uncertainty of the centre.

    ``tau`` squared is night² + (π/2)(night² + sigma²)/nights (helpers.judging.noise).
    """
    centre = math.pi / 2 / noise.nights
    return math.sqrt(max(noise.tau**2 - centre * noise.sigma**2, 0.0) / (1 + centre))


def _decided(
    empty: CaseComparison,
    found: _Found,
    threshold: float,
    *,
    below: bool = False,
    ruled_out: bool = False,
) -> CaseComparison:
    answer = replace(empty, **vars(found), threshold=threshold)
    status, code, why = _status(answer, below, ruled_out)
    return replace(answer, status=status, reason=Reason(code, f"{_numbers(answer)}: {why}"))


def _status(answer: CaseComparison, below: bool, ruled_out: bool) -> tuple[Status, str, str]:
    """``below`` says whether each of B's runs lies below A by more than the band, ``ruled_out`` whether pairs exclude
    that."""
    effect, e_drop, e_gain = answer.effect or 0.0, answer.e_drop or 0.0, answer.e_gain or 0.0
    threshold, apart = answer.threshold or math.inf, answer.basis == "nights"
    if e_drop >= threshold and effect < -answer.tolerance:
        if not apart:
            return Status.REGRESSION, "slower", "a drop beyond the tolerance"
        if below and answer.b.runs >= THRESHOLDS.runs and e_drop >= THRESHOLDS.one_night:
            return Status.SLOWER, "slower", f"a drop beyond the band in every run; {_CAUTION}"
        return Status.INCONCLUSIVE, "unconfirmed-drop", f"a drop beyond the tolerance; {_CAUTION}"
    if e_gain >= threshold and effect > answer.tolerance:
        if not apart:
            return Status.IMPROVEMENT, "faster", "a gain beyond the tolerance"
        return Status.PASS, "faster-unconfirmed", f"a gain beyond the tolerance; {_CAUTION}"
    if max(e_drop, e_gain) >= threshold:
        return Status.PASS, "within-tolerance", "a change, within the tolerance"
    if not apart and max(e_drop, e_gain) < THRESHOLDS.same:
        return Status.PASS, "same", "the builds are the same"
    if apart and min(answer.a.runs, answer.b.runs) < THRESHOLDS.runs:
        return Status.INCONCLUSIVE, "too-few-runs", f"fewer than {THRESHOLDS.runs} runs on a side"
    if apart and (e_drop < THRESHOLDS.clear or (e_drop < THRESHOLDS.suspect and effect >= -answer.tolerance)):
        return Status.PASS, "no-drop", f"no drop; one larger than {-(answer.low or 0.0):.1%} is excluded"
    if not apart and (answer.low or 0.0) >= -answer.tolerance:
        return Status.PASS, "no-drop", "a drop beyond the tolerance is excluded"
    if ruled_out and e_drop < 1.0:
        return (
            Status.PASS,
            "no-drop",
            f"no drop, and one beyond the band is ruled out ({THRESHOLDS.ruled_out:.0f} to 1)",
        )
    return Status.INCONCLUSIVE, "open", "neither shown nor excluded: more runs are needed"


def _numbers(answer: CaseComparison) -> str:
    effect, low, high = answer.effect or 0.0, answer.low or 0.0, answer.high or 0.0
    how = f"{answer.pairs} interleaved pairs" if answer.basis == "pairs" else "nights apart"
    counts = ", ".join(
        f"{name} n={side.runs} in {counted(side.nights, 'night')}" for name, side in (("A", answer.a), ("B", answer.b))
    )
    evidence = (
        f"evidence {evidence_text(answer.e_drop)} for a drop, {evidence_text(answer.e_gain)} for a gain "
        f"of the {evidence_text(answer.threshold)} needed"
    )
    return (
        f"{effect:+.2%} [{low:+.2%}, {high:+.2%}] by {how} ({counts}; rule {answer.rule}; {evidence}; "
        f"tolerance {answer.tolerance:.1%})"
    )


def evidence_text(value: float | None) -> str:
    """An e-value in few characters: 0.03, 2.1, 340, 1e+06 and above as >1e6."""
    if value is None:
        return "-"
    if value > 1e6:
        return ">1e6"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _both_ways(values: Sequence[float], sigma: float, tau: float) -> tuple[float, float]:
    # Imported here because it loads numpy, which takes longer than most commands take to answer.
    from helpers.judging.evalue import Direction, evalue

    return evalue(values, sigma, tau), evalue(values, sigma, tau, Direction.GAIN)
