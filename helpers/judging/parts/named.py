"""Which of the parts that differ are shown: parts hold each other, and no time may be counted twice. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from helpers.judging.parts.differences import Difference, is_alike
from helpers.judging.parts.kinds import KIND_OF_PHASE
from helpers.judging.parts.step_parts import Grain
from helpers.trainers.contract.step_profile import Phase

# A part that holds others is shown in place of them unless a few of them explain this share of its difference.
_MOST_OF_IT = 0.5
_FEW = 3


def apart(named: Sequence[Difference]) -> tuple[Difference, ...]:
    """Of the named parts those of which none holds another: the most special ones, unless it takes more than a few of
    them to explain most of the part around them."""
    shown: list[Difference] = []
    for level in (Grain.ROW, Grain.OPERATOR, Grain.PHASE):
        for each in sorted(
            (one for one in named if one.part.level is level), key=lambda each: each.absolute_seconds, reverse=True
        ):
            inside = [one for one in shown if each.part.holds(one.part)]
            # The rows of an all-reduce may be beside computation, and then they do not make the step longer.
            if (level is Grain.PHASE and each.part.phase is Phase.ALL_REDUCE) or not _say_enough(inside, each):
                shown = [one for one in shown if one not in inside] + [each]
    return tuple(shown)


def _say_enough(inside: Sequence[Difference], around: Difference) -> bool:
    """Whether the named parts in a part are shown in its place: a few of those that differ as it does explain most of
    it, or one is longer and the whole of it is shorter, which would hide the longer one."""
    whole = around.seconds.mean
    alike = sorted((one.absolute_seconds for one in inside if is_alike(one, around)), reverse=True)
    hidden = whole < 0 and any(one.seconds.mean > 0 for one in inside)
    return hidden or (bool(alike) and math.fsum(alike[:_FEW]) >= _MOST_OF_IT * abs(whole))


def largest_inside(phase: Difference, beyond_chance: Sequence[Difference]) -> Difference | None:
    """The part in a phase that is longer by most, of those beyond chance; None for a part that is no phase. So a phase
    that is shown in place of many parts still tells what came new in it."""
    if phase.part.level is not Grain.PHASE:
        return None
    inside = [each for each in beyond_chance if each.seconds.mean > 0 and phase.part.holds(each.part)]
    return max(inside, key=lambda each: each.seconds.mean, default=None)


def largest_unnamed(unnamed: Sequence[Difference], named: Sequence[Difference], shown: int) -> tuple[Difference, ...]:
    """The largest rows that are in no named part, and phases that have no rows."""
    rows = [
        each
        for each in unnamed
        if (each.part.level is Grain.ROW or (each.part.level is Grain.PHASE and each.part.phase in KIND_OF_PHASE))
        and not any(one.part.holds(each.part) for one in named)
    ]
    return tuple(sorted(rows, key=lambda each: each.absolute_seconds, reverse=True)[:shown])
