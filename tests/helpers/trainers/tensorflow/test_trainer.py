"""The TensorFlow trainer as the suite starts it, in its own environment: what it records, refuses, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.plan.grown_dataset import GrownDataset
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.environments import TENSORFLOW
from tests.helpers.trainers.jobs import CORES, TWO_CORES, job, run

pytestmark = [pytest.mark.training, pytest.mark.untimed, TENSORFLOW.needs, pytest.mark.usefixtures("small_images")]

RESNET50 = "tensorflow-resnet50v1.5"
ADAPTIVE = {"warmup_steps": 6, "steady_window_steps": 2, "most_warmup_steps": 8}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GrownDataset(tmp_path_factory.mktemp("data") / "small").first(32).root


def _run(spec: JobSpec, disturb: Callable[[JobSpec], None] | None = None) -> JobOutcome:
    return run(spec, TENSORFLOW.interpreter, disturb)


def test_one_card_records_what_it_is(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-dali", images)
    outcome = _run(spec)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    (log,) = outcome.logs
    assert (log.header.framework, log.header.device) == ("tensorflow", "cpu")
    assert log.header.framework_version.startswith("2.") and len(log.header.framework_commit) == 11
    facts = log.header.facts
    assert (facts["cores"], facts["threads"], facts["intra_op_threads"]) == (str(CORES[0]), "1", "1")
    assert facts["loader"].startswith("DALI ")
    assert facts["step_timer"] == "the host's clock; steps on a CPU are synchronous"
    beats = [json.loads(line)["phase"] for line in spec.heartbeat_path(0).read_text().splitlines()]
    assert beats == ["import tensorflow", "data", "build model", "first step", "warm-up", "window", "window"]


@TWO_CORES
def test_two_cards_train_together(tmp_path: Path, images: Path) -> None:
    outcome = _run(job(tmp_path, f"{RESNET50}-fp32-bs2-1x2-dali", images, 1, **ADAPTIVE))
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    first, second = outcome.logs
    for log in outcome.logs:
        assert log.header.facts["strategy"] == "MultiWorkerMirroredStrategy"
    assert [log.header.facts["cores"] for log in outcome.logs] == [str(core) for core in CORES[:2]]
    assert len(first.warmup) == len(second.warmup) and len(first.warmup) in (6, 8)
    assert [step.loss for step in first.steps] != [step.loss for step in second.steps]


def test_what_cannot_run_here_is_refused_with_its_reason(tmp_path: Path, images: Path) -> None:
    outcome = _run(job(tmp_path, f"{RESNET50}-tf32-bs1-1x1-dali", images))
    assert outcome.kind is OutcomeKind.REFUSED
    assert "TF32" in outcome.reason
