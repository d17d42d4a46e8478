"""Training that learns, in every mode that runs on a CPU: real processes, on two colours that are easily told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.trainers.colours import learn, two_colours
from tests.helpers.trainers.environments import TENSORFLOW

pytestmark = [pytest.mark.training, pytest.mark.untimed, TENSORFLOW.needs, pytest.mark.usefixtures("small_images")]

RESNET50 = "tensorflow-resnet50v1.5"
# Smoothed labels have a loss that stays, however much is learnt.
HARD = {"label_smoothing": 0.0}


STATIC = {"incr_every_n_steps": 10**9, "decr_every_n_nan_or_inf": 10**9, "incr_ratio": 2.0, "decr_ratio": 0.5}


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = two_colours(tmp_path_factory.mktemp("colours"))
    TENSORFLOW.run("-m", "helpers.trainers.tensorflow.records", str(folder))
    return folder


@pytest.mark.parametrize(
    ("case", "settings", "facts"),
    [
        ("fp32-bs2-1x1-dali_cpu", {}, {"float32_convolutions": "53", "strategy": "none"}),
        (
            "amp-bs2-1x1-native-xla",
            {"loss_scaling": 128.0, "loss_scaling_rule": STATIC, "native_source": "tfrecord"},
            {"bfloat16_convolutions": "53", "NHWC_convolutions": "53"},
        ),
    ],
)
def test_the_loss_falls(
    tmp_path: Path, colours: Path, case: str, settings: dict[str, Any], facts: dict[str, str]
) -> None:
    learnt = learn(tmp_path, f"{RESNET50}-{case}", colours, TENSORFLOW.interpreter, **settings, **HARD)
    assert learnt.fallen, f"{learnt.losses}\n{learnt.errors}"
    assert facts.items() <= learnt.facts.items()
