"""The MXNet trainer as the suite starts it, in its own environment: what it records, refuses, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.launch.failure import FailureClass
from helpers.launch.launchers import launcher_for
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits, run_job
from helpers.machine.watch.contention import CpuMeter
from helpers.plan.recipes.recipe import settings_for
from helpers.plan.small_dataset import make_small_dataset
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.cores import own_cores
from tests.helpers.trainers.mxnet_environment import INTERPRETER, needs_mxnet
from tests.job_processes import processes_of_job

pytestmark = [pytest.mark.training, pytest.mark.untimed, needs_mxnet]

RESNET50 = "mxnet-resnet50v1.5"
CORES = own_cores()
LIMITS = JobLimits(300.0, 120.0, 600.0, grace_seconds=5.0)
# Of address space, in KiB: less than a step of 64 images takes, more than MXNet's import.
SCARCE_KIB = 6_000_000


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small_dataset(tmp_path_factory.mktemp("data") / "small", images_per_class=4).root


def _job(folder: Path, case_id: str, images: Path, window_steps: int = 2, **more: Any) -> JobSpec:
    case = Case.parse(case_id)
    given = {"warmup_steps": 1, **more}
    given["settings"] = more["settings"] if "settings" in more else settings_for(case, "cpu")
    return JobSpec(
        job_id=uuid.uuid4().hex, case=case, replicate=0, run_folder=str(folder / "run"), device="cpu",
        window_steps=window_steps, data_root=str(images),
        cores=tuple((CORES[card % len(CORES)],) for card in range(case.cards)), **given,
    )  # fmt: skip


def _run(spec: JobSpec, disturb: Callable[[JobSpec], None] | None = None) -> JobOutcome:
    """The outcome under the suite's supervisor, after which no process of the job lives."""
    if disturb is not None:
        threading.Thread(target=disturb, args=(spec,), daemon=True).start()
    command = launcher_for(spec).command(spec, str(INTERPRETER))
    try:
        return run_job(spec, command, LIMITS, CpuMeter(()))
    finally:
        assert processes_of_job(spec.job_id) == []


@pytest.mark.skipif(len(CORES) < 2, reason="two cards need two cores")
def test_one_process_drives_two_cards_and_records_what_it_is(tmp_path: Path, images: Path) -> None:
    spec = _job(tmp_path, f"{RESNET50}-fp32-bs2-1x2-dali", images)
    outcome = _run(spec)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    (log,) = outcome.logs
    assert (log.header.framework, log.header.framework_version, log.header.device) == ("mxnet", "1.9.1", "cpu")
    assert (log.header.world_size, log.header.cards_per_process) == (1, 2)
    assert {step.samples for step in log.steps} == {4}
    facts = log.header.facts
    assert facts["cores"] == ",".join(map(str, sorted(CORES[:2])))
    assert (facts["threads"], facts["onednn"]) == ("1", "on")
    assert facts["kvstore_sums"] == "right for 161 gradients on 2 cards"
    assert facts["loader"].startswith("DALI ")
    beats = [json.loads(line)["phase"] for line in spec.heartbeat_path(0).read_text().splitlines()]
    assert beats == ["import mxnet", "data", "build model", "first step", "warm-up", "window", "window"]


def test_what_cannot_run_here_is_refused_with_its_reason(tmp_path: Path, images: Path) -> None:
    outcome = _run(_job(tmp_path, f"{RESNET50}-tf32-bs1-1x1-dali", images))
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.REFUSED, 3)
    assert "TF32" in outcome.reason


def test_a_diverging_training_fails(tmp_path: Path, images: Path) -> None:
    spec = _job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-synthetic", images)
    spec = _job(tmp_path, spec.case.id, images, settings={**spec.settings, "learning_rate": 1e38})
    assert _run(spec).failure_class is FailureClass.DIVERGED


def test_memory_that_mxnet_does_not_get_is_named_as_such(tmp_path: Path, images: Path) -> None:
    spec = _job(tmp_path, f"{RESNET50}-fp32-bs64-1x1-synthetic", images)
    command = launcher_for(spec).command(spec, str(INTERPRETER))
    scarce = ("prlimit", f"--as={SCARCE_KIB * 1024}", *command.argv)
    outcome = run_job(spec, type(command)(scarce, command.environment), LIMITS, CpuMeter(()))
    assert outcome.failure_class is FailureClass.HOST_MEMORY, outcome.log_tail
    assert "Failed to allocate CPU Memory" in outcome.reason


def test_a_killed_process_is_named(tmp_path: Path, images: Path) -> None:
    def kill(spec: JobSpec) -> None:
        while True:
            try:
                with spec.step_log_path(0).open(encoding="utf-8") as log:
                    os.kill(int(json.loads(log.readline())["pid"]), signal.SIGKILL)
                    return
            except (OSError, ValueError):
                time.sleep(0.1)

    outcome = _run(_job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-native", images, window_steps=500), kill)
    assert (outcome.kind, outcome.failure_class) == (OutcomeKind.CRASHED, FailureClass.KILLED)
    assert "ended by SIGKILL" in outcome.reason
