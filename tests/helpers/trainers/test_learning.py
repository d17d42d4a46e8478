"""Training that learns, in every framework and way of execution that runs on one card of a CPU: real processes, on two
colours that are easily told apart. The test_trainer.py of each framework has several cards learn together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.trainers.colours import learn
from tests.helpers.trainers.cores import NO_BFLOAT16, lacks_bfloat16
from tests.helpers.trainers.environments import MXNET, PADDLE, PYTORCH, TENSORFLOW, FrameworkEnvironment

pytestmark = [pytest.mark.training, pytest.mark.untimed, pytest.mark.usefixtures("small_images")]

# So large a scale overflows at first: those steps are skipped, with no trace in the optimizer's state.
TOO_LARGE = {
    "loss_scaling": 2.0**127,
    "loss_scaling_rule": {
        "incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 1, "incr_ratio": 2.0, "decr_ratio": 0.5,
    },
}  # fmt: skip
STATIC = {"incr_every_n_steps": 10**9, "decr_every_n_nan_or_inf": 10**9, "incr_ratio": 2.0, "decr_ratio": 0.5}
# Smoothed labels have a loss that stays, however much is learnt.
HARD = {"label_smoothing": 0.0}


def _learns(
    environment: FrameworkEnvironment, case: str, facts: dict[str, str], settings: dict[str, Any] | None = None
) -> Any:
    """A parameter: what the header then says, and the settings that its recipe has otherwise."""
    case_id = f"{environment.name}-{case}"
    return pytest.param(environment, case_id, settings or {}, facts, id=case_id, marks=environment.needs)


@pytest.mark.parametrize(
    ("environment", "case", "settings", "facts"),
    [
        _learns(PADDLE, "vgg16-amp_o1-bs1-1x1-dali-static", {"program": "PIR", "bfloat16_convolutions": "13"}),
        _learns(PYTORCH, "resnet50v1.5-bf16-bs2-1x1-dali", {"bfloat16_convolutions": "53"}, TOO_LARGE),
        _learns(
            PYTORCH,
            "vgg16-fp32-bs1-1x1-synthetic-compile",
            {"float32_convolutions": "13", "compiled_graphs": "1", "inductor_layout_optimization": "on"},
        ),
        _learns(
            TENSORFLOW,
            "resnet50v1.5-amp-bs2-1x1-native",
            {"bfloat16_convolutions": "53", "NHWC_convolutions": "53", "strategy": "none"},
            {"loss_scaling": 128.0, "loss_scaling_rule": STATIC, "native_source": "tfrecord", **HARD},
        ),
        _learns(MXNET, "resnet50v1.5-amp-bs2-1x1-dali_cpu", {"bfloat16_convolutions": "53"}, HARD),
    ],
)
def test_the_loss_falls(
    tmp_path: Path,
    colours: Path,
    environment: FrameworkEnvironment,
    case: str,
    settings: dict[str, Any],
    facts: dict[str, str],
) -> None:
    if settings.get("native_source") == "tfrecord":
        environment.run("-m", "helpers.trainers.tensorflow.records", str(colours))
    learnt = learn(tmp_path, case, colours, environment.interpreter, **settings)
    if lacks_bfloat16(case) and environment in (PADDLE, MXNET):
        assert NO_BFLOAT16 in learnt.errors
        return
    assert learnt.fallen, f"{learnt.losses}\n{learnt.errors}"
    assert facts.items() <= learnt.facts.items()
