"""Training that learns, in every mode that runs on a CPU: real processes, on two colours that are easily told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.trainers.contract.case import Case
from tests.helpers.trainers.colours import learn, two_colours
from tests.helpers.trainers.cores import NO_BFLOAT16, lacks_bfloat16, own_cores
from tests.helpers.trainers.environments import MXNET

pytestmark = [pytest.mark.training, pytest.mark.untimed, MXNET.needs, pytest.mark.usefixtures("small_images")]

CORES = own_cores()
RESNET50 = "mxnet-resnet50v1.5"


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_colours(tmp_path_factory.mktemp("colours"))


@pytest.mark.parametrize(
    ("case", "facts"),
    [
        (f"{RESNET50}-fp32-bs2-1x1-dali_cpu", {"float32_convolutions": "53"}),
        (f"{RESNET50}-amp-bs2-1x2-dali", {"bfloat16_convolutions": "53"}),
    ],
)
def test_the_loss_falls(tmp_path: Path, colours: Path, case: str, facts: dict[str, str]) -> None:
    if Case.parse(case).cards > len(CORES):
        pytest.skip("two cards need two cores")
    # The loss of smoothed labels does not fall near 0, however well they are learnt.
    learnt = learn(tmp_path, case, colours, MXNET.interpreter, label_smoothing=0.0)
    if lacks_bfloat16(case):
        assert NO_BFLOAT16 in learnt.errors
        return
    assert learnt.fallen, f"{learnt.losses}\n{learnt.errors}"
    assert facts.items() <= learnt.facts.items()
