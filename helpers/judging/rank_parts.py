"""What jobs of several ranks are compared by besides the parts of a step: each rank beside the others. Pure.

Ranks of one job have steps of one length, so a rank's own time is what it does not wait for the others or for the
network. One rank of many that changes moves the median of the others little, and their mean more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from helpers.judging.profile_parts import (
    LEAST_SHARE,
    Amount,
    Compared,
    Level,
    Part,
    ProfiledPair,
    ProfiledRun,
    compared_parts,
    row_of,
    step_seconds_of,
)
from helpers.judging.shared_speed import speeds_of
from helpers.trainers.contract.step_profile import Phase, StepProfile

# In these phases a rank waits or moves data. How long that takes is no speed of its cores.
WAITS = (Phase.DATA_WAIT, Phase.TRANSFER, Phase.HOST_GAP)
# No row counts as if it varied less from run to run than by this fraction of its time.
_STEADIEST = 0.001
# A run's ranks: the own time of each, by phase.
_Own = Mapping[int, Mapping[Phase, float]]


def parts_and_ranks(pairs: Sequence[ProfiledPair]) -> tuple[Compared, ...]:
    """All parts that take enough of a step to explain something, and each rank that does."""
    least = LEAST_SHARE * step_seconds_of(pairs)
    return (*compared_parts(pairs), *(each for each in _ranks(pairs) if each.size_seconds >= least))


def _ranks(pairs: Sequence[ProfiledPair]) -> list[Compared]:
    """By how much each rank's own time, each phase of it, and the time of what it computes are above the median of the
    other ranks'."""
    reference, candidate = [pair.reference for pair in pairs], [pair.candidate for pair in pairs]
    runs = [*reference, *candidate]
    if any(len(run.profiles) < 2 for run in runs):
        return []
    owns = [_own(run.profiles) for run in runs]
    ranks = sorted({rank for own in owns for rank in own})
    phases = sorted({phase for own in owns for each in own.values() for phase in each}, key=_number)
    found = []
    for rank in ranks:
        for part in (Part(Level.RANK, rank=rank), *(Part(Level.RANK_PHASE, each, rank=rank) for each in phases)):
            found.append(_own_time(part, owns, phases if part.level is Level.RANK else [part.phase]))
        found += _speed(rank, runs)
    return found


def _own_time(part: Part, owns: Sequence[_Own], phases: Sequence[Phase]) -> Compared:
    """A run that is slower as a whole has larger differences between its ranks, so they are in parts of the others' own
    time, and in seconds of the usual one."""
    usual = statistics.fmean(math.fsum(each.values()) for own in owns for each in own.values())
    whole = statistics.fmean(_seconds(each, phases) for own in owns for each in own.values())
    return _compared(part, [usual * _beside_others(own, part.rank, phases) for own in owns], whole)


def _speed(rank: int, runs: Sequence[ProfiledRun]) -> list[Compared]:
    """A slow core, or one with other work, makes all that a rank computes longer. The median over the rows that it and
    the others have moves less from run to run than their sum, of which a few long rows are most.

    A row counts by its time and by how steady its ratio to the others' is: a thread that reduces gradients takes the
    core from some rows of the backward pass, and these vary most. The runs of both builds say together how steady a row
    is, so that does not depend on which build is which. A row that became slower on this rank alone varies, too, and
    counts less.
    """
    mine = [_rows(each) for run in runs for each in run.profiles if each.rank == rank]
    others = [[_rows(each) for each in run.profiles if each.rank != rank] for run in runs]
    if len(mine) < len(runs):
        return []
    parts = dict.fromkeys(part for rows in mine for part in rows)
    beside = [
        Compared(
            part,
            tuple(Amount(_median(part, each)) for each in others),
            tuple(Amount(rows.get(part, 0.0)) for rows in mine),
        )
        for part in parts
    ]
    computed = statistics.fmean(math.fsum(rows.values()) for rows in mine)
    seconds = [computed * math.expm1(speed) for speed in speeds_of(beside, _steadiness(beside))]
    return [_compared(Part(Level.RANK_SPEED, rank=rank), seconds, computed)] if seconds else []


def _steadiness(rows: Sequence[Compared]) -> list[float]:
    """How steady the rows' ratios are: 1 divided by how much the logarithm varies from run to run, which is its median
    distance from its median. Of a row that some runs lack that is not known; it counts as the least steady one."""
    found = []
    for row in rows:
        sides = list(zip(row.reference, row.candidate, strict=True))
        if all(old.seconds > 0 and new.seconds > 0 for old, new in sides):
            logs = [math.log(new.seconds / old.seconds) for old, new in sides]
            usual = statistics.median(logs)
            found.append(1 / max(_STEADIEST, statistics.median(abs(each - usual) for each in logs)))
        else:
            found.append(0.0)
    least = min((each for each in found if each), default=1.0)
    return [each or least for each in found]


def _compared(part: Part, seconds: Sequence[float], whole_seconds: float) -> Compared:
    """Of the runs with the reference, and then as many with the candidate."""
    amounts = tuple(map(Amount, seconds))
    pairs = len(amounts) // 2
    return Compared(part, amounts[:pairs], amounts[pairs:], whole_seconds)


def _median(part: Part, others: Sequence[Mapping[Part, float]]) -> float:
    """0 if one of the ranks does not have the row: then it is not compared."""
    seconds = [rows.get(part, 0.0) for rows in others]
    return statistics.median(seconds) if all(seconds) else 0.0


def _rows(profile: StepProfile) -> dict[Part, float]:
    """What the rank computes."""
    rows = {row_of(each): each.seconds_per_step for each in profile.operators}
    return {part: seconds for part, seconds in rows.items() if part.is_of_the_cores and part.phase not in WAITS}


def _own(profiles: Sequence[StepProfile]) -> dict[int, dict[Phase, float]]:
    return {
        each.rank: {phase: taken for phase, taken in each.phases.items() if phase is not Phase.ALL_REDUCE}
        for each in profiles
    }


def _beside_others(run: _Own, rank: int, phases: Sequence[Phase]) -> float:
    others = [each for other, each in run.items() if other != rank]
    above = _seconds(run.get(rank, {}), phases) - statistics.median(_seconds(each, phases) for each in others)
    return above / statistics.median(math.fsum(each.values()) for each in others)


def own_seconds(run: ProfiledRun, part: Part) -> float:
    """What the part of one rank takes in a run, not beside the other ranks."""
    own = _own(run.profiles).get(part.rank, {})
    return _seconds(own, [part.phase] if part.level is Level.RANK_PHASE else list(own))


def slowest_seconds(run: ProfiledRun) -> float:
    """The own time of the slowest rank."""
    return max(math.fsum(each.values()) for each in _own(run.profiles).values())


def _seconds(phases: Mapping[Phase, float], which: Sequence[Phase]) -> float:
    return math.fsum(phases.get(phase, 0.0) for phase in which)


def _number(phase: Phase) -> int:
    return list(Phase).index(phase)
