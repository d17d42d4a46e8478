"""FLOPs by hand-counted layers and by what is known of both models, and the share of a data sheet's peak."""

from __future__ import annotations

import pytest

from helpers.report.utilisation import Utilisation, matrix_precision, peak_tflops, training_flops
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.models import Model

ONE = Case.parse("pytorch-resnet50v1.5-bf16-bs256-1x1-synthetic")
EIGHT = Case.parse("pytorch-resnet50v1.5-bf16-bs256-2x4-synthetic")


def forward_multiply_adds(model: Model) -> int:
    return sum(layer.multiply_adds for layer in model.spec.layers().in_order())


@pytest.mark.parametrize(("model", "known"), [(Model.RESNET50, 4.089e9), (Model.VGG16, 15.470e9)])
def test_the_forward_pass_has_the_known_multiply_adds(model: Model, known: float) -> None:
    # docs/published.md states both; torchvision and the papers round them to 4.09 and 15.5.
    assert forward_multiply_adds(model) == pytest.approx(known, rel=1e-4)


def test_a_training_step_is_three_forward_passes_without_the_gradient_of_the_image() -> None:
    stem = 7 * 7 * 3 * 64 * 112 * 112
    assert training_flops(Model.RESNET50) == 2 * (3 * forward_multiply_adds(Model.RESNET50) - stem)
    first = 9 * 3 * 64 * 224 * 224
    assert training_flops(Model.VGG16) == 2 * (3 * forward_multiply_adds(Model.VGG16) - first)
    assert training_flops(Model.RESNET50) == pytest.approx(24.3e9, rel=1e-3)


@pytest.mark.parametrize(
    ("case_id", "amp_dtype", "expected"),
    [
        ("pytorch-vgg16-fp32-bs1-1x1-synthetic", None, "fp32"),
        ("pytorch-vgg16-tf32-bs1-1x1-synthetic", None, "tf32"),
        ("pytorch-vgg16-bf16-bs1-1x1-synthetic", "bfloat16", "bf16"),
        ("pytorch-vgg16-amp-bs1-1x1-synthetic", "float16", "fp16"),
    ],
)
def test_the_limit_of_mixed_precision_is_its_16_bit_product(case_id: str, amp_dtype: str | None, expected: str) -> None:
    assert matrix_precision(Case.parse(case_id), {"amp_dtype": amp_dtype}) == expected


@pytest.mark.parametrize(
    ("chip", "precision", "tflops"),
    [
        ("Tesla V100-SXM2-32GB", "fp16", 125.0),
        ("Tesla V100S-PCIE-32GB", "fp32", 16.4),
        ("NVIDIA A100-SXM4-40GB", "fp16", 312.0),
        ("NVIDIA A100 80GB PCIe", "tf32", 156.0),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.0),
        ("NVIDIA H200", "fp32", 67.0),
        ("NVIDIA L40S", "fp32", 91.6),
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "fp16", None),
        ("NVIDIA A1000", "fp32", None),
    ],
)
def test_a_chips_peak_is_its_own_and_no_similar_ones(chip: str, precision: str, tflops: float | None) -> None:
    assert peak_tflops(chip, precision) == tflops


def test_the_share_is_of_all_cards() -> None:
    half = 312e12 / 2 / training_flops(Model.RESNET50)
    settings = {"amp_dtype": "bfloat16"}
    one = Utilisation.of(half, ONE, settings, {"cards": "1 x NVIDIA A100-SXM4-40GB"})
    # Cards are counted on one node.
    eight = Utilisation.of(half, EIGHT, settings, {"cards": "4 x NVIDIA A100-SXM4-40GB"})
    assert one is not None and eight is not None
    assert (one.share, one.limit) == (pytest.approx(0.5), "312 TFLOP/s bf16")
    assert (eight.share, eight.limit) == (pytest.approx(0.5 / 8), "8 x 312 TFLOP/s bf16")


@pytest.mark.parametrize("cards", ["", "2 x 1 core", "1 x NVIDIA A100-SXM4-40GB, 1 x Tesla T4", "1 x Quadro P400"])
def test_a_chip_without_a_known_peak_has_no_share(cards: str) -> None:
    assert Utilisation.of(100.0, ONE, {"amp_dtype": "bfloat16"}, {"cards": cards}) is None
