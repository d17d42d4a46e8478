"""From the same weights and the same batch, PyTorch's step and Paddle's come to the same losses, on images of 64 x 64:
every layer of the networks is in them, but VGG16's first classifier is smaller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.pytorch_environment import ROOT, needs_pytorch, run_in_pytorch

pytestmark = [pytest.mark.training, pytest.mark.untimed, needs_pytorch]

HERE = Path(__file__).parent
STEPS = 3
# Rounding alone: both take the loss in float32.
TOLERANCE = 1e-6


def job_file(folder: Path, case_id: str) -> Path:
    case = Case.parse(case_id)
    path = folder / f"{case.framework.value}.json"
    spec = JobSpec("j", case, 0, str(folder), "cpu", 0, STEPS, settings=settings_for(case, "cpu"))
    path.write_text(spec.to_json(), encoding="utf-8")
    return path


def run_paddle(spec: Path, weights: Path) -> dict[str, Any]:
    words = [sys.executable, str(HERE / "parity_paddle.py"), str(spec), str(weights)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize(
    ("model", "batch", "parameters"),
    # VGG16's at 224 x 224, 138,357,544, are test_models.py's and test_steps.py's.
    [("resnet50v1.5", 4, 25_557_032), ("vgg16", 1, 138_357_544 - 4096 * 512 * (7 * 7 - 2 * 2))],
)
def test_the_first_losses_are_paddle_s(tmp_path: Path, model: str, batch: int, parameters: int) -> None:
    weights = tmp_path / "weights.npz"
    case = f"{model}-fp32-bs{batch}-1x1-synthetic"
    paddle = run_paddle(job_file(tmp_path, f"paddle-{case}-dynamic"), weights)
    words = [str(HERE / "parity_pytorch.py"), str(job_file(tmp_path, f"pytorch-{case}")), str(weights)]
    pytorch = json.loads(run_in_pytorch(*words))
    assert pytorch["parameters"] == paddle["parameters"] == parameters
    assert len(paddle["losses"]) == len(set(paddle["losses"])) == STEPS
    assert pytorch["losses"] == pytest.approx(paddle["losses"], rel=TOLERANCE)
