"""Which of the parts that differ are shown: parts hold each other, and no time may be counted twice. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from helpers.judging.kinds import KIND_OF_PHASE, Kind
from helpers.judging.profile_differences import Difference, is_alike
from helpers.judging.profile_parts import Level, Part
from helpers.trainers.contract.step_profile import Phase

# A part that holds others is shown in place of them unless a few of them explain this share of its difference.
_MOST_OF_IT = 0.5
_FEW = 3


def apart(named: Sequence[Difference], rows: Sequence[Part]) -> tuple[Difference, ...]:
    """Of the named parts those of which none holds another: the most special ones, unless it takes more than a few of
    them to explain most of the part around them, or that part says more: that one operator came for another, or that
    several kernels of an operator differ in the same way. The all-reduce as a whole is shown in place of its rows, but
    not in place of its phase, which makes the step longer."""
    shown: list[Difference] = []
    for level in (Level.ROW, Level.CALL, Level.CHANGE, Level.OPERATOR, Level.PHASE):
        for each in sorted(
            (one for one in named if one.part.level is level), key=lambda each: each.absolute_seconds, reverse=True
        ):
            inside = [one for one in shown if each.part.holds(one.part)]
            # The rows of an all-reduce may be beside computation, and then they do not make the step longer.
            whole = level is Level.CHANGE or (level is Level.PHASE and each.part.phase is Phase.ALL_REDUCE)
            says_more = whole or _differs_as_one(each, inside) or not _say_enough(inside, each)
            if not says_more or any(_overlap(each.part, one.part, rows) for one in shown):
                continue
            shown = [one for one in shown if one not in inside] + [each]
    for each in (one for one in named if one.part.level is Level.REDUCTION):
        same = [one for one in shown if each.part.holds(one.part) and is_alike(one, each) and one.kind is each.kind]
        if not any(one.part.level is Level.PHASE for one in same):
            shown = [one for one in shown if one not in same] + [each]
    return tuple(shown)


def _say_enough(inside: Sequence[Difference], around: Difference) -> bool:
    """Whether the named parts in a part are shown in its place: a few of those that differ as it does explain most of
    it, or one is longer and the whole of it is shorter, which would hide the longer one."""
    whole = around.seconds.mean
    alike = sorted((one.absolute_seconds for one in inside if is_alike(one, around)), reverse=True)
    hidden = whole < 0 and any(one.seconds.mean > 0 for one in inside)
    return hidden or (bool(alike) and math.fsum(alike[:_FEW]) >= _MOST_OF_IT * abs(whole))


def _differs_as_one(call: Difference, kernels: Sequence[Difference]) -> bool:
    """Whether several kernels of an operator differ in the same way as all of it: it is slower, or called more often.
    An operator that is new or gone is so with whatever kernels it has."""
    if call.part.level is not Level.CALL or len(kernels) < 2 or not all(is_alike(each, call) for each in kernels):
        return False
    return call.kind in (Kind.NEW, Kind.MOVED, Kind.GONE) or {each.kind for each in kernels} == {call.kind}


def _overlap(one: Part, other: Part, rows: Sequence[Part]) -> bool:
    """Whether some time would be counted twice: an operator over all layers, and a change in some of them."""
    if {one.level, other.level} != {Level.OPERATOR, Level.CHANGE}:
        return False
    return any(one.holds(row) and other.holds(row) for row in rows)


def largest_inside(phase: Difference, beyond_chance: Sequence[Difference]) -> Difference | None:
    """The part in a phase that is longer by most, of those beyond chance; None for a part that is no phase. So a phase
    that is shown in place of many parts still tells what came new in it."""
    if phase.part.level is not Level.PHASE:
        return None
    inside = [each for each in beyond_chance if each.seconds.mean > 0 and phase.part.holds(each.part)]
    return max(inside, key=lambda each: each.seconds.mean, default=None)


def largest_unnamed(unnamed: Sequence[Difference], named: Sequence[Difference], shown: int) -> tuple[Difference, ...]:
    """The largest rows that are in no named part; in place of an operator's kernels, of which a library chooses others
    from run to run, the operator."""
    around = [each.part for each in named] + [each.part for each in unnamed if each.part.level is Level.CALL]
    rows = [
        each
        for each in unnamed
        if (
            each.part.level in (Level.ROW, Level.CALL)
            or (each.part.level is Level.PHASE and each.part.phase in KIND_OF_PHASE)
        )
        and not any(part.holds(each.part) for part in around)
    ]
    return tuple(sorted(rows, key=lambda each: each.absolute_seconds, reverse=True)[:shown])
