"""The TensorFlow trainer as the suite starts it, in its own environment: what it records, refuses, and how it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.judging.failure_class import FailureClass
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.plan.small_dataset import make_small_dataset
from helpers.trainers.contract.device_time import PROFILE, DeviceTime
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import Phase, StepProfile, from_json
from helpers.trainers.contract.steplog import StepLog
from tests.helpers.trainers.environments import TENSORFLOW
from tests.helpers.trainers.jobs import CORES, LIMITS, TWO_CORES, job, kill, run

pytestmark = [pytest.mark.training, pytest.mark.untimed, TENSORFLOW.needs, pytest.mark.usefixtures("small_images")]

RESNET50 = "tensorflow-resnet50v1.5"
ADAPTIVE = {"warmup_steps": 6, "steady_window_steps": 2, "most_warmup_steps": 8}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small_dataset(tmp_path_factory.mktemp("data") / "small", images_per_class=4).root


def _run(spec: JobSpec, disturb: Callable[[JobSpec], None] | None = None) -> JobOutcome:
    return run(spec, TENSORFLOW.interpreter, disturb)


def _is_believable(spec: JobSpec, log: StepLog) -> None:
    """Whether TensorFlow's own profiler said of two more steps that they took about as long as those of the window."""
    answer = DeviceTime.from_json(spec.device_time_path(0).read_text(), "answer")
    assert answer.seconds_per_step is not None, answer.reason
    assert answer.method == "tf.profiler: what TensorFlow's threads ran"
    assert 0.1 < answer.seconds_per_step / min(step.step_seconds for step in log.window) < 20


def _losses(outcome: JobOutcome) -> list[list[float | None]]:
    return [[step.loss for step in log.steps] for log in outcome.logs]


def test_one_card_records_what_it_is_and_tells_its_phases(tmp_path: Path, images: Path) -> None:
    settings = {"environment": {"TF_DETERMINISTIC_OPS": "1"}}
    profiled = {"profiled_steps": 2, "explained_steps": 2}
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-dali", images, settings=settings, **profiled)
    outcome = _run(spec)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    (log,) = outcome.logs
    assert (log.header.framework, log.header.device) == ("tensorflow", "cpu")
    assert log.header.framework_version.startswith("2.") and len(log.header.framework_commit) == 11
    facts = log.header.facts
    assert (facts["cores"], facts["threads"], facts["intra_op_threads"]) == (str(CORES[0]), "1", "1")
    assert facts["loader"].startswith("DALI ")
    assert (facts["deterministic"], facts["step_timer"]) == ("on", "the host's clock; steps on a CPU are synchronous")
    beats = [json.loads(line)["phase"] for line in spec.heartbeat_path(0).read_text().splitlines()]
    trained = ["import tensorflow", "data", "build model", "first step", "warm-up", "window", "window"]
    assert beats == [*trained, *(3 * [PROFILE]), *(3 * [PROFILE])]
    _is_believable(spec, log)
    _tells_parts(spec)


def _tells_parts(spec: JobSpec) -> None:
    profile = from_json(spec.step_profile_path(0).read_text(encoding="utf-8"), "profile")
    assert isinstance(profile, StepProfile), profile
    assert all(profile.phases[phase] > 0 for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER))
    convolutions = [row.key[:3] for row in profile.operators if "Conv2D" in row.operator and row.calls_per_step == 1]
    layer = "blocks.3.spatial.convolution"
    assert sorted(key for key in convolutions if key[1] == layer) == [
        ("backward", layer, "Conv2DBackpropFilter"),
        ("backward", layer, "Conv2DBackpropInput"),
        ("forward", layer, "Conv2D"),
    ]
    assert sum(row.seconds_per_step for row in profile.operators) > 0.8 * profile.step_seconds
    assert spec.trace_path(0).stat().st_size > 10_000


@TWO_CORES
def test_two_cards_train_as_one_whether_a_process_has_one_of_them_or_both(tmp_path: Path, images: Path) -> None:
    # That their gradients are averaged, and that they learn, test_steps.py shows with a small network.
    case_id = f"{RESNET50}-fp32-bs2-1x2-dali"
    apart = _run(job(tmp_path / "apart", case_id, images, 1, **ADAPTIVE))
    assert apart.kind is OutcomeKind.COMPLETE, apart.log_tail
    first, second = apart.logs
    for log in apart.logs:
        ring = {"strategy": "MultiWorkerMirroredStrategy", "communication": "RING"}
        assert ring.items() <= log.header.facts.items()
    assert [log.header.facts["cores"] for log in apart.logs] == [str(core) for core in CORES[:2]]
    assert len(first.warmup) == len(second.warmup) and len(first.warmup) in (6, 8)
    together = _run(job(tmp_path / "together", case_id, images, 1, settings={"cards_per_process": 2}))
    assert together.kind is OutcomeKind.COMPLETE, together.log_tail
    (log,) = together.logs
    assert {"strategy": "MirroredStrategy", "cards_per_process": "2"}.items() <= log.header.facts.items()
    assert (log.header.cards_per_process, log.header.world_size) == (2, 1)
    assert {step.samples for step in log.steps} == {4}
    mine, theirs, mean = (_losses(apart)[0], _losses(apart)[1], _losses(together)[0])
    assert mine != theirs
    means = [(a + b) / 2 for a, b in zip(mine[:2], theirs[:2], strict=True)]
    assert mean[0] == pytest.approx(means[0], rel=1e-5)
    # Roundings of another number of threads: with a batch this small they change gradients by per cents in float32,
    # whatever the framework (paddle/parity_paddle.py).
    assert mean[1] == pytest.approx(means[1], rel=2e-2)


def test_what_cannot_run_here_is_refused_with_its_reason(tmp_path: Path, images: Path) -> None:
    outcome = _run(job(tmp_path, f"{RESNET50}-tf32-bs1-1x1-dali", images))
    assert outcome.kind is OutcomeKind.REFUSED
    assert "TF32" in outcome.reason


def test_a_diverging_training_fails(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-synthetic", images, settings={"learning_rate": 1e38})
    assert _run(spec).failure_class is FailureClass.DIVERGED


@TWO_CORES
def test_a_killed_rank_is_named_and_the_others_are_ended(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1-1x2-synthetic", images, window_steps=500)
    killed: list[float] = []

    def kill_rank(spec: JobSpec) -> None:
        kill(1)(spec)
        killed.append(time.monotonic())

    outcome = _run(spec, kill_rank)
    took = time.monotonic() - killed[0]
    assert (outcome.kind, outcome.failure_class, outcome.guilty_rank) == (OutcomeKind.CRASHED, FailureClass.KILLED, 1)
    assert "ended by SIGKILL" in outcome.reason
    # Rank 0 was ended, and nobody waited until it made no progress.
    assert took < 3 * (LIMITS.rank_death_seconds + LIMITS.grace_seconds)
