"""The MXNet trainer as the suite starts it, in its own environment: what it records, refuses, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.plan.grown_dataset import GrownDataset
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.environments import MXNET
from tests.helpers.trainers.jobs import CORES, TWO_CORES, job, run

pytestmark = [pytest.mark.training, pytest.mark.untimed, MXNET.needs, pytest.mark.usefixtures("small_images")]

RESNET50 = "mxnet-resnet50v1.5"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GrownDataset(tmp_path_factory.mktemp("data") / "small").first(32).root


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
    assert facts["loader"].startswith("DALI ")
    beats = [json.loads(line)["phase"] for line in spec.heartbeat_path(0).read_text().splitlines()]
    assert beats == ["import mxnet", "data", "build model", "first step", "warm-up", "window", "window"]


def test_what_cannot_run_here_is_refused_with_its_reason(tmp_path: Path, images: Path) -> None:
    outcome = _run(job(tmp_path, f"{RESNET50}-tf32-bs1-1x1-dali", images))
    assert outcome.kind is OutcomeKind.REFUSED
    assert "TF32" in outcome.reason
