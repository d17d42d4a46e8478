"""Builds of which one brought a drop, measured with the noise of docs/accuracy.md, "What the nights are".

Every pair is drawn from a seed of its own (search, build, repeat), so that all rules are asked about the same
measurements, in whatever order they want them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from benchmarks.verdict_worlds import BURN_IN_NIGHTS, CASES, At, Synthetic
from helpers.judging.case.evidence import Build
from helpers.judging.case.noise import learn

BUILDS = 64
# So many repeats of one build are made in a night; the next ones see other weather.
_REPEATS_A_NIGHT = 4
_BRANCH = 1
_RUNS_A_BUILD = 10_000


@dataclass(frozen=True, eq=False)
class Builds:
    """The builds of one search: number 0 is good, the last one is bad, and ``first_bad`` has the drop."""

    seed: int
    number: int
    cards: int
    # By place, how much slower the change that comes with it makes everything from there on.
    drops_percent: dict[int, float]
    # Places of the builds that fail.
    failing: frozenset[int]
    _pairs: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    @property
    def first_bad(self) -> int:
        """The place with the largest drop."""
        return max(self.drops_percent, key=self.drops_percent.__getitem__)

    @cached_property
    def nights(self) -> Synthetic:
        return Synthetic(self.seed, self.number)

    @cached_property
    def case(self) -> int:
        """One of the machine's cases on so many cards."""
        like = [index for index, case in enumerate(CASES) if case.cards == self.cards]
        return like[self.number % len(like)]

    @cached_property
    def sigma(self) -> float:
        """What the accepted nights before the search say of the standard deviation between runs."""
        runs = (self.nights.run(At(0, night), self.case, Build.CANDIDATE, 0) for night in range(BURN_IN_NIGHTS))
        return learn([[run.log_rate] for run in runs]).sigma

    def pair(self, build: int, repeat: int) -> tuple[float, float]:
        """Log rates of the good build and of ``build`` in turn with it."""
        key = build, repeat
        if key not in self._pairs:
            at = At(_BRANCH, BURN_IN_NIGHTS + repeat // _REPEATS_A_NIGHT)
            number = build * _RUNS_A_BUILD + repeat
            good = self.nights.run(at, self.case, Build.REFERENCE, number)
            probed = self.nights.run(at, self.case, Build.CANDIDATE, number)
            for place, percent in self.drops_percent.items():
                if build >= place:
                    probed = probed.slowed(percent / 100)
            self._pairs[key] = good.log_rate, probed.log_rate
        return self._pairs[key]

    def difference(self, build: int, repeat: int) -> float:
        good, probed = self.pair(build, repeat)
        return probed - good


def drawn(seed: int, number: int, cards: int, drops_percent: tuple[float, ...], failing_share: float) -> Builds:
    """The changes at different places, each equally likely; the good and the bad build never fail."""
    generator = np.random.default_rng([seed, number, 11])
    places = generator.permutation(np.arange(1, BUILDS))[: len(drops_percent)]
    fails = np.flatnonzero(generator.random(BUILDS) < failing_share)
    failing = frozenset(int(place) for place in fails if 0 < place < BUILDS - 1)
    drops = {int(place): percent for place, percent in zip(places, drops_percent, strict=True)}
    return Builds(seed, number, cards, drops, failing)
