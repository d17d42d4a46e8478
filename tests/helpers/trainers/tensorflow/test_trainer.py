"""The TensorFlow trainer as the suite starts it, in its own environment: two cards, and what they record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.launch.outcome import OutcomeKind
from tests.helpers.trainers.colours import LEARNING_RATES, check_learnt
from tests.helpers.trainers.environments import TENSORFLOW
from tests.helpers.trainers.jobs import ADAPTIVE, CORES, TWO_CORES, job, run

pytestmark = [pytest.mark.training, pytest.mark.untimed, TENSORFLOW.needs, pytest.mark.usefixtures("small_images")]

FACTS = {
    "strategy": "MultiWorkerMirroredStrategy",
    "float32_convolutions": "53",
    "threads": "1",
    "intra_op_threads": "1",
    "step_timer": "the host's clock; steps on a CPU are synchronous",
}


@TWO_CORES
def test_two_cards_learn_together_until_both_are_steady(tmp_path: Path, colours: Path) -> None:
    settings = {"learning_rate": LEARNING_RATES["resnet50v1.5"], "label_smoothing": 0.0}
    spec = job(tmp_path, "tensorflow-resnet50v1.5-fp32-bs2-1x2-dali", colours, 3, settings, **ADAPTIVE)
    outcome = run(spec, TENSORFLOW.interpreter)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    first, second = outcome.logs
    for log in outcome.logs:
        header = log.header
        assert (header.framework, header.device, len(header.framework_commit)) == ("tensorflow", "cpu", 11)
        assert header.framework_version.startswith("2.")
        assert FACTS.items() <= header.facts.items()
        assert header.facts["loader"].startswith("DALI ")
        check_learnt(log)
    assert [log.header.facts["cores"] for log in outcome.logs] == [str(core) for core in CORES[:2]]
    assert len(first.warmup) == len(second.warmup) and len(first.warmup) in (6, 8)
    assert [step.loss for step in first.steps] != [step.loss for step in second.steps]
    beats = [json.loads(line) for line in spec.heartbeat_path(0).read_text().splitlines()]
    phases = [beat["phase"] for beat in beats if "phase" in beat]
    assert phases[:6] == ["import tensorflow", "connect ranks", "data", "build model", "first step", "warm-up"]
