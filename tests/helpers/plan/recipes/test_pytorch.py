"""PyTorch's configuration: the published one for the published cases, else what the Paddle trainer has."""

from __future__ import annotations

import pytest

from helpers.plan.published import PublishedFigure
from helpers.plan.recipes.publishers import PYTORCH
from helpers.plan.recipes.recipe import settings_for, sourced_settings
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.plan.recipes.rows import figures_of, name_of, settings

FIGURES = figures_of(Framework.PYTORCH)
MIXED = ("bf16", "amp_o1", "amp_o2", "amp")


# --- docs/published.md, "The other frameworks' configurations": PyTorch (NGC 21.03)


@pytest.mark.parametrize("figure", FIGURES, ids=name_of)
def test_a_published_row_is_trained_as_methods_says(figure: PublishedFigure) -> None:
    told = settings_for(figure.case, "gpu")
    assert (told["optimizer"], told["learning_rate"], told["momentum"], told["weight_decay"]) == (
        "momentum", 0.1, 0.9, 1e-4,
    )  # fmt: skip
    assert (told["decay_norms"], told["cudnn_benchmark"], told["layout"]) == (False, True, "NCHW")
    assert told["compile_mode"] is None
    for key in ("optimizer", "learning_rate", "momentum", "weight_decay", "decay_norms", "cudnn_benchmark", "layout"):
        assert sourced_settings(figure.case, "gpu")[key].source.where == PYTORCH
    if figure.case.cards > 1:
        assert told["ddp"] == {"gradient_as_bucket_view": False, "bucket_cap_mb": 25, "static_graph": False}
    else:
        assert told["ddp"] == {}


@pytest.mark.parametrize("figure", [each for each in FIGURES if each.case.precision.is_amp], ids=name_of)
def test_a_published_amp_row_has_a_static_loss_scale_of_256(figure: PublishedFigure) -> None:
    told = settings_for(figure.case, "gpu")
    assert (told["amp_level"], told["amp_dtype"], told["loss_scaling"]) == ("O1", "float16", 256.0)
    # No run has so many steps, so the scale never rises.
    assert told["loss_scaling_rule"]["incr_every_n_steps"] == 10**9
    assert sourced_settings(figure.case, "gpu")["loss_scaling"].source.where == PYTORCH


# --- every other case


def test_bf16_is_autocast_without_a_scaler() -> None:
    for device in ("cpu", "gpu"):
        told = settings("pytorch-vgg16-bf16-bs8-1x1-synthetic", device)
        assert (told["amp_level"], told["amp_dtype"], told["loss_scaling"]) == ("O1", "bfloat16", None)


@pytest.mark.parametrize("precision", MIXED)
def test_on_a_cpu_mixed_precision_is_bfloat16_without_loss_scaling(precision: str) -> None:
    told = settings(f"pytorch-resnet50v1.5-{precision}-bs4-1x1-dali_cpu", "cpu")
    assert (told["amp_dtype"], told["loss_scaling"], told["loss_scaling_rule"]) == ("bfloat16", None, {})
    assert (told["input_dtype"], told["cudnn_benchmark"]) == ("float32", False)


def test_pure_half_precision_is_channels_last_with_four_channels_for_resnet50_alone() -> None:
    resnet50, vgg16 = (settings(f"pytorch-{model}-amp_o2-bs256-1x1-dali") for model in ("resnet50v1.5", "vgg16"))
    assert (resnet50["layout"], resnet50["input_channels"], resnet50["input_dtype"]) == ("NHWC", 4, "float16")
    assert (vgg16["layout"], vgg16["input_channels"], vgg16["input_dtype"]) == ("NCHW", 3, "float32")
    assert (resnet50["loss_scaling"], vgg16["loss_scaling"]) == (128.0, 32768.0)
