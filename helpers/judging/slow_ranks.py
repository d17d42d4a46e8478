"""Which ranks became slower beside the others, and which parts differ on the other ranks, too. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import replace

from helpers.judging.profile_differences import Difference, place_in_step
from helpers.judging.profile_parts import Level, ProfiledPair, ProfiledRun, compared_parts
from helpers.judging.rank_parts import WAITS, own_seconds, slowest_seconds
from helpers.judging.shared_speed import beside_speed, shared_speeds, speeds_beside
from helpers.judging.statistics import mean_interval
from helpers.trainers.contract.step_profile import Phase

# So much of a difference must be there without what it was compared with: in a rank's own time, or on the other ranks.
_MOST_OF_IT = 0.5
# A rank is shown by one of its phases if that explains so much of what the rank takes longer.
_MOST_OF_A_RANK = 0.8


def slow_ranks(named: Sequence[Difference], pairs: Sequence[ProfiledPair], is_slower: bool) -> list[Difference]:
    """The ranks that take longer beside the others than they did; of a rank that does so in one phase, that phase. That
    the others take less beside it is the same once more."""
    longer = [
        each
        for each in named
        if each.part.level.is_of_a_rank and each.seconds.mean > 0 and _is_longer(each, pairs, is_slower)
    ]
    shown = []
    for rank in sorted({each.part.rank for each in longer}):
        mine = [each for each in longer if each.part.rank == rank]
        of_level = {level: [each for each in mine if each.part.level is level] for level in Level}
        phases = of_level[Level.RANK_PHASE]
        if whole := of_level[Level.RANK]:
            one = max(phases, key=lambda each: each.absolute_seconds, default=whole[0])
            shown.append(one if one.absolute_seconds >= _MOST_OF_A_RANK * whole[0].absolute_seconds else whole[0])
        elif speed := of_level[Level.RANK_SPEED]:
            shown += [*speed, *(each for each in phases if each.part.phase in WAITS)]
        else:
            shown += phases
    return shown


def _is_longer(of_a_rank: Difference, pairs: Sequence[ProfiledPair], is_slower: bool) -> bool:
    """Whether what is longer beside the other ranks is so because it changed, more than because the others did."""
    part = of_a_rank.part
    longer = [own_seconds(pair.candidate, part) - own_seconds(pair.reference, part) for pair in pairs]
    return _changed_as(of_a_rank, longer, is_slower)


def _is_for_the_slowest(waiting: Difference, pairs: Sequence[ProfiledPair], is_slower: bool) -> bool:
    """Whether the slowest rank's own time changed as the waiting for it did. Where another rank became faster, it waits
    longer for one that takes what it took."""
    changes = [slowest_seconds(pair.candidate) - slowest_seconds(pair.reference) for pair in pairs]
    return _changed_as(waiting, changes, is_slower)


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
    what a slow rank takes longer."""
    ranks = {each.part.rank for each in slow}
    if not ranks:
        waits = Phase.RANK_WAIT
        return [each for each in named if each.part.phase is not waits or _is_for_the_slowest(each, pairs, is_slower)]
    rest = [ProfiledPair(_without(pair.reference, ranks), _without(pair.candidate, ranks)) for pair in pairs]
    parts = compared_parts(rest) if all(pair.reference.profiles and pair.candidate.profiles for pair in rest) else ()
    speeds = shared_speeds(parts)
    beside = speeds_beside(parts, speeds) if speeds else [()] * len(parts)
    elsewhere = {
        each.part: statistics.fmean(beside_speed(each, around) if around else each.differences)
        for each, around in zip(parts, beside, strict=True)
    }

    def differs_elsewhere(each: Difference) -> bool:
        if each.part.phase is Phase.ALL_REDUCE:
            # What it takes is known from all ranks only, and has no share of what a slow one takes longer. It seems
            # shorter, since a rank that is the last in each step waits less than ranks that are the last in turn.
            return each.seconds.mean > 0
        return elsewhere.get(each.part, 0.0) / each.seconds.mean >= _MOST_OF_IT

    return [each for each in named if each.part.phase is not Phase.RANK_WAIT and differs_elsewhere(each)]


def _without(run: ProfiledRun, ranks: Collection[int]) -> ProfiledRun:
    return replace(run, profiles=tuple(each for each in run.profiles if each.rank not in ranks))


def beside_each_other(found: Sequence[Difference], slow: Sequence[Difference]) -> tuple[Difference, ...]:
    ranks = {each.part.rank for each in slow}
    return tuple(
        each
        for each in sorted(
            found, key=lambda each: (each.part.rank, each.part.level is not Level.RANK, place_in_step(each))
        )
        if each.part.level is Level.RANK or (each.part.level.is_of_a_rank and each.part.rank in ranks)
    )
