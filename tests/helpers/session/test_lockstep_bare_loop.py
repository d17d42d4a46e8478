"""The bare loop beside a case's trainer: what it is told to train, and where there is none."""

from __future__ import annotations

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.session.lockstep import Seat, bare_arm
from helpers.trainers.contract.blocks import BARE
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError


def bare_argv(case_id: str, seat: Seat) -> str:
    case = Case.parse(case_id)
    return " ".join(bare_arm(BARE, case, seat, settings_for(case, seat.device)).argv)


def test_the_bare_loop_of_each_framework_trains_the_same_case_in_its_interpreter() -> None:
    paddle = bare_argv("paddle-resnet50v1.5-amp_o1-bs4-1x1-synthetic-to_static", Seat((3,), interpreter="/p/python"))
    rate = 0.1 * 4 / 256
    assert paddle == (
        f"/p/python -m helpers.trainers.paddle.bare_loop --batch-size 4 --learning-rate {rate} --cores 3 --bf16"
    )  # fmt: skip
    pytorch = bare_argv("pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic", Seat((2, 3), interpreter="/t/python"))
    assert pytorch.startswith(f"/t/python -m helpers.trainers.pytorch.bare_loop --batch-size 4 --learning-rate {rate}")
    assert "--cores 2 3 --tf32 off" in pytorch
    mxnet = bare_argv("mxnet-resnet50v1.5-amp-bs4-1x1-synthetic", Seat((2,), interpreter="/m/python"))
    assert mxnet == (
        f"/m/python -m helpers.trainers.mxnet.bare_loop --batch-size 4 --learning-rate {rate} --cores 2 --bf16"
    )
    tensorflow = bare_argv("tensorflow-resnet50v1.5-bf16-bs4-1x1-synthetic", Seat((2,), interpreter="/f/python"))
    assert tensorflow == (
        f"/f/python -m helpers.trainers.tensorflow.bare_loop --batch-size 4 --learning-rate {rate} --cores 2 "
        "--amp-dtype bfloat16"
    )


def test_on_a_card_the_bare_loop_scales_the_loss_as_the_case_does_and_sees_that_card_alone() -> None:
    case = Case.parse("pytorch-resnet50v1.5-amp-bs256-1x1-synthetic")
    seat = Seat(cards=("GPU-aa",))
    arm = bare_arm(BARE, case, seat, settings_for(case, seat.device))
    assert "--device cuda --amp-dtype float16 --loss-scaling 256" in " ".join(arm.argv)
    assert arm.environment["CUDA_VISIBLE_DEVICES"] == "GPU-aa"


@pytest.mark.parametrize(
    "case_id",
    [
        "pytorch-vgg16-fp32-bs1-1x1-synthetic",
        "pytorch-resnet50v1.5-fp32-bs4-1x1-dali",
        "pytorch-resnet50v1.5-amp_o2-bs4-1x1-synthetic",
        "pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic-compile",
        "mxnet-resnet50v1.5-fp32-bs4-1x1-dali",
        # DLPerf's, whose weight decay spares batch norm.
        "tensorflow-resnet50v1.5-fp32-bs4-1x1-synthetic-xla",
    ],
)
def test_a_case_without_a_bare_loop_is_refused(case_id: str) -> None:
    with pytest.raises(ConfigError, match="no bare loop"):
        bare_argv(case_id, Seat((3,)))
