"""Training that learns, in every mode that runs on a CPU: real processes, on two colours that are easily told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.trainers.colours import learn, two_colours
from tests.helpers.trainers.environments import PYTORCH

pytestmark = [pytest.mark.training, pytest.mark.untimed, PYTORCH.needs, pytest.mark.usefixtures("small_images")]

RESNET50, VGG16 = "pytorch-resnet50v1.5", "pytorch-vgg16"
RULE = {"incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 1, "incr_ratio": 2.0, "decr_ratio": 0.5}


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_colours(tmp_path_factory.mktemp("colours"))


@pytest.mark.parametrize(
    ("case", "settings", "facts"),
    [
        (f"{RESNET50}-bf16-bs2-1x1-dali_cpu", {}, {"bfloat16_convolutions": "53"}),
        (
            f"{VGG16}-fp32-bs1-1x1-synthetic-compile",
            {},
            {"float32_convolutions": "13", "compiled_graphs": "1", "inductor_layout_optimization": "on"},
        ),
        (
            f"{RESNET50}-amp_o2-bs2-1x1-dali",
            # So large a scale overflows at first: those steps are skipped, with no trace in the optimizer's state.
            {"loss_scaling": 2.0**127, "loss_scaling_rule": RULE},
            {"bfloat16_convolutions": "53", "master_copies": "55"},
        ),
    ],
)
def test_the_loss_falls(
    tmp_path: Path, colours: Path, case: str, settings: dict[str, Any], facts: dict[str, str]
) -> None:
    learnt = learn(tmp_path, case, colours, PYTORCH.interpreter, **settings)
    assert learnt.fallen, f"{learnt.losses}\n{learnt.errors}"
    assert facts.items() <= learnt.facts.items()
