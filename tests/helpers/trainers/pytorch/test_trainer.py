"""The PyTorch trainer as the suite starts it, in its own environment: what it records, refuses, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.plan.grown_dataset import GrownDataset
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import Phase, StepProfile, from_json
from tests.helpers.trainers.colours import LEARNING_RATES, has_fallen, two_colours
from tests.helpers.trainers.environments import PYTORCH
from tests.helpers.trainers.jobs import CORES, LIMITS, TWO_CORES, job, kill, run

pytestmark = [pytest.mark.training, pytest.mark.untimed, PYTORCH.needs, pytest.mark.usefixtures("small_images")]

RESNET50 = "pytorch-resnet50v1.5"
ADAPTIVE = {"warmup_steps": 6, "steady_window_steps": 2, "most_warmup_steps": 8}
# Of amp_o2 on two cards.
FACTS = {
    "backend": "gloo",
    "bfloat16_convolutions": "53",
    "NHWC_convolutions": "53",
    "master_copies": "55",
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GrownDataset(tmp_path_factory.mktemp("data") / "small").first(32).root


def _run(spec: JobSpec, disturb: Callable[[JobSpec], None] | None = None) -> JobOutcome:
    return run(spec, PYTORCH.interpreter, disturb)


def test_one_card_records_what_it_is_and_tells_its_phases(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-dali", images)
    outcome = _run(spec)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    (log,) = outcome.logs
    assert (log.header.framework, log.header.device, len(log.header.framework_commit)) == ("pytorch", "cpu", 40)
    assert log.header.framework_version.startswith("2.")
    facts = log.header.facts
    assert (facts["cores"], facts["threads"], facts["torch_threads"]) == (str(CORES[0]), "1", "1")
    assert facts["loader"].startswith("DALI ")
    beats = [json.loads(line)["phase"] for line in spec.heartbeat_path(0).read_text().splitlines()]
    assert beats == ["import torch", "data", "build model", "first step", "warm-up", "window", "window"]


@TWO_CORES
def test_two_cards_learn_together_each_on_its_own_core_until_both_are_steady(tmp_path: Path) -> None:
    case_id = f"{RESNET50}-amp_o2-bs2-1x2-native"
    settings = {"learning_rate": LEARNING_RATES["resnet50v1.5"]}
    images = two_colours(tmp_path / "colours")
    spec = job(tmp_path, case_id, images, 2, settings=settings, explained_steps=2, **ADAPTIVE)
    outcome = _run(spec)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    first, second = outcome.logs
    for log in outcome.logs:
        assert FACTS.items() <= log.header.facts.items()
        losses = [step.loss for step in log.steps if step.loss is not None]
        assert any(has_fallen(losses[:steps]) for steps in range(len(losses) + 1)), losses
    assert [log.header.facts["cores"] for log in outcome.logs] == [str(core) for core in CORES[:2]]
    assert len(first.warmup) == len(second.warmup)
    assert len(first.warmup) in (6, 8)
    assert [step.loss for step in first.steps] != [step.loss for step in second.steps]
    for rank in (0, 1):
        profile = from_json(spec.step_profile_path(rank).read_text(encoding="utf-8"), f"rank {rank}")
        assert isinstance(profile, StepProfile), profile
        assert all(profile.phases[phase] > 0 for phase in (Phase.DATA_WAIT, Phase.FORWARD, Phase.BACKWARD))
        calls = {row.key[:3]: row.calls_per_step for row in profile.operators}
        assert calls["forward", "stem.convolution", "aten::conv2d"] == 1
        assert calls["backward", "stem.convolution", "aten::convolution_backward"] == 1
        assert calls["all_reduce", "", "gloo:all_reduce"] >= 1
        assert sum(row.seconds_per_step for row in profile.operators) > 0.9 * profile.step_seconds
        assert spec.trace_path(rank).stat().st_size > 10_000


def test_what_cannot_run_here_is_refused_with_its_reason(tmp_path: Path, images: Path) -> None:
    outcome = _run(job(tmp_path, f"{RESNET50}-tf32-bs1-1x1-dali", images))
    assert outcome.kind is OutcomeKind.REFUSED
    assert "TF32" in outcome.reason


@TWO_CORES
def test_a_killed_rank_is_named_and_the_others_are_ended(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1-1x2-synthetic", images, window_steps=500)
    killed: list[float] = []

    def kill_rank(spec: JobSpec) -> None:
        kill(1)(spec)
        killed.append(time.monotonic())

    outcome = _run(spec, kill_rank)
    took = time.monotonic() - killed[0]
    assert (outcome.kind, outcome.what, outcome.guilty_rank) == (OutcomeKind.FAILED, "killed by a signal", 1)
    assert "ended by SIGKILL" in outcome.reason
    # Rank 0 was ended, and nobody waited until it made no progress.
    assert took < 3 * (LIMITS.rank_death_seconds + LIMITS.grace_seconds)


def test_a_killed_worker_of_the_loader_is_no_fault_of_the_data(tmp_path: Path, images: Path) -> None:
    def kill_worker(spec: JobSpec) -> None:
        while not spec.step_log_path(0).exists():
            time.sleep(0.1)
        rank = int(json.loads(spec.step_log_path(0).read_text().splitlines()[0])["pid"])
        os.kill(int(Path(f"/proc/{rank}/task/{rank}/children").read_text().split()[0]), signal.SIGKILL)

    outcome = _run(job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-native", images, window_steps=500), kill_worker)
    assert outcome.what == "killed by a signal"
    assert "DataLoader worker" in outcome.reason
