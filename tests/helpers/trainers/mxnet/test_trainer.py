"""The MXNet trainer as the suite starts it, in its own environment: what it records, refuses, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.judging.failure_class import FailureClass
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.plan.small_dataset import make_small_dataset
from helpers.trainers.contract.device_time import DeviceTime
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import StepProfile, from_json
from tests.helpers.trainers.environments import MXNET
from tests.helpers.trainers.jobs import CORES, TWO_CORES, job, kill, run

pytestmark = [pytest.mark.training, pytest.mark.untimed, MXNET.needs, pytest.mark.usefixtures("small_images")]

RESNET50 = "mxnet-resnet50v1.5"
# Of address space, in KiB: less than a step of 1024 small images takes, more than MXNet's import.
SCARCE_KIB = 6_000_000


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small_dataset(tmp_path_factory.mktemp("data") / "small", images_per_class=4).root


def _run(spec: JobSpec, disturb: Callable[[JobSpec], None] | None = None) -> JobOutcome:
    return run(spec, MXNET.interpreter, disturb)


@TWO_CORES
def test_one_process_drives_two_cards_and_records_what_it_is(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs2-1x2-dali", images)
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


@TWO_CORES
def test_mxnet_s_own_profiler_says_how_long_a_step_took_on_the_card(tmp_path: Path, images: Path) -> None:
    # As published, memory and shapes are static: the engine runs operators in groups.
    settings = {"static_alloc": True, "static_shape": True}
    spec = job(tmp_path, f"{RESNET50}-fp32-bs2-1x1-synthetic", images, 3, settings=settings, profiled_steps=3)
    # MXNet's profiler knows as many CPUs as the process has cores, and the card is the second of them.
    outcome = _run(replace(spec, cores=(tuple(CORES[:2]),)))
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    answer = DeviceTime.from_json(spec.device_time_path(0).read_text(), "answer")
    assert answer.seconds_per_step is not None, answer.reason
    assert 0.1 < answer.seconds_per_step / min(step.step_seconds for step in outcome.logs[0].window) < 20


def test_mxnet_s_own_profiler_tells_what_each_operator_took(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-synthetic", images, explained_steps=2)
    assert _run(spec).kind is OutcomeKind.COMPLETE
    profile = from_json(spec.step_profile_path(0).read_text(encoding="utf-8"), "profile")
    assert isinstance(profile, StepProfile), profile
    calls = {row.key[:3]: row.calls_per_step for row in profile.operators}
    # MXNet 1.9.1 does not record the first operator of a step.
    assert calls["forward", "", "Convolution"] >= 52
    assert calls["backward", "", "_backward_Convolution"] >= 52
    assert sum(row.seconds_per_step for row in profile.operators) > 0.5 * profile.step_seconds


def test_what_cannot_run_here_is_refused_with_its_reason(tmp_path: Path, images: Path) -> None:
    outcome = _run(job(tmp_path, f"{RESNET50}-tf32-bs1-1x1-dali", images))
    assert outcome.kind is OutcomeKind.REFUSED
    assert "TF32" in outcome.reason


def test_a_diverging_training_fails(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-synthetic", images, settings={"learning_rate": 1e38})
    assert _run(spec).failure_class is FailureClass.DIVERGED


def test_memory_that_mxnet_does_not_get_is_named_as_such(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1024-1x1-synthetic", images)
    outcome = run(spec, MXNET.interpreter, before=("prlimit", f"--as={SCARCE_KIB * 1024}"))
    assert outcome.failure_class is FailureClass.HOST_MEMORY, outcome.log_tail
    assert "Failed to allocate CPU Memory" in outcome.reason


def test_a_killed_process_is_named(tmp_path: Path, images: Path) -> None:
    outcome = _run(job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-native", images, window_steps=500), kill(0))
    assert (outcome.kind, outcome.failure_class) == (OutcomeKind.CRASHED, FailureClass.KILLED)
    assert "ended by SIGKILL" in outcome.reason
