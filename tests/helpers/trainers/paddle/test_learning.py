"""Training that learns, in the ways of one card on a CPU: real processes, on two colours that are easily told apart.
Ranks learn as test_trainer.py has them warm up, in fp32 dynamic and amp_o2 by to_static."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.helpers.trainers.colours import learn, two_colours
from tests.helpers.trainers.cores import NO_BFLOAT16, lacks_bfloat16

pytestmark = [pytest.mark.training, pytest.mark.untimed, pytest.mark.usefixtures("small_images")]

RESNET50, VGG16 = "paddle-resnet50v1.5", "paddle-vgg16"


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_colours(tmp_path_factory.mktemp("colours"))


@pytest.mark.parametrize(
    ("case", "facts"),
    [
        (f"{RESNET50}-fp32-bs2-1x1-native-to_static", {"data": "native"}),
        (f"{RESNET50}-amp_o2-bs2-1x1-dali-static", {"bfloat16_convolutions": "53", "NHWC_convolutions": "53"}),
        (f"{VGG16}-amp_o1-bs1-1x1-synthetic-static", {"program": "PIR", "bfloat16_convolutions": "13"}),
    ],
)  # fmt: skip
def test_the_loss_falls(tmp_path: Path, colours: Path, case: str, facts: dict[str, str]) -> None:
    learnt = learn(tmp_path, case, colours, sys.executable)
    if lacks_bfloat16(case):
        assert NO_BFLOAT16 in learnt.errors
        return
    assert learnt.fallen, f"{learnt.losses}\n{learnt.errors}"
    assert facts.items() <= learnt.facts.items()
