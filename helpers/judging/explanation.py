"""Why a step is slower: which parts of it differ beyond chance between two builds, and what they explain. Pure.

A run is one replicate; the steps in it are not. A part is named only if it is beyond the error rate that holds over all
tested parts together (helpers/judging/beyond_chance.py). What no named part explains is left as that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from helpers.judging.beyond_chance import ERROR_RATE, LEAST_PAIRS, adjusted_p_values, difference_beside
from helpers.judging.kinds import KIND_OF_PHASE, Kind, kind_of
from helpers.judging.profile_parts import (
    LEAST_SHARE,
    Amount,
    Compared,
    Level,
    Part,
    ProfiledPair,
    ProfiledRun,
    compared_parts,
)
from helpers.judging.rank_parts import WAITS, own_seconds, parts_and_ranks, slowest_seconds
from helpers.judging.run_facts import (
    Clock,
    ReducedBeside,
    clocks_of,
    cost_of,
    facts_of,
    reduced_beside,
)
from helpers.judging.shared_speed import (
    PARTS_ERROR_RATE,
    SURE_PARTS_ERROR_RATE,
    beside_speed,
    may_be_the_builds,
    shared_speeds,
    speeds_beside,
)
from helpers.judging.statistics import Interval, mean_interval
from helpers.trainers.contract.step_profile import Phase

# A part that holds others is shown in place of them unless a few of them explain this share of its difference.
_MOST_OF_IT = 0.5
_FEW = 3
# A rank is shown by one of its phases if that explains so much of what the rank takes longer.
_MOST_OF_A_RANK = 0.8


@dataclass(frozen=True)
class Difference:
    """A part that was tested."""

    part: Part
    kind: Kind
    # The mean seconds and calls per step with each build.
    reference: Amount
    candidate: Amount
    # In seconds per step, above 0 where the candidate takes longer.
    seconds: Interval
    # The probability that any part differs so clearly if none does.
    p_value: float

    @property
    def is_named(self) -> bool:
        return self.p_value <= PARTS_ERROR_RATE

    @property
    def is_sure(self) -> bool:
        """Whether it is named surely; else it is named as probable."""
        return self.p_value <= SURE_PARTS_ERROR_RATE

    @property
    def change(self) -> float | None:
        """The change as a fraction of the part's own time; None if it is new."""
        return self.seconds.mean / self.reference.seconds if self.reference.seconds > 0 else None


@dataclass(frozen=True)
class Explanation:
    """What is known of why the candidate's step is longer."""

    pairs: int
    # The unprofiled seconds of the reference's step, and by how much the candidate's is longer.
    step_seconds: float
    drop: Interval
    # The parts beyond the error rate, none of which holds another, by what they explain at least.
    named: tuple[Difference, ...]
    # The largest differences of those that are not beyond it.
    unnamed: tuple[Difference, ...]
    # How many parts were tested together.
    tested: int
    # By what fraction the profiler made a step longer, with each build; None if it is not known.
    cost: tuple[float | None, float | None]
    # Each phase, whether named or not, in the order of a step.
    phases: tuple[Difference, ...]
    # In what all runs of one build differ from all runs of the other, besides times: name, reference, candidate.
    facts: tuple[tuple[str, str, str], ...] = ()
    # For each pair, how many times as long the candidate's run took as a whole, which the parts' differences leave out;
    # empty if the builds differ in it beyond chance, and the parts' differences are as measured.
    shared_speeds: tuple[float, ...] = ()
    # The clocks in which the builds differ, tested at SPEED_ERROR_RATE besides the parts.
    clocks: tuple[Clock, ...] = ()
    # Each rank beside the others, whether named or not, and each phase of those that are named.
    ranks: tuple[Difference, ...] = ()
    # None if no gradients are reduced beside computation.
    reduced_beside: ReducedBeside | None = None

    @property
    def explained_seconds(self) -> float:
        """By the named parts together. Ranks compute side by side, so of several slow ones the slowest counts."""
        parts = [each for each in self.named if not each.part.may_be_beside]
        ranks: dict[int, float] = {}
        for each in parts:
            if each.part.level.is_of_a_rank:
                ranks[each.part.rank] = ranks.get(each.part.rank, 0.0) + each.seconds.mean
        others = (each.seconds.mean for each in parts if not each.part.level.is_of_a_rank)
        return math.fsum(others) + max(ranks.values(), default=0.0)

    @property
    def not_explained_seconds(self) -> float:
        return self.drop.mean - self.explained_seconds

    @property
    def is_slower(self) -> bool:
        """Whether the unprofiled step is longer beyond the interval."""
        return self.drop.low > 0


def explain(pairs: Sequence[ProfiledPair], shown: int = 5, *, is_slower: bool = False) -> Explanation:
    """Compare the runs of both builds, part by part. At most ``shown`` unnamed parts are in the answer. ``is_slower``
    says that the candidate is known to be slower, as after a confirmed regression.

    Raises SuiteError for too few or too many pairs: ``LEAST_PAIRS`` to ``MOST_PAIRS``.
    """
    parts = parts_and_ranks(pairs)
    usual = statistics.fmean(pair.reference.step_seconds for pair in pairs) if pairs else 0.0
    sizes = _noise_sizes(parts)
    speeds = shared_speeds(parts)
    found = _differences(parts, sizes, speeds)
    rows = [each.part for each in parts if each.part.level is Level.ROW]
    # A consequence, such as values that are no longer in a cache, may be beyond chance and explain nothing.
    beyond_chance = [each for each in found if each.is_named and _size(each) >= LEAST_SHARE * usual]
    slow_ranks = _slow_ranks(beyond_chance, pairs, is_slower)
    phases = {each.part.phase: each for each in found if each.part.level is Level.PHASE}
    of_steps = [each for each in beyond_chance if not each.part.level.is_of_a_rank]
    backward = phases.get(Phase.BACKWARD)
    if slow_ranks or (backward is not None and backward.is_named):
        # Where a backward pass differs itself, what it makes the whole all-reduce longer by is not known well.
        of_steps = [each for each in of_steps if each.part.level is not Level.REDUCTION]
    of_all = _not_of_ranks(of_steps, slow_ranks, pairs, is_slower)
    named = sorted([*apart(of_all, rows), *slow_ranks], key=lambda each: _place_among_named(each, phases))
    return Explanation(
        pairs=len(pairs),
        step_seconds=usual,
        drop=mean_interval([pair.candidate.step_seconds - pair.reference.step_seconds for pair in pairs]),
        named=tuple(named),
        unnamed=_largest([each for each in found if not each.is_named], named, shown),
        tested=len(parts),
        cost=(cost_of(pair.reference for pair in pairs), cost_of(pair.candidate for pair in pairs)),
        phases=tuple(sorted(phases.values(), key=_place_in_step)),
        ranks=_beside_each_other(found, slow_ranks),
        facts=facts_of(pairs),
        shared_speeds=tuple(math.exp(each) for each in speeds),
        clocks=clocks_of(pairs),
        reduced_beside=reduced_beside(pairs),
    )


def _place_among_named(named: Difference, phases: Mapping[Phase, Difference]) -> tuple[bool, float]:
    """What takes longer comes first, by what it explains at least: the low end of the interval. So a large part that is
    not well known does not hide a smaller one that is. Of an all-reduce as a whole only what is not beside computation
    explains anything.
    """
    explaining = phases.get(named.part.phase) if named.part.level is Level.REDUCTION else named
    return named.seconds.mean <= 0, -explaining.seconds.low if explaining is not None else 0.0


def _noise_sizes(parts: Sequence[Compared]) -> list[float]:
    """To what each part's noise is in proportion. A network, or a rank beside the others, is not as noisy as one row of
    its size would be: it is taken as so many usual rows, whose noises do not depend on each other and partly cancel."""
    rows = [each.size_seconds for each in parts if each.part.level is Level.ROW and each.part.is_of_the_cores]
    usual = statistics.median(rows) if rows else math.inf
    return [
        each.size_seconds if each.part.is_of_the_cores else min(each.size_seconds, math.sqrt(each.size_seconds * usual))
        for each in parts
    ]


def _differences(parts: Sequence[Compared], sizes: Sequence[float], speeds: Sequence[float]) -> list[Difference]:
    """Each part beside the speed of its pair's runs; without speeds as it was measured.

    What is shorter beside the speed may be what a slower part has left behind, if that has moved the speed. So it is
    named only if it is shorter as measured, too. The same holds for all parts if the speed itself may be the builds'.
    """
    measured = [each.differences for each in parts]
    covariates = {place: each.differences_beside for place, each in enumerate(parts) if each.differences_beside}
    p_measured = adjusted_p_values(measured, sizes, covariates)
    if not speeds:
        return [_difference(*each) for each in zip(parts, measured, p_measured, strict=True)]
    beside = [
        beside_speed(each, around) if each.part.is_of_the_cores else each.differences
        for each, around in zip(parts, speeds_beside(parts, speeds), strict=True)
    ]
    p_beside = adjusted_p_values(beside, sizes, covariates)
    unsettled = may_be_the_builds(speeds)
    p_values = [
        new if math.fsum(differences) > 0 and not unsettled else _p_of_both(differences, new, as_measured, old)
        for differences, new, as_measured, old in zip(beside, p_beside, measured, p_measured, strict=True)
    ]
    return [_difference(*each) for each in zip(parts, beside, p_values, strict=True)]


def _p_of_both(beside: Sequence[float], p_beside: float, measured: Sequence[float], p_measured: float) -> float:
    """The p-value of a part that differs beside the speed and as measured; 1 if it does so in opposite ways."""
    return max(p_beside, p_measured) if math.fsum(beside) * math.fsum(measured) > 0 else 1.0


def _difference(compared: Compared, differences: Sequence[float], p_value: float) -> Difference:
    reference, candidate = _mean(compared.reference), _mean(compared.candidate)
    beside = compared.differences_beside
    seconds = difference_beside(differences, beside) if beside else mean_interval(differences)
    kind = kind_of(compared, reference, candidate, seconds.mean)
    return Difference(compared.part, kind, reference, candidate, seconds, p_value)


def _slow_ranks(named: Sequence[Difference], pairs: Sequence[ProfiledPair], is_slower: bool) -> list[Difference]:
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
            one = max(phases, key=_size, default=whole[0])
            shown.append(one if _size(one) >= _MOST_OF_A_RANK * _size(whole[0]) else whole[0])
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


def _not_of_ranks(
    named: Sequence[Difference], slow_ranks: Sequence[Difference], pairs: Sequence[ProfiledPair], is_slower: bool
) -> list[Difference]:
    """The parts that differ on the other ranks, too. A part's time is a mean over the ranks, and so it holds a share of
    what a slow rank takes longer."""
    slow = {each.part.rank for each in slow_ranks}
    if not slow:
        waits = Phase.RANK_WAIT
        return [each for each in named if each.part.phase is not waits or _is_for_the_slowest(each, pairs, is_slower)]
    rest = [ProfiledPair(_without(pair.reference, slow), _without(pair.candidate, slow)) for pair in pairs]
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


def _beside_each_other(found: Sequence[Difference], slow_ranks: Sequence[Difference]) -> tuple[Difference, ...]:
    slow = {each.part.rank for each in slow_ranks}
    return tuple(
        each
        for each in sorted(
            found, key=lambda each: (each.part.rank, each.part.level is not Level.RANK, _place_in_step(each))
        )
        if each.part.level is Level.RANK or (each.part.level.is_of_a_rank and each.part.rank in slow)
    )


def apart(named: Sequence[Difference], rows: Sequence[Part]) -> tuple[Difference, ...]:
    """Of the named parts those of which none holds another: the most special ones, unless it takes more than a few of
    them to explain most of the part around them, or that part says more: that one operator came for another, or that
    several kernels of an operator differ in the same way. The all-reduce as a whole is shown in place of its rows, but
    not in place of its phase, which makes the step longer."""
    shown: list[Difference] = []
    for level in (Level.ROW, Level.CALL, Level.CHANGE, Level.OPERATOR, Level.PHASE):
        for each in sorted((one for one in named if one.part.level is level), key=_size, reverse=True):
            inside = [one for one in shown if each.part.holds(one.part)]
            # The rows of an all-reduce may be beside computation, and then they do not make the step longer.
            whole = level is Level.CHANGE or (level is Level.PHASE and each.part.phase is Phase.ALL_REDUCE)
            says_more = whole or _differs_as_one(each, inside) or not _say_enough(inside, each)
            if not says_more or any(_overlap(each.part, one.part, rows) for one in shown):
                continue
            shown = [one for one in shown if one not in inside] + [each]
    for each in (one for one in named if one.part.level is Level.REDUCTION):
        same = [one for one in shown if each.part.holds(one.part) and _is_alike(one, each) and one.kind is each.kind]
        if not any(one.part.level is Level.PHASE for one in same):
            shown = [one for one in shown if one not in same] + [each]
    return tuple(shown)


def _say_enough(inside: Sequence[Difference], around: Difference) -> bool:
    """Whether the named parts in a part are shown in its place: a few of those that differ as it does explain most of
    it, or one is longer and the whole of it is shorter, which would hide the longer one."""
    whole = around.seconds.mean
    alike = sorted((_size(one) for one in inside if _is_alike(one, around)), reverse=True)
    hidden = whole < 0 and any(one.seconds.mean > 0 for one in inside)
    return hidden or (bool(alike) and math.fsum(alike[:_FEW]) >= _MOST_OF_IT * abs(whole))


def _differs_as_one(call: Difference, kernels: Sequence[Difference]) -> bool:
    """Whether several kernels of an operator differ in the same way as all of it: it is slower, or called more often.
    An operator that is new or gone is so with whatever kernels it has."""
    if call.part.level is not Level.CALL or len(kernels) < 2 or not all(_is_alike(each, call) for each in kernels):
        return False
    return call.kind in (Kind.NEW, Kind.MOVED, Kind.GONE) or {each.kind for each in kernels} == {call.kind}


def _is_alike(one: Difference, other: Difference) -> bool:
    """Whether both are longer, or both shorter."""
    return one.seconds.mean * other.seconds.mean > 0


def _overlap(one: Part, other: Part, rows: Sequence[Part]) -> bool:
    """Whether some time would be counted twice: an operator over all layers, and a change in some of them."""
    if {one.level, other.level} != {Level.OPERATOR, Level.CHANGE}:
        return False
    return any(one.holds(row) and other.holds(row) for row in rows)


def _largest(unnamed: Sequence[Difference], named: Sequence[Difference], shown: int) -> tuple[Difference, ...]:
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
    return tuple(sorted(rows, key=_size, reverse=True)[:shown])


def _place_in_step(difference: Difference) -> int:
    return list(Phase).index(difference.part.phase)


def _size(difference: Difference) -> float:
    return abs(difference.seconds.mean)


def _mean(amounts: Sequence[Amount]) -> Amount:
    seconds, calls = ([getattr(each, name) for each in amounts] for name in ("seconds", "calls"))
    return Amount(statistics.fmean(seconds), statistics.fmean(calls))


__all__ = ["ERROR_RATE", "LEAST_PAIRS", "Clock", "Difference", "Explanation", "Interval", "Kind", "apart", "explain"]
