"""Runs and nights for the tests of the history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.judging.case.verdict import Standing
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.judging.statistics import EffectSize
from helpers.machine.environment import Environment
from helpers.plan.overrides import segment_of
from tests.helpers.standings import NAMES, with_values

CASE = "paddle-vgg16-fp32-bs8-1x2-dali-static"
OTHER = "paddle-resnet50v1.5-fp32-bs8-1x2-dali-static"
SETTINGS = {"layout": "NCHW", "dali": {"threads": None}}
ENVIRONMENT = {
    **{item.name: item.name for item in fields(Environment)},
    "machine": "",
    "pool": "",
    "device": "cpu",
    "host_id": "h0",
}
SEGMENT = segment_of(ENVIRONMENT, SETTINGS, "test")
STANDING = Standing(
    log_rate=4.5,
    e_drop=1.5,
    evidence=1.5,
    accepted=True,
    sigma=0.003,
    tau=0.001,
    nights=20,
    runs=1,
    effect=EffectSize(-0.001, -0.002, 0.001),
)
BUILD = {"framework": "paddle", "version": "3.3.1", "commit": "7688495538f4d6c1893f084dd238a402e8f68ab6"}


def moment(day: int, second: int = 0) -> str:
    """``day`` days and ``second`` seconds after the first of January 2024."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return (start + timedelta(days=day, seconds=second)).isoformat()


def run(uuid: str, log_rate: float = 4.5, session: str = "s0", **values: Any) -> RunResult:
    """A usable screening run."""
    given: dict[str, Any] = {
        "case_id": CASE,
        "target": "cpu",
        "replicate": 0,
        "created": moment(0),
        "build": BUILD,
        "settings": SETTINGS,
        "environment": ENVIRONMENT,
        "protocol": {"warmup_steps": 1, "window_steps": 2},
        "facts": {"tf32": "off"},
        "system": {"CPU": {"cores": "2"}},
        "figures": {MEDIAN_STEP: math.exp(log_rate), "dlperf-log": "too short"},
        "step_seconds": (0.1, 0.30000000000000004),
        "samples_per_step": (16, 16),
        "losses": (6.9, 1e-310),
        "wall_seconds": 3.25,
    }
    return RunResult(uuid=uuid, session=session, **{**given, **values})


def night(day: int, *log_rates: float, session: str | None = None, **values: Any) -> NightRecord:
    """The night of the ``day``; fields of the standing are taken among the others."""
    standing = with_values(STANDING, **{name: values.pop(name) for name in list(values) if name in NAMES})
    created = values.get("created", moment(day))
    given: dict[str, Any] = {
        "session": f"s{day}" if session is None else session,
        "case_id": CASE,
        "target": "cpu",
        "created": created,
        "date": created[:10],
        "segment": SEGMENT,
        "status": "PASS",
        "code": "steady",
        "reason": "no worse",
        "cards": 2,
        "log_rates": log_rates or (float(day),),
        "standing": standing,
        "build": BUILD,
        "properties": {"model": "vgg16"},
    }
    return NightRecord(**{**given, **values})


def segment(**values: str) -> Mapping[str, str]:
    return {**SEGMENT, **values}
