"""Why a step is slower: which parts of it differ beyond chance between two builds, and what they explain. Pure.

A run is one replicate; the steps in it are not. A part is named only if it is beyond the error rate that holds over all
tested parts together (helpers/judging/beyond_chance.py). What no named part explains is left as that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.judging.call_counts import CallCount, call_counts
from helpers.judging.named_parts import apart, largest_inside, largest_unnamed
from helpers.judging.profile_differences import Difference, differences_of, place_in_step
from helpers.judging.profile_parts import LEAST_SHARE, Level, ProfiledPair
from helpers.judging.rank_parts import parts_and_ranks
from helpers.judging.run_facts import (
    Clock,
    ReducedBeside,
    clocks_of,
    cost_of,
    facts_of,
    reduced_beside,
)
from helpers.judging.shared_speed import shared_speeds
from helpers.judging.slow_ranks import beside_each_other, not_of_ranks, slow_ranks
from helpers.judging.statistics import Interval, mean_interval
from helpers.trainers.contract.step_profile import Phase


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
    # The operators whose number of calls differs in all runs, as far as no named part tells it.
    calls: tuple[CallCount, ...] = ()
    # Of each named phase the part in it that is longer by most, if one is beyond the error rate itself.
    largest_inside: tuple[Difference, ...] = ()

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
    speeds = shared_speeds(parts)
    found = differences_of(parts, speeds)
    rows = [each.part for each in parts if each.part.level is Level.ROW]
    # A consequence, such as values that are no longer in a cache, may be beyond chance and explain nothing.
    beyond_chance = [each for each in found if each.is_named and each.absolute_seconds >= LEAST_SHARE * usual]
    slow = slow_ranks(beyond_chance, pairs, is_slower)
    phases = {each.part.phase: each for each in found if each.part.level is Level.PHASE}
    of_steps = [each for each in beyond_chance if not each.part.level.is_of_a_rank]
    backward = phases.get(Phase.BACKWARD)
    if slow or (backward is not None and backward.is_named):
        # Where a backward pass differs itself, what it makes the whole all-reduce longer by is not known well.
        of_steps = [each for each in of_steps if each.part.level is not Level.REDUCTION]
    of_all = not_of_ranks(of_steps, slow, pairs, is_slower)
    named = sorted([*apart(of_all, rows), *slow], key=lambda each: _place_among_named(each, phases))
    return Explanation(
        pairs=len(pairs),
        step_seconds=usual,
        drop=mean_interval([pair.candidate.step_seconds - pair.reference.step_seconds for pair in pairs]),
        named=tuple(named),
        unnamed=largest_unnamed([each for each in found if not each.is_named], named, shown),
        tested=len(parts),
        cost=(cost_of(pair.reference for pair in pairs), cost_of(pair.candidate for pair in pairs)),
        phases=tuple(sorted(phases.values(), key=place_in_step)),
        ranks=beside_each_other(found, slow),
        facts=facts_of(pairs),
        shared_speeds=tuple(math.exp(each) for each in speeds),
        clocks=clocks_of(pairs),
        reduced_beside=reduced_beside(pairs),
        calls=call_counts(pairs, named),
        largest_inside=tuple(filter(None, (largest_inside(each, of_all) for each in named))),
    )


def _place_among_named(named: Difference, phases: Mapping[Phase, Difference]) -> tuple[bool, float]:
    """What takes longer comes first, by what it explains at least: the low end of the interval. So a large part that is
    not well known does not hide a smaller one that is. Of an all-reduce only what is not beside computation explains
    anything, which is the phase.
    """
    explaining = phases.get(named.part.phase) if named.part.may_be_beside else named
    return named.seconds.mean <= 0, -explaining.seconds.low if explaining is not None else 0.0
