"""What finds the first bad build: the suite's own search, and others on the same pairs turned into pass and fail."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.bisect_world import BUILDS, Builds
from helpers.judging.bisect.search import (
    CERTAIN,
    BisectAnswer,
    BisectEnd,
    Bisection,
    MeasuredPair,
    Measurement,
    Untestable,
    next_step,
)

BUDGET_RUNS = 400
# What a rule that takes half of the drop for its threshold measures it with.
_DROP_PAIRS = 3
OWN = "this search"


@dataclass(frozen=True)
class Found:
    """How one search ended. A claim is an answer that a user would act on: for rules with a probability, at 99%."""

    claimed: bool
    # Whether the first bad build is in the answer, claimed or not.
    right: bool
    # How many builds the answer holds.
    builds: int
    runs: int
    end: str = ""
    unexplained: bool = False
    # How many runs were expected once the bad build was shown to be slower; 0 where it never was.
    expected_runs: int = 0


Rule = Callable[[Builds], Found]


def own(builds: Builds, sigma_factor: float = 1.0) -> Found:
    """helpers.judging.bisect.search; ``sigma_factor`` makes what is known of the noise wrong.

    Every pair that a step asks for is made. ``perfgate bisect`` looks after each, and may leave the last ones out
    (helpers.session.bisect).
    """
    names = tuple(f"build {place}" for place in range(BUILDS))
    search = Bisection(names, builds.sigma * sigma_factor, budget_runs=BUDGET_RUNS)
    measured: list[Measurement] = []
    repeats = Counter[int]()
    expected, runs = 0, 0
    while True:
        step = next_step(search, measured)
        if isinstance(step, BisectAnswer):
            break
        if step.expected_runs is not None and not expected:
            expected = runs + step.expected_runs
        if step.build in builds.failing:
            measured.append(Untestable(step.build, "crashes"))
            runs += 1
            continue
        for _ in range(step.pairs):
            measured.append(MeasuredPair(step.build, *builds.pair(step.build, repeats[step.build])))
            repeats[step.build] += 1
            runs += 2
    if step.first is None or step.last is None:
        return Found(False, False, 0, step.runs, step.end.value, expected_runs=expected)
    return Found(
        claimed=step.end in (BisectEnd.FOUND, BisectEnd.HIDDEN),
        right=step.first <= builds.first_bad <= step.last,
        builds=step.last - step.first + 1,
        runs=step.runs,
        end=step.end.value,
        unexplained=step.unexplained,
        expected_runs=expected,
    )


def git_bisect(builds: Builds, pairs: int) -> Found:
    """``git bisect`` with skip: a build is bad where the median of ``pairs`` differences is beyond the threshold."""
    least, runs = _threshold(builds)
    good, bad = 0, BUILDS - 1
    while True:
        middle = (good + bad) / 2
        candidates = sorted(range(good + 1, bad), key=lambda build: (abs(build - middle), build))
        for build in candidates:
            if build not in builds.failing:
                break
            runs += 1
        else:
            break
        runs += 2 * pairs
        slow = statistics.median(builds.difference(build, repeat) for repeat in range(pairs)) < least
        good, bad = (good, build) if slow else (build, bad)
    return Found(True, good < builds.first_bad <= bad, bad - good, runs)


# It takes the logarithm of the prior that a skip sets to 0, and then does not use it.
@np.errstate(divide="ignore", invalid="ignore")
def git_bayesect(builds: Builds) -> Found:
    """git_bayesect's own Bisector in-process: every pair passes or fails, until one build has 99%."""
    from git_bayesect import Bisector

    least, runs = _threshold(builds)
    # Its place 0 is the newest build.
    bisector = Bisector([1] * BUILDS)
    for repeat in range(_DROP_PAIRS):
        bisector.record(0, builds.difference(BUILDS - 1, repeat) < least)
    repeats = Counter({BUILDS - 1: _DROP_PAIRS})
    skipped: set[int] = set()
    while bisector.distribution.max() < CERTAIN and runs + 2 <= BUDGET_RUNS:
        wanted = BUILDS - 1 - bisector.select()
        build = min((each for each in range(BUILDS) if each not in skipped), key=lambda each: abs(each - wanted))
        if build in builds.failing:
            skipped.add(build)
            bisector.record(BUILDS - 1 - build, None)
            runs += 1
            continue
        bisector.record(BUILDS - 1 - build, builds.difference(build, repeats[build]) < least)
        repeats[build] += 1
        runs += 2
    named = BUILDS - 1 - int(bisector.distribution.argmax())
    return Found(bool(bisector.distribution.max() >= CERTAIN), named == builds.first_bad, 1, runs)


def _threshold(builds: Builds) -> tuple[float, int]:
    """Half of the drop that some pairs of the bad build show, below which a pair fails; and how many runs it took."""
    drop = statistics.median(builds.difference(BUILDS - 1, repeat) for repeat in range(_DROP_PAIRS))
    return min(drop, 0.0) / 2, 2 * _DROP_PAIRS


RULES: dict[str, Rule] = {
    OWN: own,
    "git bisect, half": partial(git_bisect, pairs=1),
    "median of 3, half": partial(git_bisect, pairs=3),
    "git_bayesect, half": git_bayesect,
}
