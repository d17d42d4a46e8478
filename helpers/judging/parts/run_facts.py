"""What runs of two builds differ in besides the times of the parts of a step: clocks, threads, other facts, and what
the profiler costs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from helpers.judging.parts.step_parts import ProfiledPair, ProfiledRun
from helpers.machine.environment import CPU_MHZ, MEMORY_MHZ, SM_MHZ

# A profiler that makes a step longer by more changes what it measures.
MOST_COST = 0.2
# The fact that says how many threads compute in each rank.
THREADS = "threads"
# The measured clocks. The cap of a clock is a setting, and a fact as all others.
CLOCKS = (SM_MHZ, MEMORY_MHZ, CPU_MHZ)
# Clocks that differ by less make no step slower that could be found.
_LEAST_CLOCK = 0.005

# A fact's name, and its value with each build.
FactChange = tuple[str, str, str]


def cost_of(runs: Iterable[ProfiledRun]) -> float | None:
    """The median over the runs of ``profiling_cost``; None if no run tells it."""
    known = [each for each in map(profiling_cost, runs) if each is not None]
    return statistics.median(known) if known else None


def profiling_cost(run: ProfiledRun) -> float | None:
    """By what fraction the profiler made the run's steps longer: the median of its ranks; None if it is not known."""
    known = [each for each in (profile.cost for profile in run.profiles) if each is not None]
    return statistics.median(known) if known else None


def facts_of(pairs: Sequence[ProfiledPair]) -> tuple[FactChange, ...]:
    """The facts that each build's runs agree on and the builds do not, and the clocks that are higher in all runs of
    one build than in any of the other; the number of busy threads is the first."""
    sides = [[_own_facts(pair.reference) for pair in pairs], [_own_facts(pair.candidate) for pair in pairs]]
    found = []
    for name in dict.fromkeys(name for side in sides for run in side for name in run):
        old, new = ([run.get(name, "") for run in side] for side in sides)
        if name in CLOCKS:
            found += _clock(name, [*map(_mhz, old)], [*map(_mhz, new)])
        elif len(set(old)) == len(set(new)) == 1 and old[0] != new[0]:
            found.append((name, old[0], new[0]))
    return tuple(found)


def _clock(name: str, old: Sequence[float], new: Sequence[float]) -> list[FactChange]:
    """With 6 runs of each build, equal ones are apart in 2 of 924 cases."""
    if not all((*old, *new)) or not (max(old) < min(new) or max(new) < min(old)):
        return []
    before, after = statistics.fmean(old), statistics.fmean(new)
    change = after / before - 1
    return [(name, f"{before:.0f}", f"{after:.0f} MHz ({change:+.1%})")] if abs(change) >= _LEAST_CLOCK else []


def _mhz(clocks: str) -> float:
    """The mean of a run's cards; 0 if it is not known."""
    try:
        return statistics.fmean(map(float, clocks.split()))
    except (ValueError, statistics.StatisticsError):
        return 0.0


def _own_facts(run: ProfiledRun) -> dict[str, str]:
    threads = ", ".join(str(profile.threads) for profile in run.profiles)
    return {THREADS: threads, **{name: value for name, value in run.facts.items() if name != THREADS}}
