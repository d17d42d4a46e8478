"""Futures of 120 nights: what happens to a machine in its first months, and what the procedure says of it.

A part of the cases is recorded while the machine is slow. On night 30 some cases gain, on night 60 every second machine
gets a new reference build, on night 80 the build under test brings another library, with which some cases lose 2%, and
on night 100 the gains are lost. Each loss is repaired after three nights. On some nights branches leave in which other
cases are slower (benchmarks.verdicts, as everything here, counts what is said of them).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.verdict_memory import HeldNights
from benchmarks.verdict_replay import YOUNG_NIGHTS, Score, Scores
from benchmarks.verdict_session import JudgedNight, Machine, Stack
from benchmarks.verdict_worlds import CASES, LARGEST_GAIN, SMALLEST_GAIN, At, Changed, DrawnRun, Synthetic
from helpers.judging.case.evidence import Build
from helpers.judging.case.verdict import Status

SLOW_DAY = 0.048
LIBRARY_LOSS = 0.02
# After so many nights somebody has repaired a loss.
_LASTS = 3
_FIRST_RECORDED = 1000
_SLOW_DAY_CASES, _GAINED, _LIBRARY_CASES = 15, 15, 12
PERCENTS = (1.0, 2.0, 3.0)
_CASES_A_DROP = 3
_NOISY_CARDS, _NOISY_PERCENT = 32, 2.0
# The first nights after the record, and one when the cases have a history of their own.
_SLOW_DAY_NIGHTS = (0, 1, 20)
OF_SLOW_DAY = "a loss of 4.8% of cases recorded on a slow day"


@dataclass(frozen=True)
class Dates:
    """The nights on which something happens; None: it does not happen."""

    gain: int | None = 30
    pin: int | None = 60
    library: int | None = 80
    loss: int | None = 100
    nights: int = 120


@dataclass(frozen=True)
class Period:
    """Nights that are counted together."""

    name: str
    first: int
    last: int
    # The nights on which branches with drops leave.
    branches: tuple[int, ...] = ()


PERIODS = (
    Period("the first 15", 0, YOUNG_NIGHTS - 1),
    Period("a gain on 30", YOUNG_NIGHTS, 59, (41,)),
    Period("a new reference build on 60", 60, 79, (62, 75)),
    Period("another library on 80", 80, 99, (84, 98)),
    Period("the gain lost on 100", 100, 119, (118,)),
)


@dataclass(frozen=True, eq=False)
class Lived(Changed):
    """``whole``, to whose cases something happens on the nights of ``dates``."""

    dates: Dates = field(default_factory=Dates)
    # Recorded while the machine was slow.
    slow_day: Collection[int] = ()
    # By what fraction a case gains.
    gains: Mapping[int, float] = field(default_factory=dict)
    # Those that lose with the other library.
    library: Collection[int] = ()

    def run(self, at: At, case: int, build: Build, number: int) -> DrawnRun:
        drawn = self.whole.run(at, case, build, number)
        if number >= _FIRST_RECORDED:
            return drawn.slowed(SLOW_DAY if case in self.slow_day else 0.0)
        if build is Build.CANDIDATE:
            return drawn.slowed(self._slower(case, at.night))
        pinned = self.dates.pin is not None and at.night >= self.dates.pin
        # The new reference build is the build under test of the night before.
        return drawn.slowed(self._slower(case, (self.dates.pin or 0) - 1)) if pinned else drawn

    def _slower(self, case: int, night: int) -> float:
        """By what fraction the build under test is slower than the first reference build; below 0 if it is faster."""
        gained = _since(self.dates.gain, night) and not _while(self.dates.loss, night)
        rate = 1 + self.gains.get(case, 0.0) if gained else 1.0
        if case in self.library and _while(self.dates.library, night):
            rate *= 1 - LIBRARY_LOSS
        return 1 - rate

    def stack(self, night: int) -> Stack:
        usual = Stack()
        good = "accepted" if _since(self.dates.pin, night) else usual.good
        return Stack(good, "9.5" if _since(self.dates.library, night) else usual.cudnn)

    def has_lost(self, case: int, night: int) -> bool:
        """Whether the build under test is slower than what was accepted."""
        lost = case in self.gains and _since(self.dates.gain, night) and _while(self.dates.loss, night)
        return lost or (case in self.library and _while(self.dates.library, night))

    def may_improve(self, case: int, night: int) -> bool:
        return case in self.gains and _since(self.dates.gain, night)


def _since(first: int | None, night: int) -> bool:
    return first is not None and night >= first


def _while(first: int | None, night: int) -> bool:
    return first is not None and first <= night < first + _LASTS


@dataclass
class Year:
    """The nights of one machine and what is counted of them."""

    nights: Lived
    machine: Machine
    seed: Sequence[int]
    memory: HeldNights = field(default_factory=HeldNights)
    scores: Scores = field(default_factory=dict)
    improved: set[int] = field(default_factory=set)

    def live(self) -> Scores:
        for period in PERIODS:
            own = self.scores.setdefault(period.name, Score())
            lost: dict[int, list[Status]] = {}
            for night in range(period.first, min(period.last + 1, self.nights.dates.nights)):
                self._branches(night, period, own)
                judged = self.machine.night(At(0, night), self.memory, stack=self.nights.stack(night))
                self._count(own, night, judged)
                for case, said in enumerate(judged.statuses):
                    if self.nights.has_lost(case, night) and self._accepted(case, night):
                        lost.setdefault(case, []).append(said)
            for told in lost.values():
                own.loss(told)
        return self.scores

    def _accepted(self, case: int, night: int) -> bool:
        """Whether what the case has lost was its accepted level: nobody has a gain that no night noticed."""
        pinned = self.nights.dates.pin is not None and night >= self.nights.dates.pin
        return case not in self.nights.gains or case in self.improved or pinned

    def _count(self, score: Score, night: int, judged: JudgedNight) -> None:
        """Count what is said of the cases that have not lost anything."""
        quiet = [case for case in range(len(self.machine.plans)) if not self.nights.has_lost(case, night)]
        said = [judged.statuses[case] for case in quiet]
        score.quiet_night(said, sum(len(judged.results[case].runs) for case in quiet))
        for case, status in zip(quiet, said, strict=True):
            if status is Status.IMPROVEMENT and case not in self.improved and self.nights.may_improve(case, night):
                self.improved.add(case)
                score.better -= 1

    def _branches(self, night: int, period: Period, score: Score) -> None:
        for number, drops in enumerate(self._drops(night, period)):
            at = At(branch_of(night, number), night)
            shares = {case: percent / 100 for case, percent in drops.items()}
            said = self.machine.night(at, self.memory.fork(), shares, stack=self.nights.stack(night)).statuses
            noisy = set(drops.values()) == {_NOISY_PERCENT}
            for case, percent in drops.items():
                score.drop(percent, self.machine.plans[case].case.cards, [said[case]], whole=not noisy)
        if night in _SLOW_DAY_NIGHTS and self.nights.slow_day:
            losing = sorted(self.nights.slow_day)[:: max(1, len(self.nights.slow_day) // _CASES_A_DROP)]
            at, shares = At(branch_of(night, 2), night), dict.fromkeys(losing, SLOW_DAY)
            said = self.machine.night(at, self.memory.fork(), shares, stack=self.nights.stack(night)).statuses
            of_slow_day = self.scores.setdefault(f"{OF_SLOW_DAY}, night {night}", Score())
            for case in losing:
                of_slow_day.drop(100 * SLOW_DAY, self.machine.plans[case].case.cards, [said[case]])

    def _drops(self, night: int, period: Period) -> Iterator[dict[int, float]]:
        """Percents by case: one branch with drops of every size, and one with drops on many cards only."""
        if night not in period.branches:
            return
        generator = np.random.default_rng([*self.seed, 13, night])
        # What loses anyway would lose twice.
        able = [case for case in range(len(self.machine.plans)) if not self.nights.has_lost(case, night)]
        chosen = generator.permutation(able)[: _CASES_A_DROP * len(PERCENTS)]
        yield {int(case): PERCENTS[place % len(PERCENTS)] for place, case in enumerate(chosen)}
        noisiest = [case for case in able if self.machine.plans[case].case.cards == _NOISY_CARDS]
        yield dict.fromkeys(map(int, generator.permutation(noisiest)[:_CASES_A_DROP]), _NOISY_PERCENT)


def branch_of(night: int, number: int) -> int:
    return 10_000 + 10 * night + number


def lived(seed: int, world: int) -> Lived:
    """A machine's life; every second machine keeps its first reference build."""
    nights = {night for period in PERIODS for night in period.branches} | set(_SLOW_DAY_NIGHTS)
    forks = {branch_of(night, number): night for night in nights for number in range(3)}
    generator = np.random.default_rng([seed, world, 12])
    order = [int(case) for case in generator.permutation(len(CASES))]
    slow, gained, library = (
        order[:_SLOW_DAY_CASES],
        order[_SLOW_DAY_CASES : _SLOW_DAY_CASES + _GAINED],
        order[-_LIBRARY_CASES:],
    )
    sizes = np.exp(generator.uniform(math.log(SMALLEST_GAIN), math.log(LARGEST_GAIN), size=len(gained)))
    return Lived(
        Synthetic(seed, world, forks=forks),
        Dates() if world % 2 == 0 else Dates(pin=None),
        frozenset(slow),
        dict(zip(gained, map(float, sizes), strict=True)),
        frozenset(library),
    )


def live(world: int, *, seed: int) -> Scores:
    """The life of one machine: its scores by period."""
    nights = lived(seed, world)
    return Year(nights, Machine.of(nights), (seed, world)).live()
