"""The PyTorch trainer as the suite starts it, in its own environment: what it records, refuses, and how it ends."""

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
from tests.helpers.trainers.colours import LEARNING_RATES, has_fallen, two_colours
from tests.helpers.trainers.cores import own_cores
from tests.helpers.trainers.pytorch_environment import INTERPRETER, needs_pytorch
from tests.job_processes import processes_of_job

pytestmark = [pytest.mark.training, pytest.mark.untimed, needs_pytorch]

RESNET50 = "pytorch-resnet50v1.5"
CORES = own_cores()
TWO_CORES = pytest.mark.skipif(len(CORES) < 2, reason="two cards need two cores")
LIMITS = JobLimits(300.0, 120.0, 600.0, grace_seconds=5.0)
ADAPTIVE = {"warmup_steps": 6, "steady_window_steps": 2, "most_warmup_steps": 8}


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


def _rank_1(spec: JobSpec) -> int:
    """The process of rank 1, once it trains."""
    while True:
        try:
            with spec.step_log_path(1).open(encoding="utf-8") as log:
                return int(json.loads(log.readline())["pid"])
        except (OSError, ValueError):
            time.sleep(0.1)


def test_one_card_records_what_it_is_and_tells_its_phases(tmp_path: Path, images: Path) -> None:
    spec = _job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-dali", images)
    outcome = _run(spec)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    (log,) = outcome.logs
    assert (log.header.framework, log.header.device, len(log.header.framework_commit)) == ("pytorch", "cpu", 40)
    assert log.header.framework_version.startswith("2.")
    facts = log.header.facts
    assert (facts["cores"], facts["threads"], facts["torch_threads"]) == (str(CORES[0]), "1", "1")
    assert facts["loader"].startswith("DALI ")
    assert facts["bfloat16_hardware"] and facts["onednn"] in ("on", "off")
    beats = [json.loads(line)["phase"] for line in spec.heartbeat_path(0).read_text().splitlines()]
    assert beats == ["import torch", "data", "build model", "first step", "warm-up", "window", "window"]


@TWO_CORES
def test_two_cards_learn_together_each_on_its_own_core_until_both_are_steady(tmp_path: Path) -> None:
    case_id = f"{RESNET50}-fp32-bs2-1x2-native"
    settings = {**settings_for(Case.parse(case_id), "cpu"), "learning_rate": LEARNING_RATES["resnet50v1.5"]}
    spec = _job(tmp_path, case_id, two_colours(tmp_path / "colours"), 6, settings=settings, **ADAPTIVE)
    outcome = _run(spec)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    first, second = outcome.logs
    for log in outcome.logs:
        assert {"backend": "gloo", "float32_convolutions": "53"}.items() <= log.header.facts.items()
        losses = [step.loss for step in log.steps if step.loss is not None]
        assert any(has_fallen(losses[:steps]) for steps in range(len(losses) + 1)), losses
    assert [log.header.facts["cores"] for log in outcome.logs] == [str(core) for core in CORES[:2]]
    assert len(first.warmup) == len(second.warmup)
    assert len(first.warmup) in (6, 8)
    assert [step.loss for step in first.steps] != [step.loss for step in second.steps]


def test_what_cannot_run_here_is_refused_with_its_reason(tmp_path: Path, images: Path) -> None:
    outcome = _run(_job(tmp_path, f"{RESNET50}-tf32-bs1-1x1-dali", images))
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.REFUSED, 3)
    assert "TF32" in outcome.reason


def test_a_diverging_training_fails(tmp_path: Path, images: Path) -> None:
    spec = _job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-synthetic", images)
    spec = _job(tmp_path, spec.case.id, images, settings={**spec.settings, "learning_rate": 1e38})
    assert _run(spec).failure_class is FailureClass.DIVERGED


@TWO_CORES
def test_a_killed_rank_is_named_and_the_others_are_ended(tmp_path: Path, images: Path) -> None:
    spec = _job(tmp_path, f"{RESNET50}-fp32-bs1-1x2-synthetic", images, window_steps=500)
    outcome = _run(spec, lambda spec: os.kill(_rank_1(spec), signal.SIGKILL))
    assert (outcome.kind, outcome.failure_class, outcome.guilty_rank) == (OutcomeKind.CRASHED, FailureClass.KILLED, 1)
    assert "ended by SIGKILL" in outcome.reason
    assert outcome.wall_seconds < 120


def test_a_killed_worker_of_the_loader_is_no_fault_of_the_data(tmp_path: Path, images: Path) -> None:
    def kill(spec: JobSpec) -> None:
        while not spec.step_log_path(0).exists():
            time.sleep(0.1)
        rank = int(json.loads(spec.step_log_path(0).read_text().splitlines()[0])["pid"])
        os.kill(int(Path(f"/proc/{rank}/task/{rank}/children").read_text().split()[0]), signal.SIGKILL)

    outcome = _run(_job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-native", images, window_steps=500), kill)
    assert outcome.failure_class is FailureClass.KILLED
    assert "DataLoader worker" in outcome.reason
