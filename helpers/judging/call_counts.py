"""Which operators all runs of one build call more often than all runs of the other.

Counts have next to no noise, so they tell a change of the graph that takes too little time to be found by it. Pure.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from helpers.judging.profile_parts import Amount, Level, Part, ProfiledPair, ProfiledRun
from helpers.trainers.contract.step_profile import HOST

_OPERATORS = (Level.ROW, Level.CALL, Level.CHANGE, Level.OPERATOR)


@dataclass(frozen=True)
class CallCount:
    """An operator, over all layers, with the mean over the runs of its calls per step."""

    part: Part
    reference: float
    candidate: float


def call_counts(pairs: Sequence[ProfiledPair], named: Collection[Part]) -> tuple[CallCount, ...]:
    """Those that no named part tells, by how much longer or shorter they take."""
    reference, candidate = ([_amounts(getattr(pair, side)) for pair in pairs] for side in ("reference", "candidate"))
    found = []
    for part in dict.fromkeys(part for run in (*reference, *candidate) for part in run):
        old, new = ([run.get(part, Amount()).calls for run in side] for side in (reference, candidate))
        if (max(old) < min(new) or max(new) < min(old)) and not any(_tells(each, part) for each in named):
            found.append(CallCount(part, statistics.fmean(old), statistics.fmean(new)))
    return tuple(sorted(found, key=lambda each: -abs(_longer_seconds(each.part, reference, candidate))))


def _amounts(run: ProfiledRun) -> Mapping[Part, Amount]:
    """Of each operator, the means over the ranks."""
    of_ranks: dict[Part, list[tuple[float, float]]] = defaultdict(list)
    for profile in run.profiles:
        for row in profile.operators:
            if row.operator != HOST:
                part = Part(Level.OPERATOR, row.phase, operator=row.operator)
                of_ranks[part].append((row.seconds_per_step, row.calls_per_step))
    ranks = len(run.profiles)
    return {part: Amount(*(sum(each) / ranks for each in zip(*rows, strict=True))) for part, rows in of_ranks.items()}


def _tells(named: Part, of: Part) -> bool:
    same = named.level in _OPERATORS and named.phase is of.phase
    return same and of.operator in (named.operator, *named.gone, *named.came)


def _longer_seconds(
    part: Part, reference: Sequence[Mapping[Part, Amount]], candidate: Sequence[Mapping[Part, Amount]]
) -> float:
    old, new = (statistics.fmean(run.get(part, Amount()).seconds for run in side) for side in (reference, candidate))
    return new - old
