"""Each rank of a job beside the others: which of them became slower, and which parts differ on the others, too. Pure.

Ranks of one job have steps of one length, so what a rank takes is what it computes and what it waits for data and the
host, without its waits for the others and for the network.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import replace

from helpers.judging.parts.differences import Difference
from helpers.judging.parts.shared_speed import differences_beside, shared_speeds, speeds_of
from helpers.judging.parts.step_parts import (
    LEAST_SHARE,
    Amount,
    ComparedPart,
    Grain,
    Part,
    ProfiledPair,
    ProfiledRun,
    compared_parts,
    row_of,
    step_seconds_of,
)
from helpers.judging.statistics import mean_interval
from helpers.trainers.contract.step_profile import Phase, StepProfile

# In these phases a rank waits or moves data. How long that takes is no speed of its cores.
_WAITS = (Phase.DATA_WAIT, Phase.TRANSFER, Phase.HOST_GAP)
# So much of a difference must be there without what it was compared with: in a rank's own time, or on the other ranks.
_MOST_OF_IT = 0.5


def parts_and_ranks(pairs: Sequence[ProfiledPair]) -> tuple[ComparedPart, ...]:
    """All parts that take enough of a step to explain something, and each rank that does."""
    least = LEAST_SHARE * step_seconds_of(pairs)
    runs = [pair.reference for pair in pairs] + [pair.candidate for pair in pairs]
    ranks = [_beside_others(rank, runs) for rank in _ranks_of(runs)]
    return (*compared_parts(pairs), *(each for each in ranks if each is not None and each.size_seconds >= least))


def _ranks_of(runs: Sequence[ProfiledRun]) -> list[int]:
    """The ranks that all runs have, if there are several."""
    ranks = set.intersection(*({each.rank for each in run.profiles} for run in runs)) if runs else set()
    return sorted(ranks) if len(ranks) > 1 else []


def _beside_others(rank: int, runs: Sequence[ProfiledRun]) -> ComparedPart | None:
    """By how much the rank takes longer than the median of the others, in each run: what it computes, and its waits.

    A slow core, or one with other work, makes all that a rank computes longer. The median over the rows that it and
    the others have moves less from run to run than their sum, of which a few long rows are most. None without rows.
    """
    mine = [next(each for each in run.profiles if each.rank == rank) for run in runs]
    others = [[each for each in run.profiles if each.rank != rank] for run in runs]
    computed = [_rows(each) for each in mine]
    rows_of_others = [[_rows(each) for each in of_run] for of_run in others]
    beside = [
        ComparedPart(
            part,
            tuple(Amount(_median([rows.get(part, 0.0) for rows in each])) for each in rows_of_others),
            tuple(Amount(rows.get(part, 0.0)) for rows in computed),
        )
        for part in dict.fromkeys(part for rows in computed for part in rows)
    ]
    usual = statistics.fmean(math.fsum(rows.values()) for rows in computed)
    amounts = tuple(
        Amount(usual * math.expm1(speed) + _waits(one) - statistics.median(map(_waits, rest)))
        for speed, one, rest in zip(speeds_of(beside), mine, others, strict=False)
    )
    if len(amounts) < len(runs):
        return None
    pairs = len(runs) // 2
    whole = usual + statistics.fmean(map(_waits, mine))
    return ComparedPart(Part(Grain.RANK, rank=rank), amounts[:pairs], amounts[pairs:], whole_seconds=whole)


def _median(seconds: Sequence[float]) -> float:
    """0 if one of the ranks does not have the row: then it is not compared."""
    return statistics.median(seconds) if all(seconds) else 0.0


def _rows(profile: StepProfile) -> dict[Part, float]:
    """What the rank computes."""
    rows: dict[Part, float] = {}
    for each in profile.operators:
        if (part := row_of(each)).is_of_the_cores and part.phase not in _WAITS:
            rows[part] = rows.get(part, 0.0) + each.seconds_per_step
    return rows


def _waits(profile: StepProfile) -> float:
    return math.fsum(profile.phases.get(phase, 0.0) for phase in _WAITS)


def _own_seconds(run: ProfiledRun) -> dict[int, float]:
    """What each rank takes, not beside the other ranks."""
    return {
        each.rank: math.fsum(taken for phase, taken in each.phases.items() if phase is not Phase.ALL_REDUCE)
        for each in run.profiles
    }


def slow_ranks(named: Sequence[Difference], pairs: Sequence[ProfiledPair], is_slower: bool) -> list[Difference]:
    """The ranks that take longer beside the others than they did. That the others take less beside it is the same once
    more, and so is it if another rank became faster: a rank's own time must have changed by most of what differs."""

    def changes(rank: int) -> list[float]:
        return [_own_seconds(pair.candidate)[rank] - _own_seconds(pair.reference)[rank] for pair in pairs]

    longer = [each for each in named if each.part.level is Grain.RANK and each.seconds.mean > 0]
    return [each for each in longer if _changed_as(each, changes(each.part.rank), is_slower)]


def _changed_as(difference: Difference, changes: Sequence[float], is_slower: bool) -> bool:
    """Whether a rank's own time changed by most of what differs beside the other ranks. If another rank had become
    faster, the step would not be longer. So of a build that is known to be slower this holds unless the rank's own time
    says otherwise: on a machine with other work that differs more from run to run than the ranks do."""
    differs = difference.seconds.mean
    changed = mean_interval(changes).high if is_slower and differs > 0 else statistics.fmean(changes)
    return changed / differs >= _MOST_OF_IT


def not_of_ranks(
    named: Sequence[Difference], slow: Sequence[Difference], pairs: Sequence[ProfiledPair], is_slower: bool
) -> list[Difference]:
    """The parts that differ on the other ranks, too. A part's time is a mean over the ranks, and so it holds a share of
    what a slow rank takes longer. Without a slow rank: all but waits for a rank that takes what it took, since another
    one became faster."""
    ranks = {each.part.rank for each in slow}
    if not ranks:
        slowest = [max(_own_seconds(new).values()) - max(_own_seconds(old).values()) for old, new in _runs(pairs)]
        return [
            each for each in named if each.part.phase is not Phase.RANK_WAIT or _changed_as(each, slowest, is_slower)
        ]
    rest = [ProfiledPair(_without(old, ranks), _without(new, ranks)) for old, new in _runs(pairs)]
    parts = compared_parts(rest) if all(old.profiles and new.profiles for old, new in _runs(rest)) else ()
    speeds = shared_speeds(parts)
    differences = differences_beside(parts, speeds) if speeds else [each.differences for each in parts]
    elsewhere = {each.part: statistics.fmean(found) for each, found in zip(parts, differences, strict=True)}

    def differs_elsewhere(each: Difference) -> bool:
        if each.part.phase is Phase.ALL_REDUCE:
            # What it takes is known from all ranks only, and has no share of what a slow one takes longer. It seems
            # shorter, since a rank that is the last in each step waits less than ranks that are the last in turn.
            return each.seconds.mean > 0
        return elsewhere.get(each.part, 0.0) / each.seconds.mean >= _MOST_OF_IT

    return [each for each in named if each.part.phase is not Phase.RANK_WAIT and differs_elsewhere(each)]


def _runs(pairs: Sequence[ProfiledPair]) -> list[tuple[ProfiledRun, ProfiledRun]]:
    return [(pair.reference, pair.candidate) for pair in pairs]


def _without(run: ProfiledRun, ranks: Collection[int]) -> ProfiledRun:
    return replace(run, profiles=tuple(each for each in run.profiles if each.rank not in ranks))
