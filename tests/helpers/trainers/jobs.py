"""Short jobs on this machine's CPU, as the suite starts them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.launch.launchers import launch_command
from helpers.launch.outcome import JobOutcome
from helpers.launch.supervisor import JobLimits, run_job
from helpers.machine.watch.contention import CpuMeter
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.cores import own_cores
from tests.job_processes import processes_of_job

CORES = own_cores()
TWO_CORES = pytest.mark.skipif(len(CORES) < 2, reason="two cards need two cores")
# PYTHONPATH of a process that trains on small images (tests/small_images).
SMALL_IMAGES = f"{ROOT / 'tests/small_images'}:{ROOT}"
# Least and most warm-up in windows of two steps.
ADAPTIVE = {"warmup_steps": 6, "steady_window_steps": 2, "most_warmup_steps": 8}
# Long: how busy the machine is says nothing about a trainer.
LIMITS = JobLimits(600.0, 300.0, 800.0, grace_seconds=5.0, rank_death_seconds=20.0)


def job(
    folder: Path,
    case_id: str,
    images: Path,
    window_steps: int = 2,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> JobSpec:
    """A job of one step of warm-up; ``settings`` are those that its recipe has otherwise."""
    case = Case.parse(case_id)
    return JobSpec(
        job_id=uuid.uuid4().hex, case=case, replicate=0, run_folder=str(folder / "run"), device="cpu",
        window_steps=window_steps, data_root=str(images), settings={**settings_for(case, "cpu"), **(settings or {})},
        cores=tuple((CORES[card % len(CORES)],) for card in range(case.cards)), **{"warmup_steps": 1, **more},
    )  # fmt: skip


def run(
    spec: JobSpec,
    interpreter: str,
    disturb: Callable[[JobSpec], None] | None = None,
    before: tuple[str, ...] = (),
) -> JobOutcome:
    """The outcome under the suite's supervisor, after which no process of the job lives.

    ``disturb`` is called beside it; ``before`` are words that the command begins with.
    """
    if disturb is not None:
        threading.Thread(target=disturb, args=(spec,), daemon=True).start()
    command = launch_command(spec, interpreter)
    try:
        return run_job(spec, replace(command, argv=(*before, *command.argv)), LIMITS, CpuMeter(()))
    finally:
        assert processes_of_job(spec.job_id) == []


def kill(rank: int) -> Callable[[JobSpec], None]:
    """What kills the process of a rank once it trains."""

    def disturb(spec: JobSpec) -> None:
        while True:
            try:
                with spec.step_log_path(rank).open(encoding="utf-8") as log:
                    os.kill(int(json.loads(log.readline())["pid"]), signal.SIGKILL)
                    return
            except (OSError, ValueError):
                time.sleep(0.1)

    return disturb
