"""A verdict's numbers in words: effect, 95% interval, n, rule, evidence, threshold, and what it was compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from helpers.judging.evidence import Evidence, RecordedReference
from helpers.judging.noise import KNOWN_NIGHTS
from helpers.judging.rates import rate_unit
from helpers.judging.rules import MEDIAN_STEP
from helpers.judging.statistics import EffectSize, hodges_lehmann, number

if TYPE_CHECKING:
    # Not imported at run time: they load numpy, which takes longer than listing the commands.
    from helpers.judging.confirm import Confirmation
    from helpers.judging.screen import Screening


def counted(count: int, one: str, more: str = "") -> str:
    """``1 log``, ``2 logs``; ``more`` is the plural where it is not made with an s."""
    return f"{count} {one if count == 1 else more or f'{one}s'}"


def screened(evidence: Evidence, screening: Screening) -> str:
    """Tonight's runs alone against the nights before."""
    how = f"evidence {strength(screening.evidence)} of a drop (suspect from {screening.suspect_from:g}"
    if screening.carry > 1:
        how += f"; {strength(screening.e_drop)} tonight x {strength(screening.carry)} carried"
    n = len(screening.differences)
    return f"{effect(screening.effect)}, n={n} by {MEDIAN_STEP}, {how}), against {nights(evidence, screening)}"


def suspected(evidence: Evidence, screening: Screening) -> str:
    """Why there were pairs, in short."""
    against = f"against {nights(evidence, screening)}"
    if screening.drop_suspected:
        return f"suspected at evidence {strength(screening.evidence)} {against}"
    if screening.gain_suspected:
        return f"suspected at evidence {strength(screening.e_gain)} of a gain {against}"
    alone = f"{screening.effect.point:+.2%} before the pairs {against}" if screening.known else "no night before"
    if screening.after_entry:
        alone = f"{screening.effect.point:+.2%} before the pairs {against}"
    return f"{evidence.suspicion}; {alone}" if evidence.suspicion else alone


def paired(evidence: Evidence, recorded: RecordedReference, confirmation: Confirmation) -> str:
    """What the pairs of both builds showed."""
    return (
        f"{effect(confirmation.effect)} against {evidence.reference_build}{_level(confirmation)}, "
        f"n={confirmation.pairs} interleaved pairs by {MEDIAN_STEP}, evidence {strength(confirmation.evidence)} "
        f"(threshold {confirmation.threshold:.0f}, tolerance {recorded.tolerance:.1%})"
    )


def beside_recorded(evidence: Evidence, recorded: RecordedReference, measured: float, runs: int) -> str:
    """The plain ratio of ``measured`` (samples/s) to the recorded figure, and in what they differ beside the build."""
    apart = f"; recorded in another segment ({first_few(recorded.differences)})" if recorded.differences else ""
    return (
        f"{number(measured)} {rate_unit(evidence.case_id)} is {measured / recorded.samples_per_s - 1:+.1%} against the "
        f"recorded {number(recorded.samples_per_s)} ({recorded.label}; by {recorded.rule}; n={runs}){apart}"
    )


def _level(confirmation: Confirmation) -> str:
    """What the pairs were compared with besides the good build itself; empty if nothing is to be added."""
    level = confirmation.level
    if not level.known:
        found = math.expm1(hodges_lehmann(confirmation.differences))
        return f" itself (how far the nights before stand from it is not known; tonight {found:+.2%})"
    if not level.error:
        return ""
    where = math.expm1(level.offset)
    return f" at the level of the nights before ({where:+.2%} against it, from {level.pairs} pairs)"


def _pool(screening: Screening) -> str:
    """How far the nodes of a pool differ; empty if there is no pool."""
    noise = screening.noise
    if not noise.nodes:
        return ""
    seen = counted(noise.nodes, "node")
    return f" on {seen} of a pool, whose nodes are {noise.node_spread:.1%} apart (standard deviation)"


def nights(evidence: Evidence, screening: Screening) -> str:
    """The nights with which tonight was compared, and the recorded entry if it counts."""
    dates = f" ({' to '.join(screening.dates)})" if screening.dates else ""
    count = f"{counted(screening.known, 'night')}{dates}{_pool(screening)}"
    if evidence.recorded is None or not evidence.recorded.comparable:
        return f"{count} on this stack"
    if screening.mature:
        return count
    if not screening.after_entry:
        return f"{count} since the new segment began; {KNOWN_NIGHTS} make a history"
    label = evidence.recorded.label
    return f"{label} and {count}; {KNOWN_NIGHTS} make a history" if screening.known else f"{label} alone"


def effect(found: EffectSize) -> str:
    return f"{found.point:+.2%} (95% {found.low:+.2%} to {found.high:+.2%})"


def strength(evalue: float) -> str:
    """An e-value with two digits, as a power of ten if it is large."""
    return f"{evalue:.2g}" if evalue < 100 or evalue >= 1e5 else f"{evalue:.0f}"


def would_have_found(smallest: float, *, confirmed: bool) -> str:
    """The smallest drop that tonight would have shown with 80% power."""
    how = "found" if confirmed else "seen"
    from helpers.judging.power import LARGEST_REPORTED

    if smallest >= LARGEST_REPORTED:
        return f"not even a drop of {LARGEST_REPORTED:.0%} would have been {how} (80% power)"
    return f"a drop of {smallest:.1%} would have been {how} (80% power)"


def first_few(texts: Sequence[str], shown: int = 5) -> str:
    left = len(texts) - shown
    return "; ".join(texts[:shown]) + (f"; and {left} more" if left > 0 else "")
