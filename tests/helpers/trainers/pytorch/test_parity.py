"""From the same weights and the same batch, PyTorch's step and Paddle's come to the same losses and gradients, on
images of 64 x 64: every layer of the networks is in them, but VGG16's first classifier is smaller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.environments import PYTORCH
from tests.helpers.trainers.pytorch.parity_batch import beyond

pytestmark = [pytest.mark.training, pytest.mark.untimed, PYTORCH.needs]

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Parity:
    """A job of which every framework's first steps are compared with Paddle's."""

    model: str
    batch: int
    dtype: str
    steps: int
    parameters: int
    # Relative to Paddle's: of every loss, and of every tensor's first gradient by its norm. Measured, in
    # float64: PyTorch's and TensorFlow's gradients are up to 2.7e-8 off, as both take the loss in float32, and MXNet's
    # 1.2e-11. In float32: up to 1.9e-6, 2.5e-6 and 2.2e-6.
    tolerance: float


# VGG16 has 138,357,544 parameters at 224 x 224: test_models.py and each test_steps.py say so.
_VGG16 = 138_357_544 - 4096 * 512 * (7 * 7 - 2 * 2)
PARITIES = [
    Parity("resnet50v1.5", 4, "float64", 3, 25_557_032, 1e-6),
    Parity("vgg16", 1, "float64", 3, _VGG16, 1e-6),
    # As the cases compute it. parity_paddle.py says why this is not done with ResNet50.
    Parity("vgg16", 1, "float32", 1, _VGG16, 1e-5),
]
each_parity = pytest.mark.parametrize("parity", PARITIES, ids=lambda each: f"{each.model}-{each.dtype}")


def check_parity(parity: Parity, folder: Path, framework: str, script: Path, run: Callable[..., str]) -> None:
    """Paddle's steps and then those of ``framework``, whose ``script`` is run by ``run``, from Paddle's weights."""
    case = f"{parity.model}-fp32-bs{parity.batch}-1x1-synthetic"
    weights, gradients = folder / "weights.npz", folder / "gradients.npz"
    files = str(weights), str(gradients), parity.dtype
    paddle = _paddle(str(_job_file(folder, f"paddle-{case}-dynamic", parity.steps)), *files)
    spec = _job_file(folder, f"{framework}-{case}", parity.steps)
    found = json.loads(run(str(script), str(spec), *files).splitlines()[-1])
    # VGG16's are 0.35 GB each, and pytest keeps the folders of three runs.
    weights.unlink()
    gradients.unlink()
    assert found["parameters"] == paddle["parameters"] == parity.parameters
    assert len(paddle["losses"]) == len(set(paddle["losses"])) == parity.steps
    assert found["losses"] == pytest.approx(paddle["losses"], rel=parity.tolerance)
    assert found["gradient_errors"]
    assert beyond(found["gradient_errors"], parity.tolerance) == {}


def _job_file(folder: Path, case_id: str, steps: int) -> Path:
    case = Case.parse(case_id)
    path = folder / f"{case.framework.value}.json"
    spec = JobSpec("j", case, 0, str(folder), "cpu", 0, steps, settings=settings_for(case, "cpu"))
    path.write_text(spec.to_json(), encoding="utf-8")
    return path


def _paddle(*words: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "parity_paddle.py"), *words], env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@each_parity
def test_the_first_losses_and_gradients_are_paddle_s(tmp_path: Path, parity: Parity) -> None:
    check_parity(parity, tmp_path, "pytorch", HERE / "parity_pytorch.py", PYTORCH.run)
