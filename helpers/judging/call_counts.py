"""Which operators all runs of one build call more often than all runs of the other.

On a CPU a count hardly differs from run to run, so it tells a change of the graph whose time is too short to be beyond
chance. On a card a profile counts kernels, and its library may choose others in each run: these are left out. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from helpers.judging.profile_differences import Difference
from helpers.judging.profile_parts import Amount, Level, Part, ProfiledPair, ProfiledRun
from helpers.trainers.contract.step_profile import HOST

_CPU = "cpu"
# Sums of the same counts in another order differ by less, in calls per step.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class CallCount:
    """An operator over all layers, with the means over each build's runs of its calls and seconds per step."""

    part: Part
    reference: Amount
    candidate: Amount

    @property
    def longer_seconds(self) -> float:
        """As measured, not beside the speed that the runs share."""
        return self.candidate.seconds - self.reference.seconds


def call_counts(pairs: Sequence[ProfiledPair], named: Collection[Difference]) -> tuple[CallCount, ...]:
    """The operators whose calls differ between all runs of the builds, and of which no named part says so. The first is
    the one whose time differs most."""
    reference = [_amounts(pair.reference) for pair in pairs]
    candidate = [_amounts(pair.candidate) for pair in pairs]
    found = []
    for part in dict.fromkeys(part for run in (*reference, *candidate) for part in run):
        old, new = ([run.get(part, Amount()) for run in side] for side in (reference, candidate))
        count = CallCount(part, _mean(old), _mean(new))
        if _are_apart(old, new) and not _is_told(count, named):
            found.append(count)
    return tuple(sorted(found, key=lambda each: -abs(each.longer_seconds)))


def _are_apart(old: Sequence[Amount], new: Sequence[Amount]) -> bool:
    olds, news = [each.calls for each in old], [each.calls for each in new]
    return max(olds) + _ROUNDING < min(news) or max(news) + _ROUNDING < min(olds)


def _is_told(count: CallCount, named: Collection[Difference]) -> bool:
    """Whether a named change has the operator, or the named parts of it have all of its new calls."""
    near = [each for each in named if each.part.phase is count.part.phase]
    if any(count.part.operator in (*each.part.gone, *each.part.came) for each in near):
        return True
    own = [each for each in near if each.part.operator == count.part.operator]
    told = math.fsum(each.candidate.calls - each.reference.calls for each in own)
    return bool(own) and abs(told - (count.candidate.calls - count.reference.calls)) < _ROUNDING


def _amounts(run: ProfiledRun) -> Mapping[Part, Amount]:
    """Of each operator, the means over all ranks."""
    of_ranks: dict[Part, list[tuple[float, float]]] = defaultdict(list)
    for profile in run.profiles:
        for row in profile.operators:
            if row.operator != HOST and row.device == _CPU:
                part = Part(Level.OPERATOR, row.phase, operator=row.operator)
                of_ranks[part].append((row.seconds_per_step, row.calls_per_step))
    ranks = len(run.profiles)
    return {part: Amount(*(sum(each) / ranks for each in zip(*rows, strict=True))) for part, rows in of_ranks.items()}


def _mean(amounts: Sequence[Amount]) -> Amount:
    return Amount(statistics.fmean(each.seconds for each in amounts), statistics.fmean(each.calls for each in amounts))
