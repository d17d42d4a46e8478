"""Findings that several answers share: tonight's runs against the nights before, the pairs, the recorded figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from helpers.judging.case.evidence import Evidence
from helpers.judging.finding import Code, Figure, Finding, found
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import EffectSize, hodges_lehmann

if TYPE_CHECKING:
    # Not imported at run time: they load numpy, which takes longer than listing the commands.
    from helpers.judging.case.confirm import Confirmation
    from helpers.judging.case.screen import Screening


def figures_of(effect: EffectSize) -> tuple[float, float, float]:
    return effect.point, effect.low, effect.high


def _nights(screening: Screening) -> dict[str, Figure]:
    """The nights with which tonight was compared, and the recorded entry if it counts. ``entry`` is its name."""
    return {
        "nights": screening.known,
        "dates": screening.dates,
        "nodes": screening.noise.nodes,
        "node_spread": screening.noise.node_spread,
        "mature": screening.mature,
        "comparable": screening.case.entry.comparable,
        "entry": screening.case.entry.label if screening.after_entry else None,
    }


def screened(screening: Screening) -> Finding:
    """Tonight's runs alone against the nights before."""
    return found(
        Code.SCREENED,
        effect=figures_of(screening.effect),
        n=len(screening.differences),
        evidence=screening.evidence,
        suspect_from=screening.suspect_from,
        e_drop=screening.e_drop,
        carry=screening.carry,
        **_nights(screening),
    )


def suspected(screening: Screening) -> Finding:
    """Why there were pairs, in short."""
    nights = _nights(screening)
    if screening.drop_suspected:
        return found(Code.SUSPECTED, evidence=screening.evidence, gain=False, **nights)
    if screening.gain_suspected:
        return found(Code.SUSPECTED, evidence=screening.e_gain, gain=True, **nights)
    known = screening.known > 0 or screening.after_entry
    return found(Code.BEFORE_PAIRS, change=screening.effect.point if known else None, **nights)


def paired(confirmation: Confirmation) -> Finding:
    """What the pairs of both builds showed, and with what they were compared."""
    level, case = confirmation.level, confirmation.screening.case
    return found(
        Code.PAIRED,
        effect=figures_of(confirmation.effect),
        build=case.reference_build,
        pairs=confirmation.pairs,
        evidence=confirmation.evidence,
        threshold=confirmation.threshold,
        tolerance=case.entry.tolerance,
        # None: the reference build itself, because the level is not known.
        level=math.expm1(level.offset) if level.known else None,
        level_error=level.error,
        level_pairs=level.pairs,
        itself=math.expm1(hodges_lehmann(confirmation.differences)),
    )


def beside_recorded(evidence: Evidence, measured: float, differences: tuple[str, ...]) -> Finding:
    """``measured`` (samples/s) beside the recorded figure, and in what they differ beside the build."""
    return found(
        Code.BESIDE_RECORDED,
        measured=measured,
        unit=rate_unit(evidence.case_id),
        recorded=evidence.entry.samples_per_s,
        label=evidence.entry.label,
        rule=evidence.entry.rule,
        n=len(evidence.screened),
        differences=differences,
    )


def would_have_found(smallest: float, *, confirmed: bool) -> Finding:
    """The smallest drop that tonight would have shown with 80% power."""
    return found(Code.SMALLEST_DROP, drop=smallest, confirmed=confirmed)
