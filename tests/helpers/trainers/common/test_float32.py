from __future__ import annotations

import pytest

from helpers.trainers.common.float32 import PROBE, checked_state
from helpers.trainers.common.process import Refused
from helpers.trainers.contract.case import Precision

ROUNDED = 1.0


def test_the_state_is_what_the_products_show() -> None:
    assert checked_state(Precision.FP32, PROBE, PROBE, on_gpu=True) == "matmul off, convolution off"
    assert checked_state(Precision.TF32, ROUNDED, ROUNDED, on_gpu=True) == "matmul on, convolution on"
    assert checked_state(Precision.AMP, ROUNDED, PROBE, on_gpu=True) == "matmul on, convolution off"


@pytest.mark.parametrize(
    ("precision", "product", "convolved", "on_gpu", "reason"),
    [
        (Precision.FP32, ROUNDED, PROBE, True, r"off \(matmul on, convolution off\): this would not be fp32"),
        (Precision.FP32, PROBE, ROUNDED, False, r"this CPU's library rounds float32 products \(matmul off"),
        (Precision.TF32, ROUNDED, PROBE, True, r"on \(matmul on, convolution off\): this would not be tf32"),
        (Precision.TF32, PROBE, ROUNDED, True, r"on \(matmul off, convolution on\): this would not be tf32"),
    ],
)
def test_what_is_not_the_precisions_arithmetic_is_refused(
    precision: Precision, product: float, convolved: float, on_gpu: bool, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        checked_state(precision, product, convolved, on_gpu)


def test_a_framework_without_a_switch_for_matrices_needs_its_convolutions_alone() -> None:
    state = checked_state(Precision.TF32, PROBE, ROUNDED, on_gpu=True, by_product=False)
    assert state == "matmul off, convolution on"
    with pytest.raises(Refused, match="could not be switched on"):
        checked_state(Precision.TF32, ROUNDED, PROBE, on_gpu=True, by_product=False)
