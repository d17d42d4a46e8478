"""The speed that all parts of a run share, and differences of parts beside it. Pure.

On a machine with other work a whole run is slower or faster than its partner, often by more than what is looked for. So
parts are compared beside the shared speed of their pair, unless the builds differ in that speed. If the builds are
exchanged, such a difference changes its sign and nothing else, as the test of all parts together requires.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from helpers.judging.parts.beyond_chance import SPEED_ERROR_RATE, adjusted_p_values
from helpers.judging.parts.step_parts import ComparedPart, Grain, Part


def speeds_of(parts: Sequence[ComparedPart]) -> tuple[float, ...]:
    """For each pair the logarithm of how much longer the second side's run takes as a whole: the median over the rows
    that both have, weighted by their time, so that a change of a few rows does not move it. All rows of an operator
    count at most half as much as all others together: if one that takes most of the step were the speed, and it became
    slower, all others would seem faster. Empty if a pair has no such row."""
    rows = _rows(parts)
    weights = _weights(rows)
    speeds = tuple(_median(rows, weights, pair) for pair in range(len(rows[0].reference) if rows else 0))
    return () if any(math.isnan(speed) for speed in speeds) else speeds


def shared_speeds(parts: Sequence[ComparedPart]) -> tuple[float, ...]:
    """The speeds of ``speeds_of``; empty if they differ beyond chance: then it may be the build that is slower as a
    whole."""
    speeds = speeds_of(parts)
    (p_value,) = adjusted_p_values([speeds], [1.0]) if speeds else (0.0,)
    return speeds if p_value > SPEED_ERROR_RATE else ()


def may_be_the_builds(speeds: Sequence[float]) -> bool:
    """Whether the build is slower, or faster, as a whole in each pair, and the pairs are too few to test that."""
    too_few = 2 / 2 ** len(speeds) > SPEED_ERROR_RATE
    return too_few and (min(speeds) > 0 or max(speeds) < 0)


def speeds_beside(parts: Sequence[ComparedPart], speeds: Sequence[float]) -> list[tuple[float, ...]]:
    """For each part the speed of the rows beside it, without its own and without those of its operator: a slower
    operator that takes most of a step would else be compared with itself. ``speeds`` where no other row is left."""
    rows = _rows(parts)
    known: dict[tuple[bool, ...], tuple[float, ...]] = {}
    found = []
    for each in parts:
        beside = tuple(not _of_one_operator(each.part, row.part) and not each.part.holds(row.part) for row in rows)
        if beside not in known:
            known[beside] = speeds_of([row for row, other in zip(rows, beside, strict=True) if other]) or tuple(speeds)
        found.append(known[beside])
    return found


def differences_beside(parts: Sequence[ComparedPart], speeds: Sequence[float]) -> list[tuple[float, ...]]:
    """Each part's differences, in seconds per step at the speed halfway between the runs of each pair."""
    return [
        _beside(each, around) if each.part.is_of_the_cores else each.differences
        for each, around in zip(parts, speeds_beside(parts, speeds), strict=True)
    ]


def _beside(compared: ComparedPart, speeds: Sequence[float]) -> tuple[float, ...]:
    sides = zip(compared.reference, compared.candidate, speeds, strict=True)
    return tuple(new.seconds * math.exp(-speed / 2) - old.seconds * math.exp(speed / 2) for old, new, speed in sides)


def _of_one_operator(part: Part, row: Part) -> bool:
    return part.phase is row.phase and part.operator == row.operator


def _rows(parts: Sequence[ComparedPart]) -> list[ComparedPart]:
    """What the machine computes: how long an all-reduce takes, is no matter of its cores alone."""
    return [each for each in parts if each.part.level is Grain.ROW and each.part.is_of_the_cores]


def _weights(rows: Sequence[ComparedPart]) -> list[float]:
    of_operator: dict[tuple[str, str], float] = defaultdict(float)
    for each in rows:
        of_operator[_operator(each)] += each.mean_seconds
    whole = math.fsum(of_operator.values())
    # An operator that is alone counts as it is.
    most = {key: (whole - mine) / 2 if len(of_operator) > 1 else mine for key, mine in of_operator.items()}
    return [
        each.mean_seconds * min(1.0, most[key] / of_operator[key]) if of_operator[key] else 0.0
        for each, key in zip(rows, map(_operator, rows), strict=True)
    ]


def _operator(row: ComparedPart) -> tuple[str, str]:
    return row.part.phase.value, row.part.operator


def _median(rows: Sequence[ComparedPart], weights: Sequence[float], pair: int) -> float:
    ratios = sorted(
        (math.log(each.candidate[pair].seconds / each.reference[pair].seconds), weight)
        for each, weight in zip(rows, weights, strict=True)
        if each.candidate[pair].seconds > 0 and each.reference[pair].seconds > 0
    )
    left = math.fsum(weight for _, weight in ratios) / 2
    for ratio, weight in ratios:
        left -= weight
        if left <= 0:
            return ratio
    return math.nan
