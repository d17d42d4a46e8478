"""Which operators all runs of one build call more often than all runs of the other.

On a CPU a count hardly differs from run to run, so it tells a change of the graph whose time is too short to be beyond
chance. On a card a profile counts kernels, and its library may choose others in each run: these are left out. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from helpers.judging.profile_differences import Difference
from helpers.judging.profile_parts import Amount, Compared, Part, ProfiledPair, compared_operators, mean_amount

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
    found = [
        CallCount(each.part, mean_amount(each.reference), mean_amount(each.candidate))
        for each in compared_operators(pairs)
        if _are_apart(each)
    ]
    found = [each for each in found if not _is_told(each, named)]
    return tuple(sorted(found, key=lambda each: -abs(each.longer_seconds)))


def _are_apart(operator: Compared) -> bool:
    old, new = ([each.calls for each in side] for side in (operator.reference, operator.candidate))
    return max(old) + _ROUNDING < min(new) or max(new) + _ROUNDING < min(old)


def _is_told(count: CallCount, named: Collection[Difference]) -> bool:
    """Whether a named change has the operator, or the named parts of it have all of its new calls."""
    near = [each for each in named if each.part.phase is count.part.phase]
    if any(count.part.operator in (*each.part.gone, *each.part.came) for each in near):
        return True
    own = [each for each in near if each.part.operator == count.part.operator]
    told = math.fsum(each.candidate.calls - each.reference.calls for each in own)
    return bool(own) and abs(told - (count.candidate.calls - count.reference.calls)) < _ROUNDING
