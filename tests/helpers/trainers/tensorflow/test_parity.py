"""From the same weights and the same batch, TensorFlow's step and Paddle's come to the same losses, as PyTorch's does
(tests/helpers/trainers/pytorch/test_parity.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.trainers.pytorch.test_parity import STEPS, TOLERANCE, job_file, run_paddle
from tests.helpers.trainers.tensorflow_environment import needs_tensorflow, run_in_tensorflow

pytestmark = [pytest.mark.training, pytest.mark.untimed, needs_tensorflow]

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("model", "batch", "parameters"),
    # VGG16's at 224 x 224 are test_steps.py's.
    [("resnet50v1.5", 4, 25_557_032), ("vgg16", 1, 138_357_544 - 4096 * 512 * (7 * 7 - 2 * 2))],
)
def test_the_first_losses_are_paddle_s(tmp_path: Path, model: str, batch: int, parameters: int) -> None:
    weights = tmp_path / "weights.npz"
    case = f"{model}-fp32-bs{batch}-1x1-synthetic"
    paddle = run_paddle(job_file(tmp_path, f"paddle-{case}-dynamic"), weights)
    words = [str(HERE / "parity_tensorflow.py"), str(job_file(tmp_path, f"tensorflow-{case}")), str(weights)]
    found = json.loads(run_in_tensorflow(*words).splitlines()[-1])
    assert found["parameters"] == paddle["parameters"] == parameters
    assert len(found["losses"]) == STEPS
    assert found["losses"] == pytest.approx(paddle["losses"], rel=TOLERANCE)
