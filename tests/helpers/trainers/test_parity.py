"""From the same weights and the same batch, each framework's step and Paddle's come to the same losses and gradients,
on images of 64 x 64: ResNet50's kinds of layers in the small network, and VGG16 with a smaller first classifier."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.trainers.contract.case import Case
from tests.helpers.trainers.environments import MXNET, PADDLE, PYTORCH, TENSORFLOW, FrameworkEnvironment, job_file
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
    environments: tuple[FrameworkEnvironment, ...]

    @property
    def frameworks(self) -> list[FrameworkEnvironment]:
        """Those whose environment is here."""
        return [each for each in self.environments if Path(each.interpreter).exists()]

    @property
    def case(self) -> str:
        """A case's id without its framework."""
        return f"{self.model}-fp32-bs{self.batch}-1x1-synthetic"


# VGG16 has 138,357,544 parameters at 224 x 224.
_VGG16 = 138_357_544 - 4096 * 512 * (7 * 7 - 2 * 2)
PARITIES = [
    Parity("resnet50v1.5", 4, "float64", 3, 167_272, 1e-6, (PYTORCH, TENSORFLOW, MXNET)),
    # As the cases compute it. parity_paddle.py says why this is not done with ResNet50.
    Parity("vgg16", 1, "float32", 3, _VGG16, 1e-5, (PYTORCH,)),
]


@pytest.mark.parametrize("parity", PARITIES, ids=lambda each: f"{each.model}-{each.dtype}")
def test_the_first_losses_and_gradients_are_paddle_s(tmp_path: Path, parity: Parity) -> None:
    weights, gradients = tmp_path / "weights.npz", tmp_path / "gradients.npz"
    words = [
        job_file(tmp_path, Case.parse(f"paddle-{parity.case}-dynamic"), "cpu", parity.steps),
        str(weights),
        str(gradients),
    ]
    script = HERE / "paddle" / "parity_paddle.py"
    wanted = json.loads(PADDLE.run(str(script), *words, parity.dtype).splitlines()[-1])
    assert wanted["parameters"] == parity.parameters
    assert len(set(wanted["losses"])) == parity.steps
    for each in parity.frameworks:
        spec = job_file(tmp_path, Case.parse(f"{each.name}-{parity.case}"), "cpu", parity.steps)
        script = HERE / each.name / f"parity_{each.name}.py"
        found = json.loads(each.run(str(script), spec, str(weights), str(gradients), parity.dtype).splitlines()[-1])
        assert found["parameters"] == parity.parameters
        assert found["losses"] == pytest.approx(wanted["losses"], rel=parity.tolerance), each.name
        assert found["gradient_errors"]
        assert beyond(found["gradient_errors"], parity.tolerance) == {}, each.name
    # VGG16's are 0.35 GB each, and pytest keeps the folders of three runs.
    weights.unlink()
    gradients.unlink()
