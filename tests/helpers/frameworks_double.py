"""A suite of two frameworks whose runs are answered instead of trained, with a matrix of a few lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.history.session_file import SessionRecord
from helpers.judging.case.evidence import Build, Stage
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.machine.framework_builds import BuildIdentity, FrameworkBuild
from helpers.plan.case_plan import CasePlan
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.conftest import ENVIRONMENT
from tests.helpers.session_double import roles

PADDLE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
PYTORCH = "pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic"
NAME = "cpu-resnet50v1.5-fp32-bs4-1x1-synthetic"
NOT_INSTALLED = "pytorch is not installed: make env-pytorch"

CONFIG = """
protocols:
  cpu: {warmup_steps: 9, steady_window_steps: 3, most_warmup_steps: 36, window_steps: 5, runs: 2}
  published:
    warmup_steps: 100
    steady_window_steps: 20
    most_warmup_steps: 300
    window_steps: 220
    runs: 1
    rules: [paddleclas-trimmed, paddleclas-mean, fleetx-20-100-median7, dlperf-log, dlperf-time, dlperf-tf2,
      ngc-tf-mean, ngc-tf-average, ngc-tf-summary, ngc-pytorch-mean, ngc-pytorch-summary, ngc-pytorch-summary-compute,
      ngc-mxnet-epochs, unknown]
matrix:
  cpu:
    - &paddle
      framework: paddle
      model: resnet50v1.5
      precision: fp32
      batch_size_per_card: 4
      cards: 1
      data: synthetic
      execution: [static, dynamic]
      protocol: cpu
    - {<<: *paddle, model: vgg16, execution: to_static}
    - {<<: *paddle, batch_size_per_card: 8, execution: dynamic}
    - {framework: pytorch, model: [resnet50v1.5, vgg16], precision: fp32, batch_size_per_card: 4, cards: 1,
       data: synthetic, protocol: cpu}
"""


class TwoFrameworks:
    """Stands where BuildFinder stands; ``absent`` are reasons by framework."""

    absent: Mapping[Framework, str] = {}

    def __init__(self, **values: Any) -> None:
        pass

    def find_identity(self, build: FrameworkBuild) -> BuildIdentity:
        return BuildIdentity(prefix=build.interpreter, place=build.interpreter, digest=f"digest of {build.interpreter}")

    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        missing = {Framework.TENSORFLOW: "no trainer", Framework.MXNET: "no trainer", **self.absent}
        if framework in missing:
            return missing[framework]
        return FrameworkBuild(f"/envs/{framework.value}/bin/python", framework, framework.value, "3.0.0")

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str]:
        return {}


@dataclass
class TurnsRunner:
    """PyTorch is ``ratio`` times as fast as Paddle; both drift by ``drift`` from run to run. ``answers`` has what it
    says of single runs by their number, or an exception that it raises."""

    runs_folder: Path
    ratio: float = 1.25
    drift: float = 0.0
    answers: dict[int, dict[str, Any] | BaseException] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    session: str = ""
    record: SessionRecord = field(default_factory=SessionRecord)

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        number = len(self.made)
        answer = self.answers.get(number, {})
        self.made.append(plan.case.framework.value)
        if isinstance(answer, BaseException):
            raise answer
        rate = 100 * math.exp(self.drift * number)
        if plan.case.framework is Framework.PYTORCH:
            rate *= self.ratio
        given = {"figures": {plan.rule: rate, MEDIAN_STEP: rate}, "session": self.session}
        given |= {"uuid": f"{self.session} {plan.case.id} {number}", **roles(plan, build, stage), **answer}
        result = _finished(plan, replicate, given)
        store = ResultStore(self.runs_folder, self.session, self.record)
        store.new_run_folder(plan.case.id, replicate)
        store.write(result)
        return result


def _finished(plan: CasePlan, replicate: int, given: Mapping[str, Any]) -> RunResult:
    values = {
        "created": "2024-05-06T07:08:09+00:00",
        "environment": {**ENVIRONMENT.to_mapping(), "data": plan.data, **plan.environment},
        "settings": dict(plan.settings),
        "overrides": dict(plan.overrides),
        "protocol": plan.protocol.steps,
        "step_seconds": (0.5, 0.25),
        "samples_per_step": (16, 16),
    }
    ids = {"case_id": plan.case.id, "target": plan.suite_case.target, "replicate": replicate}
    return RunResult(**ids, **{**values, **given})
