"""From the same weights and the same batch, MXNet's step and Paddle's come to the same losses and gradients, as
PyTorch's does (tests/helpers/trainers/pytorch/test_parity.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.trainers.environments import MXNET
from tests.helpers.trainers.pytorch.test_parity import Parity, check_parity, each_parity

pytestmark = [pytest.mark.training, pytest.mark.untimed, MXNET.needs]


@each_parity
def test_the_first_losses_and_gradients_are_paddle_s(tmp_path: Path, parity: Parity) -> None:
    check_parity(parity, tmp_path, "mxnet", Path(__file__).parent / "parity_mxnet.py", MXNET.run)
