"""FLOPs by hand-counted layers and by what is known of both models, and the share of a peak that follows."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.case import Model, Precision
from helpers.errors import ResultError
from helpers.utilisation import (
    Peak,
    forward_multiply_adds,
    layers_of,
    peak_precision,
    told,
    training_flops,
    utilisation,
)

ANSWER: dict[str, Any] = {
    "precision": "bf16", "device": "gpu", "device_name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "tflops": 800.0,
    "size": 8192, "repeats": 10, "how": "torch.matmul", "framework_version": "2.13.0",
}  # fmt: skip
PEAK = Peak.from_record(ANSWER)


@pytest.mark.parametrize(("model", "known"), [(Model.RESNET50, 4.089e9), (Model.VGG16, 15.470e9)])
def test_the_forward_pass_has_the_known_multiply_adds(model: Model, known: float) -> None:
    # METHODS.md states both; torchvision and the papers round them to 4.09 and 15.5.
    assert forward_multiply_adds(model) == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize(("model", "weights"), [(Model.RESNET50, 53 + 1), (Model.VGG16, 13 + 3)])
def test_every_convolution_and_classifier_counts_once(model: Model, weights: int) -> None:
    names = [layer.name for layer in layers_of(model)]
    assert len(set(names)) == len(names) == weights


def test_the_stride_of_v1_5_stands_in_the_three_by_three_convolution() -> None:
    layers = {layer.name: layer.multiply_adds for layer in layers_of(Model.RESNET50)}
    # In v1 both would be of 28 x 28 outputs.
    assert layers["stage 2 block 1 reduce"] == 256 * 128 * 56 * 56
    assert layers["stage 2 block 1 spatial"] == 9 * 128 * 128 * 28 * 28


def test_a_training_step_is_three_forward_passes_without_the_gradient_of_the_image() -> None:
    stem = 7 * 7 * 3 * 64 * 112 * 112
    assert training_flops(Model.RESNET50) == 2 * (3 * forward_multiply_adds(Model.RESNET50) - stem)
    first = 9 * 3 * 64 * 224 * 224
    assert training_flops(Model.VGG16) == 2 * (3 * forward_multiply_adds(Model.VGG16) - first)
    assert training_flops(Model.RESNET50) == pytest.approx(24.3e9, rel=1e-3)


def test_the_share_is_of_all_cards() -> None:
    half = 400e12 / training_flops(Model.RESNET50)
    assert utilisation(half, Model.RESNET50, PEAK) == pytest.approx(0.5)
    assert utilisation(half, Model.RESNET50, PEAK, cards=2) == pytest.approx(0.25)
    assert told(0.381, PEAK) == "38.1% of the measured bf16 peak (800 TFLOP/s)"


@pytest.mark.parametrize(
    ("precision", "amp_dtype", "expected"),
    [
        (Precision.FP32, None, "fp32"),
        (Precision.TF32, None, "tf32"),
        (Precision.BF16, "bfloat16", "bf16"),
        (Precision.AMP, "float16", "fp16"),
        (Precision.AMP_O2, "bfloat16", "bf16"),
    ],
)
def test_the_limit_of_mixed_precision_is_its_16_bit_product(
    precision: Precision, amp_dtype: str | None, expected: str
) -> None:
    assert peak_precision(precision, {"amp_dtype": amp_dtype}) == expected


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"tflops": 0.0}, "tflops"),
        ({"tflops": float("nan")}, "tflops"),
        ({"size": 0}, "size"),
        ({"repeats": True}, "repeats"),
        ({"uuid": None}, "uuid"),
    ],
)
def test_an_answer_that_is_no_peak_is_refused_by_its_field(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(ResultError, match=field):
        Peak.from_record({**ANSWER, **wrong})


def test_an_answer_with_other_keys_is_refused() -> None:
    with pytest.raises(ResultError, match="the keys"):
        Peak.from_record({**ANSWER, "watts": 1})
    with pytest.raises(ResultError, match="the keys"):
        Peak.from_record([])
