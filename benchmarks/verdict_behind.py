"""Machines on which gains were accepted and the pinned good build was left behind, and on which they are lost again.

Every case's build under test is faster than the pin by 1 to 8%. Of every second case that faster build was recorded,
and the pin is another one; the others gain it on a night of their history, and nobody pins anew. A future with
losses takes some of it away again: the build is then slower than what was accepted, and often still faster than the
pin, which must not be called faster (docs/verdicts.md, "Level against the good build").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.verdict_worlds import At, DrawnRun, Nights
from helpers.judging.evidence import Build
from helpers.trainers.contract.case import Case

# Two weeks after it there is a history again.
GAIN_NIGHT = 20
SMALLEST_GAIN, LARGEST_GAIN = 0.01, 0.08
LOSSES_PERCENT = (0.5, 1, 2, 3, 5)


@dataclass(frozen=True, eq=False)
class LeftBehind:
    """``whole``, with a build under test that has left the good build behind; ``seed`` draws by how much."""

    whole: Nights
    seed: int
    world: int = 0

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.whole.cases

    @property
    def published(self) -> tuple[float, ...]:
        return self.whole.published

    @property
    def recorded_faster(self) -> frozenset[int]:
        """The cases whose entry was recorded with the faster build."""
        return frozenset(range(0, len(self.cases), 2))

    @cached_property
    def gains(self) -> tuple[float, ...]:
        """By case, as a fraction of the pin's images/s; log-uniform."""
        generator = np.random.default_rng([self.seed, self.world, 9])
        logs = generator.uniform(math.log(SMALLEST_GAIN), math.log(LARGEST_GAIN), size=len(self.cases))
        return tuple(map(float, np.exp(logs)))

    def run(self, at: At, case: int, build: Build, number: int) -> DrawnRun:
        drawn = self.whole.run(at, case, build, number)
        gained = case in self.recorded_faster or at.night >= GAIN_NIGHT
        return drawn.slowed(-self.gains[case]) if build is Build.CANDIDATE and gained else drawn
