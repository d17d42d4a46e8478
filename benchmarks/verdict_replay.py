"""What each rule says of forty nights that all futures share, and of many futures of three nights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.verdict_memory import HeldNights
from benchmarks.verdict_rivals import RIVALS, Seen, Steps
from benchmarks.verdict_session import JudgedNight, Machine, drawn_with
from benchmarks.verdict_worlds import BURN_IN_NIGHTS, FRESH_NIGHTS, At
from helpers.judging.case.evidence import Build
from helpers.judging.case.verdict import Status

DROPS_PERCENT = (0.5, 1, 2, 3, 5, 10)
PROCEDURE = "this procedure"
FIRST_NIGHTS = "this procedure, its first 15 nights"
# Where gains were accepted, the pin was left behind, and the gains are lost again (verdict_worlds.LeftBehind).
LOST = "this procedure, gains lost again"
LOST_FIRST = "this procedure, gains lost again, its first 15 nights"
YOUNG_NIGHTS = 15
_SAME_STEP_NIGHTS = 1
_UNJUDGED = (Status.INCOMPARABLE, Status.NO_BASELINE)


@dataclass
class Score:
    """What a rule did. Drops are counted by percent."""

    # Nights without drops: false alarms on them, and what was INCONCLUSIVE.
    nights: int = 0
    alarms: int = 0
    unsure: int = 0
    # Cases that were not judged, though a reference build was at hand.
    unjudged: int = 0
    # Improvements seen where there are none.
    better: int = 0
    # Quiet nights that did not pass as a whole.
    not_passed: int = 0
    # Runs of both builds on so many nights of cases without drops.
    case_nights: int = 0
    runs: int = 0
    # The same on nights on which the whole machine is slow.
    slow_nights: int = 0
    slow_alarms: int = 0
    slow_unsure: int = 0
    slow_not_passed: int = 0
    # The drops, and those found on the first night and within three nights.
    injected: Counter[float] = field(default_factory=Counter)
    first_night: Counter[float] = field(default_factory=Counter)
    three_nights: Counter[float] = field(default_factory=Counter)
    # First nights with a drop that passed.
    passed: Counter[float] = field(default_factory=Counter)
    # The drops and those found on the first night, by percent and cards.
    injected_on: Counter[tuple[float, int]] = field(default_factory=Counter)
    found_on: Counter[tuple[float, int]] = field(default_factory=Counter)
    # Nights with a drop that were answered by an IMPROVEMENT.
    called_faster: int = 0
    # Losses of the world's own (benchmarks.verdict_lives), and those found on the first night and within three.
    losses: int = 0
    losses_at_once: int = 0
    losses_in_three: int = 0
    # (alarms, unsure, nights) of each world.
    by_world: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, other: Score) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def quiet_night(self, said: Sequence[Status], runs: int) -> None:
        self.nights += 1
        self.case_nights += len(said)
        self.runs += runs
        self.alarms += _failed(said)
        self.unsure += said.count(Status.INCONCLUSIVE)
        self.unjudged += sum(said.count(status) for status in _UNJUDGED)
        self.better += said.count(Status.IMPROVEMENT)

    def slow_night(self, said: Sequence[Status]) -> None:
        self.slow_nights += 1
        self.slow_alarms += _failed(said)
        self.slow_unsure += said.count(Status.INCONCLUSIVE)

    def loss(self, said: Sequence[Status]) -> None:
        """Count a loss of the world's own by what was said on each of its nights."""
        found = [each is Status.REGRESSION for each in said]
        self.losses += 1
        self.losses_at_once += found[0]
        self.losses_in_three += any(found)
        self.called_faster += said.count(Status.IMPROVEMENT)

    def drop(self, percent: float, cards: int, said: Sequence[Status], whole: bool = True) -> None:
        """Count a drop by what was said on each of its nights; not ``whole``: only among those of so many cards."""
        found = [each is Status.REGRESSION for each in said]
        self.injected_on[percent, cards] += 1
        self.found_on[percent, cards] += found[0]
        self.called_faster += said.count(Status.IMPROVEMENT)
        if whole:
            self.injected[percent] += 1
            self.first_night[percent] += found[0]
            self.three_nights[percent] += any(found)
            self.passed[percent] += said[0] is Status.PASS


def _failed(said: Sequence[Status]) -> int:
    return said.count(Status.REGRESSION) + said.count(Status.SLOWER)


Scores = dict[str, Score]


def add_world(total: Scores, world: Scores) -> None:
    """Add the scores of one world."""
    for rule, score in world.items():
        mine = total.setdefault(rule, Score())
        mine.add(score)
        mine.by_world.append((score.alarms, score.unsure, score.nights))


@dataclass(frozen=True)
class Future:
    """Three nights after the shared ones; one night where it is ``slow`` or ``noisy``."""

    branch: int
    # By case, in percent, by how much the build under test is slower on all of the nights; none: a quiet future.
    drops: Mapping[int, float] = field(default_factory=dict)
    # Whether the machine is slow.
    slow: bool = False
    # Whether the rules that look at the whole series (asv, Otava) are asked too; they are slow.
    trended: bool = False
    # Whether its drops are all of one size and on the noisiest cases, so that it says nothing of the other cases.
    noisy: bool = False

    @property
    def nights(self) -> tuple[At, ...]:
        many = 1 if self.slow or self.noisy else FRESH_NIGHTS
        return tuple(At(self.branch, BURN_IN_NIGHTS + more) for more in range(many))

    @property
    def shares(self) -> dict[int, float]:
        return {case: percent / 100 for case, percent in self.drops.items()}


@dataclass
class Replay:
    """A machine's nights, judged by the procedure and its rivals."""

    machine: Machine
    # The rivals that look at the whole series.
    trends: Mapping[str, Steps] = field(default_factory=dict)
    # Where gains are lost, and rivals are not asked: the cases whose build under test was faster than the reference
    # build from the first night on. For the others a drop is counted where their gain was confirmed in the shared
    # nights. None: all drops count.
    behind: Collection[int] | None = None
    memory: HeldNights = field(default_factory=HeldNights)
    scores: Scores = field(default_factory=dict)
    series: list[list[float]] = field(default_factory=list)
    gained: set[int] = field(default_factory=set)

    def run(self, futures: Sequence[Future]) -> Scores:
        """The scores of all rules over all futures."""
        self._burn_in()
        for future in futures:
            self._judged(future)
            if self.behind is None and not future.noisy:
                self._rivals(future)
        if self.behind is None:
            self._trends([future for future in futures if future.trended])
        return self.scores

    @property
    def rule(self) -> str:
        return PROCEDURE if self.behind is None else LOST

    def _score(self, rule: str) -> Score:
        return self.scores.setdefault(rule, Score())

    def _burn_in(self) -> None:
        self.series = [[] for _ in self.machine.plans]
        first = FIRST_NIGHTS if self.behind is None else LOST_FIRST
        for night in range(BURN_IN_NIGHTS):
            judged = self.machine.night(At(0, night), self.memory)
            for case, values in enumerate(self.series):
                values.append(self.machine.nights.run(At(0, night), case, Build.CANDIDATE, 0).log_rate)
            if night < YOUNG_NIGHTS:
                self._score(first).quiet_night(judged.statuses, judged.runs)
            elif self.behind is None:
                # All futures of a machine go on from one drift, so its shared nights say more than they do.
                self._quiet(self._score(self.rule), judged)
            self.gained.update(case for case, said in enumerate(judged.statuses) if said is Status.IMPROVEMENT)

    def _judged(self, future: Future) -> None:
        memory, score = self.memory.fork(), self._score(self.rule)
        nights: list[list[Status]] = []
        for at in future.nights:
            judged = self.machine.night(at, memory, future.shares)
            nights.append(judged.statuses)
            if future.slow:
                score.slow_not_passed += not _passed(judged)
            elif not future.drops:
                self._quiet(score, judged)
        self._found(score, future, nights)

    @staticmethod
    def _quiet(score: Score, judged: JudgedNight) -> None:
        score.quiet_night(judged.statuses, judged.runs)
        score.not_passed += not _passed(judged)

    def _found(self, score: Score, future: Future, nights: Sequence[Sequence[Status]]) -> None:
        """Count drops and slow nights; quiet nights are counted with their runs."""
        if future.slow:
            score.slow_night(nights[0])
        for case, percent in future.drops.items():
            if self.behind is None or case in self.behind or case in self.gained:
                cards = self.machine.plans[case].case.cards
                score.drop(percent, cards, [said[case] for said in nights], whole=not future.noisy)

    def _rivals(self, future: Future) -> None:
        seen = [[self._seen(future, at, case) for case in range(len(self.machine.plans))] for at in future.nights]
        for rival in RIVALS:
            if rival.asks_published and not self.machine.nights.published:
                continue
            self._count(rival.name, rival.runs, future, [[rival.alarm(each) for each in night] for night in seen])

    def _count(self, rule: str, runs: int, future: Future, alarms: Sequence[Sequence[bool]]) -> None:
        score = self._score(rule)
        nights = [[Status.REGRESSION if alarm else Status.PASS for alarm in night] for night in alarms]
        if not future.drops and not future.slow:
            for said in nights:
                score.quiet_night(said, runs * len(said))
        self._found(score, future, nights)

    def _seen(self, future: Future, at: At, case: int) -> Seen:
        nights, most = self.machine.nights, max(rival.runs for rival in RIVALS)
        drawn = [drawn_with(nights, at, case, Build.CANDIDATE, number, future.shares) for number in range(most)]
        published = nights.published[case] if nights.published else None
        return Seen(self.machine.first[case], tuple(drawn), published)

    def _trends(self, futures: Sequence[Future]) -> None:
        """Count what asv and Otava say: an alarm is a step reported tonight that was not reported the night before."""
        series = {(0, case, BURN_IN_NIGHTS - 1): tuple(values) for case, values in enumerate(self.series)}
        for future in futures:
            for case in range(len(self.series)):
                for at in future.nights:
                    tonight = drawn_with(self.machine.nights, at, case, Build.CANDIDATE, 0, future.shares)
                    series[at.branch, case, at.night] = (*series[_before(at, case)], tonight.log_rate)
        for rule, steps in self.trends.items():
            found = dict(zip(series, steps(tuple(series.values())), strict=True))
            for future in futures:
                alarms = [
                    [
                        is_new_step(found[at.branch, case, at.night], found[_before(at, case)])
                        for case in range(len(self.series))
                    ]
                    for at in future.nights
                ]
                self._count(rule, 1, future, alarms)


def _passed(judged: JudgedNight) -> bool:
    """Whether the night passed as a whole."""
    return judged.whole is None or judged.whole.status is Status.PASS


def _before(at: At, case: int) -> tuple[int, int, int]:
    return (0 if at.night == BURN_IN_NIGHTS else at.branch, case, at.night - 1)


def is_new_step(tonight: frozenset[int], before: frozenset[int]) -> bool:
    """Whether a step is reported that is none of those before, give or take a night."""
    return any(all(abs(step - known) > _SAME_STEP_NIGHTS for known in before) for step in tonight)
