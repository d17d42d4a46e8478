"""FLOPs by hand-counted layers and by what is known of both models, and the share of a peak that follows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.rates import to_record
from helpers.judging.utilisation import (
    Peak,
    Utilisation,
    peak_of_facts,
    peak_precision,
    training_flops,
    utilisation,
)
from helpers.trainers.contract.case import Case, Precision
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.models import Model

ANSWER: dict[str, Any] = {
    "precision": "bf16", "device": "gpu", "device_name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "tflops": 800.0,
    "size": 8192, "repeats": 10, "how": "torch.matmul", "framework_version": "2.13.0",
}  # fmt: skip
PEAK = Peak.from_record(ANSWER)
ONE = Case.parse("pytorch-resnet50v1.5-bf16-bs256-1x1-synthetic")
EIGHT = Case.parse("pytorch-resnet50v1.5-bf16-bs256-2x4-synthetic")
# A published H100 figure's order of magnitude: 2800 images/s are 68.04 TFLOP/s of ResNet50.
SHARE = Utilisation.of(2800.0, "wall-clock", ONE, PEAK)


def forward_multiply_adds(model: Model) -> int:
    return sum(layer.multiply_adds for layer in model.spec.layers().in_order())


@pytest.mark.parametrize(("model", "known"), [(Model.RESNET50, 4.089e9), (Model.VGG16, 15.470e9)])
def test_the_forward_pass_has_the_known_multiply_adds(model: Model, known: float) -> None:
    # docs/measuring-rules.md states both; torchvision and the papers round them to 4.09 and 15.5.
    assert forward_multiply_adds(model) == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize(("model", "weights"), [(Model.RESNET50, 53 + 1), (Model.VGG16, 13 + 3)])
def test_every_convolution_and_classifier_counts_once(model: Model, weights: int) -> None:
    names = [layer.name for layer in model.spec.layers().in_order()]
    assert len(set(names)) == len(names) == weights


def test_the_stride_of_v1_5_stands_in_the_three_by_three_convolution() -> None:
    layers = {layer.name: layer.multiply_adds for layer in Model.RESNET50.spec.layers().in_order()}
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
    with pytest.raises(ResultError, match="'watts': got 'an unknown key', expected one of precision, "):
        Peak.from_record({**ANSWER, "watts": 1})
    with pytest.raises(ResultError, match="the keys"):
        Peak.from_record([])


def test_a_share_is_told_with_the_figures_that_it_is_made_of() -> None:
    assert SHARE.share == pytest.approx(2800 * 24.299077632e9 / 800e12)
    assert SHARE.in_short() == "8.5% of the measured bf16 peak (800 TFLOP/s)"
    assert SHARE.details("image") == (
        "8.5% of the measured bf16 peak (800 TFLOP/s); 2800 images/s by wall-clock x 24.30 GFLOP each = "
        "68 TFLOP/s; peak: 8192 x 8192, torch.matmul; version 2.13.0"
    )


def test_the_samples_have_the_name_that_the_model_s_entry_gives_them() -> None:
    assert "; 2800 sentences/s by wall-clock x 24.30 GFLOP each = " in SHARE.details("sentence")
    assert "sentences/s" in SHARE.to_facts("sentence")["utilisation"]


def test_several_cards_are_held_against_as_many_peaks() -> None:
    eight = Utilisation.of(8 * 2800.0, "wall-clock", EIGHT, PEAK)
    assert eight.share == pytest.approx(SHARE.share)
    assert eight.in_short() == "8.5% of 8 x the measured bf16 peak (800 TFLOP/s a card)"
    assert "22400 images/s by wall-clock of 8 cards x 24.30 GFLOP each = 544 TFLOP/s" in eight.details("image")


def test_a_cpus_peak_is_told_in_gflops() -> None:
    slow = Utilisation.of(3.0, "wall-clock", ONE, replace(PEAK, tflops=0.1021))
    assert slow.in_short() == "71.4% of the measured bf16 peak (102 GFLOP/s)"


def test_training_that_is_faster_than_the_product_has_no_share() -> None:
    wrong = Utilisation.of(2800.0, "wall-clock", ONE, replace(PEAK, tflops=50.0))
    assert wrong.share is None
    assert wrong.in_short() == "no share: faster than the measured product (50 TFLOP/s), which is then no peak"
    assert "2800 images/s" in wrong.details("image") and "8192 x 8192" in wrong.details("image")


def test_without_a_peak_the_reason_stands_in_its_place() -> None:
    none = Utilisation.of(2800.0, "wall-clock", ONE, "no program; none at all")
    assert (none.share, none.peak, none.in_short()) == (None, None, "no share: no program; none at all")


@pytest.mark.parametrize("found", [PEAK, "no program; none at all", replace(PEAK, tflops=50.0)])
def test_facts_and_records_give_back_what_was_put_in(found: Peak | str) -> None:
    share = Utilisation.of(2800.0, "wall-clock", ONE, found)
    facts = share.to_facts("image")
    assert all(isinstance(value, str) for value in facts.values())
    assert facts["utilisation"] == share.details("image")
    assert peak_of_facts({"cores": "0", **facts}) == found
    assert Utilisation.from_record(json.loads(json.dumps(to_record(share)))) == share


def test_facts_of_a_run_without_a_probe_tell_nothing() -> None:
    assert peak_of_facts({"cores": "0"}) is None


@pytest.mark.parametrize("wrong", [{"peak_size": "large"}, {"peak_tflops": "nan"}, {"peak_uuid": None}])
def test_damaged_facts_are_refused(wrong: dict[str, Any]) -> None:
    facts = {name: value for name, value in {**SHARE.to_facts("image"), **wrong}.items() if value is not None}
    with pytest.raises(ResultError, match="facts"):
        peak_of_facts(facts)


def test_damaged_facts_are_a_reason_in_a_row_and_another_runs_peak_counts() -> None:
    good = SHARE.to_facts("image")
    damaged = {**good, "peak_tflops": "none"}
    found = Utilisation.of_runs(2800.0, "wall-clock", ONE, [damaged])
    assert found is not None and found.share is None
    assert found.reason.startswith("the peak in the run's result cannot be read: ")
    assert Utilisation.of_runs(2800.0, "wall-clock", ONE, [damaged, good]) == SHARE
