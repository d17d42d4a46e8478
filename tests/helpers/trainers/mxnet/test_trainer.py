"""The MXNet trainer as the suite starts it, in its own environment: one process of two cards, and what it records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.launch.outcome import OutcomeKind
from tests.helpers.trainers.colours import LEARNING_RATES, check_learnt
from tests.helpers.trainers.environments import MXNET
from tests.helpers.trainers.jobs import CORES, TWO_CORES, job, run

pytestmark = [pytest.mark.training, pytest.mark.untimed, MXNET.needs, pytest.mark.usefixtures("small_images")]


@TWO_CORES
def test_one_process_drives_two_cards_that_learn_together(tmp_path: Path, colours: Path) -> None:
    settings = {"learning_rate": LEARNING_RATES["resnet50v1.5"], "label_smoothing": 0.0}
    spec = job(tmp_path, "mxnet-resnet50v1.5-fp32-bs2-1x2-dali", colours, 10, settings)
    outcome = run(spec, MXNET.interpreter)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    (log,) = outcome.logs
    check_learnt(log)
    assert (log.header.framework, log.header.framework_version, log.header.device) == ("mxnet", "1.9.1", "cpu")
    assert (log.header.world_size, log.header.cards_per_process) == (1, 2)
    assert {step.samples for step in log.steps} == {4}
    facts = log.header.facts
    assert facts["cores"] == ",".join(map(str, sorted(CORES[:2])))
    assert (facts["threads"], facts["onednn"], facts["float32_convolutions"]) == ("1", "on", "53")
    assert facts["loader"].startswith("DALI ")
    beats = [json.loads(line)["phase"] for line in spec.heartbeat_path(0).read_text().splitlines()]
    assert beats[:6] == ["import mxnet", "data", "build model", "first step", "warm-up", "window"]
