"""From the same weights and the same batch, MXNet's step and Paddle's come to the same losses, on images of 64 x 64, as
PyTorch's does (tests/helpers/trainers/pytorch/test_parity.py)."""

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
from tests.helpers.trainers.mxnet_environment import ROOT, needs_mxnet, run_in_mxnet

pytestmark = [pytest.mark.training, pytest.mark.untimed, needs_mxnet]

HERE = Path(__file__).parent
PADDLE = HERE.parent / "pytorch/parity_paddle.py"
STEPS = 3
# Rounding alone: all is float64, but that Paddle takes the loss in float32.
TOLERANCE = 1e-6


def _spec(folder: Path, case_id: str) -> Path:
    case = Case.parse(case_id)
    path = folder / f"{case.framework.value}.json"
    spec = JobSpec("j", case, 0, str(folder), "cpu", 0, STEPS, settings=settings_for(case, "cpu"))
    path.write_text(spec.to_json(), encoding="utf-8")
    return path


def _paddle(spec: Path, weights: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(PADDLE), str(spec), str(weights)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize(
    ("model", "batch", "parameters"),
    # VGG16's at 224 x 224, 138,357,544, are test_steps.py's.
    [("resnet50v1.5", 4, 25_557_032), ("vgg16", 1, 138_357_544 - 4096 * 512 * (7 * 7 - 2 * 2))],
)
def test_the_first_losses_are_paddle_s(tmp_path: Path, model: str, batch: int, parameters: int) -> None:
    weights = tmp_path / "weights.npz"
    case = f"{model}-fp32-bs{batch}-1x1-synthetic"
    paddle = _paddle(_spec(tmp_path, f"paddle-{case}-dynamic"), weights)
    words = [str(HERE / "parity_mxnet.py"), str(_spec(tmp_path, f"mxnet-{case}")), str(weights)]
    mxnet = json.loads(run_in_mxnet(*words).splitlines()[-1])
    assert mxnet["parameters"] == paddle["parameters"] == parameters
    assert len(paddle["losses"]) == len(set(paddle["losses"])) == STEPS
    assert mxnet["losses"] == pytest.approx(paddle["losses"], rel=TOLERANCE)
