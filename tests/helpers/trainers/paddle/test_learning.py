"""Training that learns, in every mode that runs on a CPU: real processes, on two colours that are easily told apart.

ResNet50 learns by every way of execution and in every precision, VGG16 in a static and a to_static program, once a
level of AMP. Ranks learn as test_trainer.py has them warm up, in fp32 dynamic and amp_o2 by to_static; that VGG16 takes
the right dynamic steps is test_parity.py's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.helpers.trainers.colours import learn, two_colours
from tests.helpers.trainers.cores import NO_BFLOAT16, lacks_bfloat16, own_cores

pytestmark = [pytest.mark.training, pytest.mark.untimed, pytest.mark.usefixtures("small_images")]

CORES = own_cores()
RESNET50, VGG16 = "paddle-resnet50v1.5", "paddle-vgg16"
BFLOAT16 = "AMP {} in bfloat16: convolution and matmul, on oneDNN"


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_colours(tmp_path_factory.mktemp("colours"))


@pytest.mark.parametrize(
    ("case", "facts"),
    [
        (f"{RESNET50}-fp32-bs2-1x1-native-to_static", {"precision": "float32"}),
        (f"{RESNET50}-fp32-bs2-1x1-synthetic-dynamic", {"precision": "float32"}),
        (f"{RESNET50}-amp_o1-bs2-1x1-dali-static", {"program": "PIR", "bfloat16_convolutions": "53"}),
        (f"{RESNET50}-amp_o1-bs2-1x1-native-to_static", {"precision": BFLOAT16.format("O1")}),
        (
            f"{RESNET50}-amp_o2-bs2-1x1-dali-static",
            {"bfloat16_convolutions": "53", "NHWC_convolutions": "53", "feed": "NCHW, 4 channels, float32"},
        ),
        (
            f"{RESNET50}-bf16-bs2-1x1-dali-to_static",
            {"precision": BFLOAT16.format("O2"), "bfloat16_convolutions": "53"},
        ),
        (
            f"{VGG16}-amp_o1-bs1-1x1-synthetic-static",
            {"program": "PIR", "bfloat16_convolutions": "13", "layout": "NCHW", "loss_dtype": "paddle.float32"},
        ),
        (f"{VGG16}-amp_o2-bs1-1x1-synthetic-to_static", {"bfloat16_convolutions": "13", "layout": "NCHW"}),
    ],
)  # fmt: skip
def test_the_loss_falls(tmp_path: Path, colours: Path, case: str, facts: dict[str, str]) -> None:
    learnt = learn(tmp_path, case, colours, sys.executable, CORES)
    if lacks_bfloat16(case):
        assert NO_BFLOAT16 in learnt.errors
        return
    assert learnt.fallen, f"{learnt.losses}\n{learnt.errors}"
    assert facts.items() <= learnt.facts.items()
