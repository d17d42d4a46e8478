"""What several of these tests build: a plan, a run of it, and a runner that answers instead of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from helpers.history.results import RunResult
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.machine.environment import Environment
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.matrix import MeasuringProtocol
from helpers.trainers.contract.case import Case

CASE = Case.parse("paddle-vgg16-fp32-bs8-1x2-dali-static")
ENVIRONMENT = Environment(
    **{**{item.name: item.name for item in fields(Environment)}, "machine": "", "pool": "", "device": "cpu"}
)


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., CasePlan]:
    """A plan of one CPU case; ``runs`` and ``target`` change its protocol and target, all else the plan."""

    def make(runs: int = 1, target: str = "cpu", **values: Any) -> CasePlan:
        protocol = MeasuringProtocol("cpu", warmup_steps=2, window_steps=5, runs=runs)
        return CasePlan(SuiteCase(CASE, target, protocol), **values)

    return make


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunResult]:
    """A finished run of a plan with ``samples_per_s`` by its rule and by the median step."""

    def make(plan: CasePlan, replicate: int = 0, samples_per_s: float = 100.0, **values: Any) -> RunResult:
        given = {
            "uuid": f"u{replicate}",
            "session": "s",
            "created": "2024-05-06T07:08:09+00:00",
            "figures": {plan.rule: samples_per_s, MEDIAN_STEP: samples_per_s, "dlperf-log": "too short"},
            "environment": {**ENVIRONMENT.to_mapping(), "data": plan.data},
            "build": dict(plan.build),
            "settings": dict(plan.settings),
            "overrides": dict(plan.overrides),
            "protocol": plan.protocol.steps,
            "step_seconds": (0.5, 0.25),
            "samples_per_step": (16, 16),
        }
        return RunResult(
            case_id=plan.case.id, target=plan.suite_case.target, replicate=replicate, **{**given, **values}
        )

    return make
