"""From the same weights and the same batch, TensorFlow's step and Paddle's come to the same losses and gradients, as
PyTorch's does (tests/helpers/trainers/pytorch/test_parity.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.trainers.environments import TENSORFLOW
from tests.helpers.trainers.pytorch.test_parity import Parity, check_parity, each_parity

pytestmark = [pytest.mark.training, pytest.mark.untimed, TENSORFLOW.needs]


@each_parity
def test_the_first_losses_and_gradients_are_paddle_s(tmp_path: Path, parity: Parity) -> None:
    check_parity(parity, tmp_path, "tensorflow", Path(__file__).parent / "parity_tensorflow.py", TENSORFLOW.run)
