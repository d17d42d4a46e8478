"""Training that learns, in every mode that runs on a CPU: real processes, on two colours that are easily told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.trainers.colours import learn, two_colours
from tests.helpers.trainers.cores import own_cores
from tests.helpers.trainers.environments import PYTORCH

pytestmark = [pytest.mark.training, pytest.mark.untimed, PYTORCH.needs, pytest.mark.usefixtures("small_images")]

CORES = own_cores()
RESNET50, VGG16 = "pytorch-resnet50v1.5", "pytorch-vgg16"
CAST = "float32, cast where they are used"


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_colours(tmp_path_factory.mktemp("colours"))


@pytest.mark.parametrize(
    ("case", "facts"),
    [
        (
            f"{RESNET50}-fp32-bs2-1x1-dali",
            {"float32_convolutions": "53", "NCHW_convolutions": "53", "weights": "float32"},
        ),
        (f"{RESNET50}-bf16-bs2-1x1-dali_cpu", {"bfloat16_convolutions": "53", "weights": CAST}),
        (f"{RESNET50}-amp-bs2-1x1-dali", {"bfloat16_convolutions": "53", "decay_norms": "off"}),
        (
            f"{VGG16}-fp32-bs1-1x1-synthetic-compile",
            {"float32_convolutions": "13", "compiled_graphs": "1", "inductor_layout_optimization": "on"},
        ),
    ],
)
def test_the_loss_falls(tmp_path: Path, colours: Path, case: str, facts: dict[str, str]) -> None:
    learnt = learn(tmp_path, case, colours, PYTORCH.interpreter, CORES)
    assert learnt.fallen, f"{learnt.losses}\n{learnt.errors}"
    assert facts.items() <= learnt.facts.items()


def test_the_loss_falls_under_loss_scaling_as_on_a_gpu(tmp_path: Path, colours: Path) -> None:
    rule = {"incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 1, "incr_ratio": 2.0, "decr_ratio": 0.5}
    # test_steps.py has the same without copies of the weights.
    case = f"{RESNET50}-amp_o2-bs2-1x1-dali"
    # So large a scale overflows at first: those steps are skipped, with no trace in the optimizer's state.
    learnt = learn(
        tmp_path, case, colours, PYTORCH.interpreter, CORES, loss_scaling=2.0**127, loss_scaling_rule=rule
    )  # fmt: skip
    assert learnt.fallen, f"{learnt.losses}\n{learnt.errors}"
    assert learnt.facts["loss_scaling"].startswith("dynamic from 1.7")
    assert learnt.facts["bfloat16_convolutions"] == "53"


def test_nothing_is_learnt_where_nothing_is_updated(tmp_path: Path, colours: Path) -> None:
    # So that these tests can fail, here and with the other frameworks, which read the same images: dropout and drawn
    # crops alone do not let a loss fall.
    case = f"{RESNET50}-amp_o2-bs2-1x1-dali"
    learnt = learn(tmp_path, case, colours, PYTORCH.interpreter, CORES, steps=10, learning_rate=0.0)
    assert len(learnt.losses) == 10
    assert not learnt.fallen
