"""Which drops a night finds in the machine hours it takes: laid out by its plan, and by a fixed scheme. No training.

``python -m benchmarks.verdicts --hours``. The machines are those of benchmarks.verdicts. After 25 nights on which all
cases were measured, futures of seven nights follow, once for each scheme and time. The fixed scheme measures all cases
once a night; at half the time it measures every second case in turn, at double the time each case with two runs.

``python -m benchmarks.verdict_hours --pairs`` prints the numbers of UNSUSPECTED_PAIRS and DROP_PAIRS of
helpers.judging.night_cost.
"""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from benchmarks.verdict_memory import HeldNights
from benchmarks.verdict_session import LaidOut, Machine, night_of
from benchmarks.verdict_worlds import BURN_IN_NIGHTS, CASES, At, Synthetic
from helpers.judging.confirm import Confirmation, confirm
from helpers.judging.evidence import Evidence, RecordedReference
from helpers.judging.level import Level
from helpers.judging.night_cost import DROP_PAIRS, UNSUSPECTED_PAIRS
from helpers.judging.night_layout import lay_out
from helpers.judging.night_plan import CaseNeed, NightLimits, NightPlan
from helpers.judging.noise import KNOWN_NIGHTS, Noise, learn
from helpers.judging.rules import MEDIAN_STEP
from helpers.judging.screen import Screening
from helpers.judging.verdict import Status
from helpers.plan.case_plan import CasePlan
from helpers.report.unforeseen import ended
from helpers.session.night_time import NightTime
from helpers.trainers.contract.case import Case

PERCENTS = (1, 2, 3, 5)
NIGHTS = 7
TIMES = (0.5, 1.0, 2.0)
# Of a run: its start, and the steps of warm-up and window at the case's own rate.
_START_SECONDS, _STEPS = 60.0, 120
# More would be no usual night: each takes a confirmation.
_CASES_A_DROP = 1
# Nights of each case with the drop that the plan says is found with 80% power.
_NAMED = 3
_FIRST_BRANCH, _NAMED_BRANCH = 5001, 9000


@dataclass(frozen=True)
class Size:
    """How many machines, and futures of each."""

    worlds: int
    dropped: int
    quiet: int


QUICK, FULL = Size(1, 6, 1), Size(8, 12, 6)
# The shared nights from here on are replayed: enough for a history.
_FIRST_NIGHT = 15


@dataclass
class Hours:
    """What a scheme did."""

    nights: int = 0
    seconds: float = 0.0
    measured: int = 0
    injected: Counter[float] = field(default_factory=Counter)
    first_night: Counter[float] = field(default_factory=Counter)
    week: Counter[float] = field(default_factory=Counter)
    quiet_nights: int = 0
    alarms: int = 0
    named: int = 0
    named_found: int = 0
    # Planned cases that were not reached, on nights with and without drops.
    not_reached: int = 0
    not_reached_quiet: int = 0

    def add(self, other: Hours) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


Scores = dict[tuple[str, float], Hours]
# The score of drops that the plan names.
_OF_NAMED = ("named", 0.0)
Lay = Callable[[int, Sequence[CaseNeed]], LaidOut]


def text_of(seed: int, size: Size, spread: Callable[..., Iterator[Scores]]) -> str:
    """A Markdown table of all schemes and times."""
    total: Scores = {}
    for scores in spread(partial(replay, seed=seed, size=size), range(size.worlds)):
        for key, hours in scores.items():
            total.setdefault(key, Hours()).add(hours)
    return table_text(total)


def table_text(scores: Mapping[tuple[str, float], Hours]) -> str:
    sizes = "/".join(f"{percent:g}" for percent in PERCENTS)
    lines = [
        f"| time | scheme | hours a night | cases a night | found on night 1: {sizes}% | within a week "
        "| found on night 1 a machine hour | false alarms (quiet nights) | planned and not reached, a quiet night |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    of_schemes = {key: hours for key, hours in scores.items() if key != _OF_NAMED}
    for (scheme, time), hours in sorted(of_schemes.items(), key=lambda each: (each[0][1], each[0][0])):
        first, week = (
            [_share(found[each], hours.injected[each]) for each in PERCENTS]
            for found in (hours.first_night, hours.week)
        )
        found = sum(hours.first_night.values()) / max(sum(hours.injected.values()), 1)
        a_night = hours.seconds / max(hours.nights, 1) / 3600
        missed = hours.not_reached_quiet / max(hours.quiet_nights, 1)
        lines.append(
            f"| {time:g} | {scheme} | {a_night:.2f} | {hours.measured / max(hours.nights, 1):.1f} | {' '.join(first)} "
            f"| {' '.join(week)} | {found / a_night:.2f} | {hours.alarms} ({hours.quiet_nights}) | {missed:.1f} |"
        )
    named = scores[_OF_NAMED]
    told = (
        f"of {named.named} drops that the plan says are found with 80% power, {_share(named.named_found, named.named)}"
    )
    return "\n".join([*lines, "", f"{told} were found on the first night"])


def _share(found: int, of: int) -> str:
    return f"{found / of:.2f}".lstrip("0") if of else "-"


def run_seconds(case: Case) -> float:
    """Start-up, and the steps at the rate of benchmarks.verdict_worlds."""
    rate = 400.0 * case.cards * (2.5 if case.precision.is_amp else 1)
    return _START_SECONDS + _STEPS * case.batch_size_per_card * case.cards / rate


@dataclass
class _Week:
    """Seven nights of one future."""

    machine: Machine
    seconds: Mapping[str, float]

    def nights(
        self, memory: HeldNights, branch: int, drops: Mapping[int, float], lay: Lay, hours: Hours, many: int
    ) -> list[dict[str, Status]]:
        memory, said = memory.fork(), []
        waited = dict.fromkeys(self.seconds, 1)
        for number in range(many):
            at = At(branch, BURN_IN_NIGHTS + number)
            laid_out = lay(number, needs_of(self.machine.plans, memory, self.seconds, waited))
            judged = self.machine.night(at, memory, drops, laid_out)
            statuses = {result.plan.case.id: result.verdict.status for result in judged.results}
            waited = {case_id: 1 if case_id in statuses else waited[case_id] + 1 for case_id in waited}
            hours.nights += 1
            hours.seconds += judged.seconds
            hours.measured += len(statuses)
            missing = len(laid_out.cases) - len(statuses)
            hours.not_reached += missing
            hours.not_reached_quiet += 0 if drops else missing
            said.append(statuses)
        return said


def needs_of(
    plans: Iterable[CasePlan], memory: HeldNights, seconds: Mapping[str, float], waited: Mapping[str, int]
) -> list[CaseNeed]:
    """What a session would know of the cases (helpers.session.night_needs)."""
    found = []
    for plan in plans:
        past = memory.past(plan.case.id, plan.suite_case.target, {}, plan.case.cards, "")
        nights = [night.log_rates for night in past.nights if night.accepted]
        noise = learn(nights, past.siblings) if nights else Noise(0.0, 0.0094, 0.004, 0.0, 0)
        found.append(
            CaseNeed(
                plan.case.id,
                plan.suite_case.target,
                seconds[plan.case.id],
                "drawn",
                noise.sigma,
                noise.tau,
                most_runs=plan.budget.screen_runs,
                pairs=plan.budget.pairs,
                waited=waited[plan.case.id],
            )
        )
    return found


def fixed(time: float, seconds: Mapping[str, float]) -> Lay:
    """All cases once; at half the time every second one in turn, at double the time with two runs."""
    ids = list(seconds)

    def lay(number: int, needs: Sequence[CaseNeed]) -> LaidOut:
        mine = ids[number % 2 :: 2] if time < 1 else ids
        least = 2 if time > 1 else 1
        return LaidOut(mine, len(mine), lambda plan, elapsed: replace(plan, least_runs=least), seconds)

    return lay


def planned(minutes: float, seconds: Mapping[str, float], plans: list[NightPlan]) -> Lay:
    """By the plan of a night of so many minutes, with its clock."""
    begins = night_of(At(0, 0))

    def lay(number: int, needs: Sequence[CaseNeed]) -> LaidOut:
        plan = lay_out(needs, NightLimits(minutes, 0.0, NIGHTS))
        plans.append(plan)
        time = NightTime.of(plan, begins)

        def within(case: CasePlan, elapsed: float) -> CasePlan | None:
            now = begins + datetime.timedelta(seconds=elapsed)
            return None if time.why_not(case.suite_case.key, now) else time.within(case, now)

        return LaidOut([each.need.case_id for each in (*plan.tonight, *plan.no_time)], plan.counted, within, seconds)

    return lay


def replay(world: int, *, seed: int, size: Size) -> Scores:
    """One machine: what each scheme does at each time."""
    machine = Machine.of(Synthetic(seed, world))
    seconds = {plan.case.id: run_seconds(plan.case) for plan in machine.plans}
    week, memory, usual = _Week(machine, seconds), HeldNights(), []
    for number in range(_FIRST_NIGHT, BURN_IN_NIGHTS):
        everything = LaidOut(list(seconds), len(CASES), lambda plan, elapsed: plan, seconds)
        judged = machine.night(At(0, number), memory, {}, everything)
        if number >= _FIRST_NIGHT + KNOWN_NIGHTS:
            usual.append(judged.seconds / 60)
    minutes = statistics.mean(usual)
    scores: Scores = {_OF_NAMED: _named(machine, memory, seconds)}
    print(f"machine {world + 1}: {scores[_OF_NAMED]}", file=sys.stderr, flush=True)
    for time in TIMES:
        plans: list[NightPlan] = []
        for scheme, lay in (("fixed", fixed(time, seconds)), ("planned", planned(time * minutes, seconds, plans))):
            hours = scores[scheme, time] = Hours()
            _futures(week, memory, lay, hours, world, seed, size)
            print(f"machine {world + 1}: {scheme} at {time:g} times the time: {hours}", file=sys.stderr, flush=True)
    return scores


def _futures(week: _Week, memory: HeldNights, lay: Lay, hours: Hours, world: int, seed: int, size: Size) -> None:
    ids = [plan.case.id for plan in week.machine.plans]
    for number in range(size.dropped):
        chosen = np.random.default_rng([seed, world, 11, number]).permutation(len(ids))[: _CASES_A_DROP * len(PERCENTS)]
        drops = {int(case): PERCENTS[place % len(PERCENTS)] / 100 for place, case in enumerate(chosen)}
        said = week.nights(memory, _FIRST_BRANCH + number, drops, lay, hours, NIGHTS)
        for place, case in enumerate(chosen):
            percent = PERCENTS[place % len(PERCENTS)]
            found = [night.get(ids[int(case)]) is Status.REGRESSION for night in said]
            hours.injected[percent] += 1
            hours.first_night[percent] += found[0]
            hours.week[percent] += any(found)
    for number in range(size.quiet):
        said = week.nights(memory, _FIRST_BRANCH + 1000 + number, {}, lay, hours, NIGHTS)
        hours.quiet_nights += len(said)
        hours.alarms += sum(list(night.values()).count(Status.REGRESSION) for night in said)


def _named(machine: Machine, memory: HeldNights, seconds: Mapping[str, float]) -> Hours:
    """Nights with a drop of exactly the size that the plan says is found with 80% power, in one case alone."""
    hours, ids = Hours(), list(seconds)
    plan = lay_out(needs_of(machine.plans, memory, seconds, dict.fromkeys(ids, 1)), NightLimits())
    for place, each in enumerate(plan.tonight):
        case_id = each.need.case_id
        alone = LaidOut([case_id], len(CASES), lambda case, elapsed: case, seconds)
        for number in range(_NAMED):
            at = At(_NAMED_BRANCH + 100 * place + number, BURN_IN_NIGHTS)
            judged = machine.night(at, memory.fork(), {ids.index(case_id): each.drop or 0.0}, alone)
            hours.named += 1
            hours.named_found += judged.statuses == [Status.REGRESSION]
    return hours


# ---- the pairs of one build


def mean_pairs(sigma: float, nights: int, seed: int, drop: float = 0.0) -> float:
    """The mean number of pairs after which a build that is slower by the fraction ``drop`` is settled."""
    evidence = Evidence(
        "drawn", MEDIAN_STEP, 1, recorded=RecordedReference(100.0, MEDIAN_STEP, "drawn", 0.005), reference_build="good"
    )
    screening = Screening((0.0,), Noise(0.0, sigma, 0.4 * sigma, 20.0, 20), 20, (), 1.0, 0.5, 0.5)
    generator, pairs = np.random.default_rng(seed), []
    for _ in range(nights):
        new: list[float] = []
        good: list[float] = []
        answer: object = None
        while not isinstance(answer, Confirmation):
            new.append(sigma * generator.normal() + math.log1p(-drop))
            good.append(sigma * generator.normal())
            answer = confirm(evidence, screening, Level(known=True), new, good, "")
        pairs.append(len(new))
    return statistics.mean(pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, metavar="N", const=400, nargs="?", required=True, help="Draw N nights")
    parser.add_argument("--seed", type=int, default=1, help="Draw other nights")
    options = parser.parse_args(arguments)
    for name, table, percents in (("unsuspected", UNSUSPECTED_PAIRS, (0,)), ("drop", DROP_PAIRS, PERCENTS)):
        print(name)
        for sigma, _ in table:
            found = [mean_pairs(sigma, options.pairs, options.seed, percent / 100) for percent in percents]
            print(f"({sigma:g}, {statistics.mean(found):.2f})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main, "verdict_hours"))
