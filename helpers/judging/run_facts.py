"""What runs of two builds differ in besides the times of the parts of a step: clocks, threads, other facts, what the
profiler costs, and how long gradients are reduced beside computation. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helpers.judging.beyond_chance import adjusted_p_values
from helpers.judging.profile_parts import ProfiledPair, ProfiledRun
from helpers.judging.shared_speed import SPEED_ERROR_RATE
from helpers.judging.statistics import Interval, mean_interval
from helpers.machine.environment import CPU_MHZ, MEMORY_MHZ, SM_MHZ

# A profiler that makes a step longer by more changes what it measures.
MOST_COST = 0.2
# The fact that says how many threads compute in each rank.
THREADS = "threads"
# The measured clocks. The cap of a clock is a setting, and a fact as all others.
_CLOCKS = (SM_MHZ, MEMORY_MHZ, CPU_MHZ)
# Clocks that differ by less make no step slower that could be found.
_LEAST_CLOCK = 0.005


@dataclass(frozen=True)
class Clock:
    """A clock in which the builds differ beyond chance: the means over the runs' medians in the measured window."""

    name: str
    reference_mhz: float
    candidate_mhz: float
    p_value: float


@dataclass(frozen=True)
class ReducedBeside:
    """How long gradients are reduced while the device computes, in seconds per step, which is part of other phases."""

    reference_seconds: float
    candidate_seconds: float
    difference: Interval


def reduced_beside(pairs: Sequence[ProfiledPair]) -> ReducedBeside | None:
    """The means over the ranks and runs; None if nothing is reduced beside computation in any run."""
    old = [_beside(pair.reference) for pair in pairs]
    new = [_beside(pair.candidate) for pair in pairs]
    if not any((*old, *new)):
        return None
    differences = [after - before for before, after in zip(old, new, strict=True)]
    return ReducedBeside(statistics.fmean(old), statistics.fmean(new), mean_interval(differences))


def _beside(run: ProfiledRun) -> float:
    return statistics.fmean(profile.all_reduce_overlapped_seconds for profile in run.profiles)


def cost_of(runs: Iterable[ProfiledRun]) -> float | None:
    """The median over the runs of ``profiling_cost``; None if no run tells it."""
    known = [each for each in map(profiling_cost, runs) if each is not None]
    return statistics.median(known) if known else None


def profiling_cost(run: ProfiledRun) -> float | None:
    """By what fraction the profiler made the run's steps longer: the median of its ranks; None if it is not known."""
    known = [each for each in (profile.cost for profile in run.profiles) if each is not None]
    return statistics.median(known) if known else None


def clocks_of(pairs: Sequence[ProfiledPair]) -> tuple[Clock, ...]:
    """The clocks in which the builds differ, of those that all runs have."""
    runs = [run for pair in pairs for run in (pair.reference, pair.candidate)]
    names = [name for name in _CLOCKS if all(_mhz(run, name) > 0 for run in runs)]
    sides = {
        name: ([_mhz(pair.reference, name) for pair in pairs], [_mhz(pair.candidate, name) for pair in pairs])
        for name in names
    }
    differences = [[new - old for old, new in zip(*sides[name], strict=True)] for name in names]
    means = {name: (statistics.fmean(old), statistics.fmean(new)) for name, (old, new) in sides.items()}
    p_values = adjusted_p_values(differences, [sum(means[name]) / 2 for name in names])
    return tuple(
        Clock(name, *means[name], p_value)
        for name, p_value in zip(names, p_values, strict=True)
        if p_value <= SPEED_ERROR_RATE and abs(means[name][1] / means[name][0] - 1) >= _LEAST_CLOCK
    )


def _mhz(run: ProfiledRun, name: str) -> float:
    """The run's clock, the mean of its cards; 0 if it is not known."""
    try:
        return statistics.fmean(map(float, run.facts.get(name, "").split()))
    except (ValueError, statistics.StatisticsError):
        return 0.0


def facts_of(pairs: Sequence[ProfiledPair]) -> tuple[tuple[str, str, str], ...]:
    """The facts that each build's runs agree on and the builds do not; the number of busy threads is the first."""
    sides = [[_own_facts(pair.reference) for pair in pairs], [_own_facts(pair.candidate) for pair in pairs]]
    found = []
    for name in dict.fromkeys(name for side in sides for run in side for name in run):
        old, new = ({run.get(name, "") for run in side} for side in sides)
        if len(old) == len(new) == 1 and old != new:
            found.append((name, old.pop(), new.pop()))
    return tuple(found)


def _own_facts(run: ProfiledRun) -> dict[str, str]:
    threads = ", ".join(str(profile.threads) for profile in run.profiles)
    others = {name: value for name, value in run.facts.items() if name not in (THREADS, *_CLOCKS)}
    return {THREADS: threads, **others}
