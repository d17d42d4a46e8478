"""What other tools would say of the same runs: each rule small, by the tool's documentation or source.

A Rival answers whether it reports a slower case tonight, from runs of two nights; asv and Otava answer where a
whole series of nights gets slower.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from benchmarks.verdict_worlds import DrawnRun

FIXED_SHARE = 0.05
MEDIAN_SHARE = 0.02
MEDIAN_RUNS = 7
RANK_RUNS = 5
RANK_ALPHA = 0.05
ASV_SHARE = 0.05


@dataclass(frozen=True)
class Seen:
    """What a rule may look at."""

    # Runs of the reference build, recorded on night 0.
    first: tuple[DrawnRun, ...]
    # Runs of the build under test.
    tonight: tuple[DrawnRun, ...]
    # The published figure's log rate, where there is one.
    published: float | None = None


@dataclass(frozen=True)
class Rival:
    """Another tool's rule."""

    name: str
    # How many it takes a case and night.
    runs: int
    # Whether it reports a slower case tonight.
    alarm: Callable[[Seen], bool]
    # Whether it needs a published figure; it is not asked where there is none.
    asks_published: bool = False


def below_published(seen: Seen) -> bool:
    """The wall-clock rate of one run, more than 5% under the figure that another stack published."""
    return seen.published is not None and seen.tonight[0].log_mean_rate < seen.published + math.log1p(-FIXED_SHARE)


def below_own(seen: Seen) -> bool:
    """The wall-clock rate of one run, more than 5% under the median of the recorded runs."""
    reference = statistics.median(run.log_mean_rate for run in seen.first)
    return seen.tonight[0].log_mean_rate < reference + math.log1p(-FIXED_SHARE)


def median_of_seven(seen: Seen) -> bool:
    """The median of 7 runs' median steps, more than 2% under that of the 7 recorded ones."""
    tonight, reference = (
        statistics.median(run.log_rate for run in runs[:MEDIAN_RUNS]) for runs in (seen.tonight, seen.first)
    )
    return tonight < reference + math.log1p(-MEDIAN_SHARE)


def pytest_benchmark(seen: Seen) -> bool:
    """``--benchmark-compare --benchmark-compare-fail=mean:5%``: mean seconds of one run against one saved run's."""
    return seen.first[0].log_mean_rate - seen.tonight[0].log_mean_rate > math.log1p(FIXED_SHARE)


def mann_whitney(seen: Seen) -> bool:
    """5 runs against the 5 recorded, two-sided exact p < 0.05 (benchstat's test and level), and slower."""
    tonight, reference = ([run.log_rate for run in runs[:RANK_RUNS]] for runs in (seen.tonight, seen.first))
    slower = statistics.median(tonight) < statistics.median(reference)
    return slower and mann_whitney_p(tonight, reference) < RANK_ALPHA


RIVALS = (
    Rival("-5% of published (other stack)", 1, below_published, asks_published=True),
    Rival("-5% of own reference", 1, below_own),
    Rival("median of 7, -2%", MEDIAN_RUNS, median_of_seven),
    Rival("pytest-benchmark mean:5%", 1, pytest_benchmark),
    Rival("Mann-Whitney 5v5", RANK_RUNS, mann_whitney),
)
# Of each series of log rates, oldest first, the nights from which on it is slower.
Steps = Callable[[Sequence[Sequence[float]]], list[frozenset[int]]]


def asv_steps(series: Sequence[Sequence[float]]) -> list[frozenset[int]]:
    """``asv publish`` at its default of 5%, on seconds: where its step detection sees a series get slower for good."""
    # Late: asv's package imports all of its commands.
    from asv.step_detect import detect_regressions, detect_steps

    found = []
    for nights in series:
        seconds = [math.exp(-log_rate) for log_rate in nights]
        steps = detect_regressions(detect_steps(seconds), ASV_SHARE)[2] if len(seconds) > 1 else None
        found.append(frozenset(before + 1 for before, *_ in steps or ()))
    return found


def otava_steps(series: Sequence[Sequence[float]]) -> list[frozenset[int]]:
    """Where Otava, at p = 0.001 from 0.5% on, sees a series of images/s get slower."""
    # Its package is not needed otherwise, and imports scipy.
    from otava.analysis import compute_change_points

    found = []
    for nights in series:
        with warnings.catch_warnings():
            # Pieces without any spread divide by zero inside scipy, which then answers p = 0 as it should.
            warnings.simplefilter("ignore", RuntimeWarning)
            # It must be a list: Otava 0.8.0 slices an array differently.
            values = [math.exp(log_rate) for log_rate in nights]
            points, _ = compute_change_points(values, window_len=50, max_pvalue=0.001, min_magnitude=0.005)
        found.append(frozenset(int(each.index) for each in points if each.stats.mean_2 < each.stats.mean_1))
    return found


# What looks at the whole series, with the package that it needs; make env does not install asv.
_TRENDS: dict[str, tuple[str, Steps]] = {"asv 5%": ("asv", asv_steps), "Otava": ("otava", otava_steps)}


def absent() -> tuple[str, ...]:
    """The rivals whose package is not installed here."""
    return tuple(name for name, (package, _) in _TRENDS.items() if importlib.util.find_spec(package) is None)


def trends() -> dict[str, Steps]:
    """The rivals that look at the whole series, as far as they are installed."""
    missing = absent()
    return {name: steps for name, (_, steps) in _TRENDS.items() if name not in missing}


def mann_whitney_p(one: Sequence[float], other: Sequence[float]) -> float:
    """Two-sided exact p of the rank sum test; equal values count half."""
    wins = sum((left > right) + 0.5 * (left == right) for left in one for right in other)
    sums = _rank_sums(len(one), len(other))
    middle = len(one) * len(other) / 2
    return sum(abs(each - middle) >= abs(wins - middle) for each in sums) / len(sums)


@lru_cache(maxsize=8)
def _rank_sums(ones: int, others: int) -> tuple[int, ...]:
    """U of every way to deal the ranks to the two samples."""
    least = ones * (ones - 1) // 2
    return tuple(sum(ranks) - least for ranks in itertools.combinations(range(ones + others), ones))
