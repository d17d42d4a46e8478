"""Why a step is slower: which parts of it differ beyond chance between two builds, and what they explain. Pure.

A run is one replicate; the steps in it are not. A part is named only if it is beyond the error rate that holds over all
tested parts together (helpers/judging/parts/beyond_chance.py). What no named part explains is left as that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.judging.parts.beyond_chance import check_pairs
from helpers.judging.parts.differences import (
    Difference,
    apart,
    differences_of,
    largest_inside,
    largest_unnamed,
    place_in_step,
)
from helpers.judging.parts.ranks import not_of_ranks, parts_and_ranks, slow_ranks
from helpers.judging.parts.run_facts import FactChange, cost_of, facts_of
from helpers.judging.parts.shared_speed import shared_speeds
from helpers.judging.parts.step_parts import LEAST_SHARE, Grain, ProfiledPair
from helpers.judging.statistics import Interval, mean_interval

# More differences that may be chance only distract from those that are named.
_MOST_UNNAMED = 5


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
    # In what all runs of one build differ from all runs of the other, besides times.
    facts: tuple[FactChange, ...] = ()
    # For each pair, how many times as long the candidate's run took as a whole, which the parts' differences leave out;
    # empty if the builds differ in it beyond chance, and the parts' differences are as measured.
    shared_speeds: tuple[float, ...] = ()
    # Each rank beside the others, whether named or not.
    ranks: tuple[Difference, ...] = ()
    # Of each named phase the part in it that is longer by most, if one is beyond the error rate itself.
    largest_inside: tuple[Difference, ...] = ()

    @property
    def explained_seconds(self) -> float:
        """By the named parts together. Ranks compute side by side, so of several slow ones the slowest counts."""
        ranks = [each.seconds.mean for each in self.named if each.part.level is Grain.RANK]
        others = [
            each.seconds.mean
            for each in self.named
            if each.part.level is not Grain.RANK and not each.part.may_be_beside
        ]
        return math.fsum(others) + max(ranks, default=0.0)

    @property
    def not_explained_seconds(self) -> float:
        return self.drop.mean - self.explained_seconds

    @property
    def is_slower(self) -> bool:
        """Whether the unprofiled step is longer beyond the interval."""
        return self.drop.low > 0


def explain(pairs: Sequence[ProfiledPair], *, is_slower: bool = False) -> Explanation:
    """Compare the runs of both builds, part by part. ``is_slower`` says that the candidate is known to be slower, as
    after a confirmed regression.

    Raises SuiteError for too few or too many pairs: ``LEAST_PAIRS`` to ``MOST_PAIRS``.
    """
    check_pairs(len(pairs))
    parts = parts_and_ranks(pairs)
    usual = statistics.fmean(pair.reference.step_seconds for pair in pairs)
    speeds = shared_speeds(parts)
    found = differences_of(parts, speeds)
    # A consequence, such as values that are no longer in a cache, may be beyond chance and explain nothing.
    beyond_chance = [each for each in found if each.is_named and each.absolute_seconds >= LEAST_SHARE * usual]
    slow = slow_ranks(beyond_chance, pairs, is_slower)
    of_steps = [each for each in beyond_chance if each.part.level is not Grain.RANK]
    of_all = not_of_ranks(of_steps, slow, pairs, is_slower)
    named = sorted([*apart(of_all), *slow], key=_place_among_named)
    phases = [each for each in found if each.part.level is Grain.PHASE]
    return Explanation(
        pairs=len(pairs),
        step_seconds=usual,
        drop=mean_interval([pair.candidate.step_seconds - pair.reference.step_seconds for pair in pairs]),
        named=tuple(named),
        unnamed=largest_unnamed([each for each in found if not each.is_named], named, _MOST_UNNAMED),
        tested=len(parts),
        cost=(cost_of(pair.reference for pair in pairs), cost_of(pair.candidate for pair in pairs)),
        phases=tuple(sorted(phases, key=place_in_step)),
        facts=facts_of(pairs),
        shared_speeds=tuple(math.exp(each) for each in speeds),
        ranks=tuple(each for each in found if each.part.level is Grain.RANK),
        largest_inside=tuple(filter(None, (largest_inside(each, of_all) for each in named))),
    )


def _place_among_named(named: Difference) -> tuple[bool, float]:
    """What takes longer comes first, by what it explains at least: the low end of the interval. So a large part that is
    not well known does not hide a smaller one that is. Of an all-reduce only the phase is known to explain anything."""
    return named.seconds.mean <= 0, 0.0 if named.part.may_be_beside else -named.seconds.low
