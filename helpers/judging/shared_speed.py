"""The speed that all parts of a run share, and differences of parts beside it. Pure.

On a machine with other work a whole run is slower or faster than its partner, often by more than what is looked for. So
parts are compared beside the shared speed of their pair, unless the builds differ in that speed. If the builds are
exchanged, such a difference changes its sign and nothing else, as the test of all parts together requires.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from helpers.judging.beyond_chance import ERROR_RATE, adjusted_p_values
from helpers.judging.profile_parts import Compared, Level, Part
from helpers.trainers.contract.step_profile import Phase

# The speed is tested before the parts, and what is named depends on it, so the two tests share the error rate. With 6
# or 7 pairs no speed differs beyond its share.
SPEED_ERROR_RATE = 0.01
PARTS_ERROR_RATE = ERROR_RATE - SPEED_ERROR_RATE
# Of a part that is named surely, and not only as probable; with 6 or 7 pairs none is.
SURE_PARTS_ERROR_RATE = 0.01
SURE_ERROR_RATE = SURE_PARTS_ERROR_RATE + SPEED_ERROR_RATE


def shared_speeds(parts: Sequence[Compared]) -> tuple[float, ...]:
    """For each pair the logarithm of how much longer the candidate's run takes as a whole: the median over the rows
    that both have, weighted by their time, so that a change of a few rows does not move it. All rows of an operator
    count at most half as much as all others together: if one that takes most of the step were the speed, and it became
    slower, all others would seem faster. Empty if there are no such rows, or if the speeds differ beyond chance: then
    it may be the build that is slower as a whole."""
    speeds = speeds_of(_rows(parts))
    (p_value,) = adjusted_p_values([speeds], [1.0]) if speeds else (0.0,)
    return speeds if p_value > SPEED_ERROR_RATE else ()


def may_be_the_builds(speeds: Sequence[float]) -> bool:
    """Whether the build is slower, or faster, as a whole in each pair, and the pairs are too few to test that."""
    too_few = 2 / 2 ** len(speeds) > SPEED_ERROR_RATE
    return too_few and (min(speeds) > 0 or max(speeds) < 0)


def speeds_beside(parts: Sequence[Compared], speeds: Sequence[float]) -> list[tuple[float, ...]]:
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


def _of_one_operator(part: Part, row: Part) -> bool:
    return part.phase is row.phase and part.operator == row.operator


def beside_speed(compared: Compared, speeds: Sequence[float]) -> tuple[float, ...]:
    """A part's differences, in seconds per step at the speed halfway between the runs of each pair."""
    sides = zip(compared.reference, compared.candidate, speeds, strict=True)
    return tuple(new.seconds * math.exp(-speed / 2) - old.seconds * math.exp(speed / 2) for old, new, speed in sides)


def _rows(parts: Sequence[Compared]) -> list[Compared]:
    """What the machine computes: how long an all-reduce takes, is no matter of its cores alone."""
    return [each for each in parts if each.part.level is Level.ROW and not each.part.may_be_beside]


def speeds_of(rows: Sequence[Compared], counts: Sequence[float] = ()) -> tuple[float, ...]:
    """The logarithm of how much longer the second side's rows take than the first's, for each pair: the weighted median
    of the rows that both have. ``counts`` says how much a second of each row counts, the same if it is empty. Empty if
    a pair has no such row."""
    weights = _weights(rows, counts or [1.0] * len(rows))
    speeds = tuple(_median(rows, weights, pair) for pair in range(len(rows[0].reference) if rows else 0))
    return () if any(math.isnan(speed) for speed in speeds) else speeds


def _weights(rows: Sequence[Compared], counts: Sequence[float]) -> list[float]:
    weights = [each.mean_seconds * count for each, count in zip(rows, counts, strict=True)]
    keys = [(each.part.phase, each.part.operator) for each in rows]
    of_operator: dict[tuple[Phase, str], float] = defaultdict(float)
    for key, weight in zip(keys, weights, strict=True):
        of_operator[key] += weight
    whole = math.fsum(of_operator.values())
    # An operator that is alone counts as it is.
    most = {key: (whole - mine) / 2 if len(of_operator) > 1 else mine for key, mine in of_operator.items()}
    return [weight * min(1.0, most[key] / of_operator[key]) for key, weight in zip(keys, weights, strict=True)]


def _median(rows: Sequence[Compared], weights: Sequence[float], pair: int) -> float:
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
