"""A runner that draws rates instead of training."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.history.session_file import SessionRecord
from helpers.judging.case.evidence import Build, Stage
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.plan.case_plan import CasePlan
from tests.helpers.session_double import roles

MakeRun = Callable[..., RunResult]


class Made(NamedTuple):
    case_id: str
    source: str
    replicate: int
    build: Build
    stage: Stage


@dataclass
class DrawnRunner:
    """Scatters runs by ``sigma`` around 100 images/s; ``answers`` replaces what single runs say, by number, or
    raises. Which build of a pair runs first follows from the session's name, so the number of a run among those of its
    case and build decides what is drawn, not its place among all."""

    make_run: MakeRun
    runs_folder: Path
    sigma: float
    seed: int
    # How much slower a build is, as a fraction, and what all of its runs say, by its name.
    drops: dict[str, float] = field(default_factory=dict)
    always: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[int, dict[str, Any] | BaseException] = field(default_factory=dict)
    made: list[Made] = field(default_factory=list)
    session: str = ""
    record: SessionRecord = field(default_factory=SessionRecord)

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        record = plan.build if build is Build.CANDIDATE else plan.reference
        name = record.get("source", "")
        answer = self.answers.get(len(self.made), {})
        number = sum((each.case_id, each.source, each.build) == (plan.case.id, name, build) for each in self.made)
        self.made.append(Made(plan.case.id, name, replicate, build, stage))
        if isinstance(answer, BaseException):
            raise answer
        source = random.Random(f"{self.seed} {plan.case.id} {name} {build} {number}")
        rate = 100 * (1 - self.drops.get(name, 0.0)) * math.exp(source.gauss(0, self.sigma))
        given = {"figures": {plan.rule: rate, MEDIAN_STEP: rate}, "session": self.session}
        given |= {"uuid": f"{self.session} {plan.case.id} {replicate} {len(self.made)}", **roles(plan, build, stage)}
        result = self.make_run(plan, replicate, **{**given, **self.always.get(name, {}), **answer})
        result = replace(result, environment={**result.environment, **plan.environment})
        store = ResultStore(self.runs_folder, self.session, self.record)
        store.new_run_folder(plan.case.id, replicate)
        store.write(result)
        return result
