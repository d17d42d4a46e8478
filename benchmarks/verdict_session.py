"""Nights through the suite's own session loop: measure_case() with a runner that draws its runs, and a history."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType

from benchmarks.verdict_worlds import At, DrawnRun, Nights
from helpers.history import Memory
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.history.session_file import SessionRecord
from helpers.judging.case.evidence import Budget, Build, CaseKey, Stage
from helpers.judging.case.verdict import Status, Verdict
from helpers.judging.finding import Finding
from helpers.judging.night.groups import NightCase
from helpers.judging.night.verdict import NeedConfirmation, NightVerdict, judge_night
from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK
from helpers.judging.statistics import summarise
from helpers.machine.environment import Environment
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.overrides import segment_of
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.session.gate import Gate
from helpers.session.measuring.case_loop import CaseResult, MeasureRequest, measure_case
from helpers.session.night import night_case
from helpers.trainers.contract.case import Case

# The runs of night 0 that the reference is recorded from; the rules that compare 7 runs with 7 need them all.
RECORDED_RUNS = 7
# Beyond the numbers that an A/B comparison of that night can reach.
_UNGATED = Gate(enabled=False)
_FIRST_RECORDED = 1000
_TARGET = "v100"
_PROTOCOL = MeasuringProtocol("drawn", warmup_steps=20, window_steps=100, runs=1)
_FIRST_DAY = datetime.datetime(2024, 1, 1, 2, tzinfo=datetime.UTC)
_BUILDS: Mapping[Build, Mapping[str, str]] = MappingProxyType(
    {
        build: {"framework": "paddle", "version": "3.3.1", "commit": commit, "interpreter": f"envs/{commit}/bin/python"}
        for build, commit in ((Build.CANDIDATE, "new"), (Build.REFERENCE, "good"))
    }
)
_KNOWN = {"device": "gpu", "framework": "paddle", "framework_version": "3.3.1", "framework_commit": "good"}
_UNNAMED = {"machine": "", "pool": ""}
_ENVIRONMENT = Environment(**{item.name: item.name for item in fields(Environment)} | _KNOWN | _UNNAMED).to_mapping()
_NO_DROPS: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True)
class Stack:
    """What a night runs with beside the build under test, where it is not what the machine recorded with."""

    # The reference build's commit.
    good: str = _BUILDS[Build.REFERENCE]["commit"]
    # The library that the build under test brings; the reference build keeps its own.
    cudnn: str = _ENVIRONMENT["cudnn"]

    def build(self, build: Build) -> Mapping[str, str]:
        return {**_BUILDS[build], "commit": self.good} if build is Build.REFERENCE else _BUILDS[build]

    def environment(self, build: Build) -> Mapping[str, str]:
        return {**_ENVIRONMENT, "cudnn": self.cudnn} if build is Build.CANDIDATE else _ENVIRONMENT


_RECORDED_WITH = Stack()


@dataclass(frozen=True)
class HeldRuns(ResultStore):
    """A session's runs without a disk: thousands of nights are replayed, and none of their files is read again."""

    held: dict[str, dict[int, RunResult]] = field(default_factory=dict)

    def write(self, result: RunResult) -> Path:
        self.held.setdefault(result.case_id, {})[result.replicate] = result
        return Path()

    def results(self, case_id: str) -> tuple[RunResult, ...]:
        held = self.held.get(case_id, {})
        return tuple(held[number] for number in sorted(held))

    def add_verdict(self, results: tuple[RunResult, ...], verdict: Verdict) -> None:
        """Nothing here reads the verdict in a run."""


@dataclass
class DrawnRunner:
    """Draws runs where a runner would train: a build's k-th run of a case is the world's k-th."""

    nights: Nights
    at: At
    store: ResultStore
    # By case, the fraction by which the build under test is slower tonight.
    drops: Mapping[int, float]
    stack: Stack = _RECORDED_WITH
    made: Counter[tuple[str, Build]] = field(default_factory=Counter)

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        number = self.made[plan.case.id, build]
        self.made[plan.case.id, build] += 1
        drawn = drawn_with(self.nights, self.at, self.nights.cases.index(plan.case), build, number, self.drops)
        # As a trainer's step log of this run would have given it.
        result = RunResult(
            uuid=f"{self.store.session} {plan.case.id} {replicate}",
            session=self.store.session,
            case_id=plan.case.id,
            target=plan.suite_case.target,
            replicate=replicate,
            created=night_of(self.at).isoformat(),
            role=build.value,
            stage=stage.value,
            build=self.stack.build(build),
            settings=plan.settings,
            protocol=plan.protocol.steps,
            environment=self.stack.environment(build),
            figures={WALL_CLOCK: math.exp(drawn.log_mean_rate), MEDIAN_STEP: math.exp(drawn.log_rate)},
            step_seconds=drawn.step_seconds,
            samples_per_step=(1,) * len(drawn.step_seconds),
        )
        self.store.write(result)
        return result


@dataclass(frozen=True)
class Machine:
    """A world's cases with their plans, each held against what night 0 recorded of the reference build."""

    nights: Nights
    plans: tuple[CasePlan, ...]
    first: tuple[tuple[DrawnRun, ...], ...]

    @staticmethod
    def of(
        nights: Nights,
        recorded_faster: Collection[int] = (),
    ) -> Machine:
        """``recorded_faster``: the cases whose entry is of the build under test, not of the good one."""
        recorded = [
            Build.CANDIDATE if index in recorded_faster else Build.REFERENCE for index in range(len(nights.cases))
        ]
        first = tuple(
            tuple(nights.run(At(0, 0), index, build, _FIRST_RECORDED + number) for number in range(RECORDED_RUNS))
            for index, build in enumerate(recorded)
        )
        plans = [_plan(case, runs, build) for case, runs, build in zip(nights.cases, first, recorded, strict=True)]
        return Machine(nights, tuple(plans), first)

    def part(self, count: int) -> Machine:
        """The machine with its first ``count`` cases."""
        return replace(self, plans=self.plans[:count])

    def night(
        self,
        at: At,
        memory: Memory,
        drops: Mapping[int, float] = _NO_DROPS,
        stack: Stack = _RECORDED_WITH,
    ) -> JudgedNight:
        """Every case of a night, one after the other, then the night as a whole with the confirmations it asks for."""
        when = night_of(at)
        store = HeldRuns(Path(), f"b{at.branch}-n{at.night:04d}", SessionRecord(began=when.isoformat()))
        runner = DrawnRunner(self.nights, at, store, drops, stack=stack)
        plans = [replace(plan, reference=stack.build(Build.REFERENCE) if plan.reference else {}) for plan in self.plans]

        def measure(plan: CasePlan, suspicion: Finding | None = None) -> CaseResult:
            request = MeasureRequest(suspicion, cases_tonight=len(plans))
            return measure_case(
                plan, runner, store, memory, request, now=lambda: when, keep_night=lambda folder, night: None
            )

        results = {plan.case.id: measure(plan) for plan in plans}
        screened = [case for result in results.values() if (case := night_case(_UNGATED.outcome(result))) is not None]
        before = {case.key: case for case in screened}
        confirmed: dict[CaseKey, NightCase] = {}
        while isinstance(answer := judge_night(screened, confirmed), NeedConfirmation):
            result = measure(results[answer.case_id].plan, answer.why)
            results[answer.case_id] = result
            confirmed[answer.key] = night_case(_UNGATED.outcome(result)) or before[answer.key]
        return JudgedNight(tuple(results.values()), answer)


@dataclass(frozen=True)
class JudgedNight:
    """The cases' results in their order, and what the night says as a whole; None where it says nothing."""

    results: tuple[CaseResult, ...]
    whole: NightVerdict | None

    @property
    def statuses(self) -> list[Status]:
        return [result.verdict.status for result in self.results]

    @property
    def runs(self) -> int:
        return sum(len(result.runs) for result in self.results)


def drawn_with(nights: Nights, at: At, case: int, build: Build, number: int, drops: Mapping[int, float]) -> DrawnRun:
    """A run of the world, of a build under test that is slower by ``drops`` of its case."""
    drawn = nights.run(at, case, build, number)
    return drawn.slowed(drops.get(case, 0.0)) if build is Build.CANDIDATE else drawn


def night_of(at: At) -> datetime.datetime:
    return _FIRST_DAY + datetime.timedelta(days=at.night)


def _plan(case: Case, first: tuple[DrawnRun, ...], recorded: Build) -> CasePlan:
    rates = tuple(math.exp(run.log_rate) for run in first)
    entry = RecordedEntry(
        case_id=case.id,
        samples_per_s=summarise(rates).centre,
        rule=MEDIAN_STEP,
        replicates=rates,
        tolerance=None,
        environment={**_ENVIRONMENT, "framework_commit": _BUILDS[recorded]["commit"]},
        segment=segment_of(_ENVIRONMENT, {}, case.id),
        provenance=Provenance("good", _FIRST_DAY.date().isoformat(), "drawn", "the first night"),
    )
    return CasePlan(
        SuiteCase(case, _TARGET, _PROTOCOL),
        build=_BUILDS[Build.CANDIDATE],
        recorded=entry,
        data=_ENVIRONMENT["data"],
        reference=_BUILDS[Build.REFERENCE],
        budget=Budget(),
    )
