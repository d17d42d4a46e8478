"""From the same weights and the same batch, each framework's step and Paddle's come to the same losses and gradients,
on images of 64 x 64: every layer of the networks is in them, but VGG16's first classifier is smaller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.environments import EACH, PYTORCH, FrameworkEnvironment
from tests.helpers.trainers.parity_batch import beyond

pytestmark = [pytest.mark.training, pytest.mark.untimed]

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
    # float64: TensorFlow's gradients are up to 2.7e-8 off, as it takes the loss in float32, and MXNet's 1.2e-11. In
    # float32: up to 1.9e-6, 2.5e-6 and 2.2e-6.
    tolerance: float

    @property
    def case(self) -> str:
        """A case's id without its framework."""
        return f"{self.model}-fp32-bs{self.batch}-1x1-synthetic"


# VGG16 has 138,357,544 parameters at 224 x 224: test_models.py and each test_steps.py say so.
_VGG16 = 138_357_544 - 4096 * 512 * (7 * 7 - 2 * 2)
PARITIES = [
    Parity("resnet50v1.5", 4, "float64", 3, 25_557_032, 1e-6),
    # As the cases compute it. parity_paddle.py says why this is not done with ResNet50.
    Parity("vgg16", 1, "float32", 3, _VGG16, 1e-5),
]


@dataclass(frozen=True)
class PaddleSteps:
    """What Paddle's steps left: where its weights and the first gradients are, its losses and how many parameters."""

    parity: Parity
    files: tuple[str, str]
    losses: list[float]
    parameters: int


@pytest.fixture(scope="module", params=PARITIES, ids=lambda each: f"{each.model}-{each.dtype}")
def paddle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddleSteps]:
    """Paddle's steps, made once for all other frameworks."""
    parity: Parity = request.param
    folder = tmp_path_factory.mktemp("paddle")
    weights, gradients = folder / "weights.npz", folder / "gradients.npz"
    words = [str(_job_file(folder, f"paddle-{parity.case}-dynamic", parity.steps)), str(weights), str(gradients)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "paddle" / "parity_paddle.py"), *words, parity.dtype], env=environment,
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    yield PaddleSteps(parity, (str(weights), str(gradients)), told["losses"], told["parameters"])
    # VGG16's are 0.35 GB each, and pytest keeps the folders of three runs.
    weights.unlink()
    gradients.unlink()


def _job_file(folder: Path, case_id: str, steps: int) -> Path:
    case = Case.parse(case_id)
    path = folder / f"{case.framework.value}.json"
    spec = JobSpec("j", case, 0, str(folder), "cpu", 0, steps, settings=settings_for(case, "cpu"))
    path.write_text(spec.to_json(), encoding="utf-8")
    return path


@pytest.mark.parametrize("environment", EACH)
def test_the_first_losses_and_gradients_are_paddle_s(
    tmp_path: Path, paddle: PaddleSteps, environment: FrameworkEnvironment
) -> None:
    name, parity = environment.name, paddle.parity
    if parity.model == "vgg16" and environment is not PYTORCH:
        pytest.skip("VGG16 is Paddle's and PyTorch's")
    spec = _job_file(tmp_path, f"{name}-{parity.case}", parity.steps)
    script = HERE / name / f"parity_{name}.py"
    found = json.loads(environment.run(str(script), str(spec), *paddle.files, parity.dtype).splitlines()[-1])
    assert found["parameters"] == paddle.parameters == parity.parameters
    assert len(paddle.losses) == len(set(paddle.losses)) == parity.steps
    assert found["losses"] == pytest.approx(paddle.losses, rel=parity.tolerance)
    assert found["gradient_errors"]
    assert beyond(found["gradient_errors"], parity.tolerance) == {}
