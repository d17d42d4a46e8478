"""MXNet's configuration: NVIDIA's script for the published cases, else what the Paddle trainer has."""

from __future__ import annotations

import pytest

from helpers.plan.published import PublishedFigure
from helpers.plan.recipes import OWN
from helpers.plan.recipes.departures import departures_of
from helpers.plan.recipes.publishers import MXNET
from helpers.plan.recipes.recipe import fixed_of, settings_for, sourced_settings
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.plan.recipes.rows import figures_of, name_of, settings

FIGURES = figures_of(Framework.MXNET)


@pytest.mark.parametrize("figure", FIGURES, ids=name_of)
def test_a_published_row_is_trained_as_the_script_says(figure: PublishedFigure) -> None:
    case, written = figure.case, settings_for(figure.case, "gpu")
    assert written["learning_rate"] == pytest.approx(0.256 * case.batch_size_per_card * case.cards / 256)
    expected = {
        "momentum": 0.875, "weight_decay": 2**-15, "label_smoothing": 0.1, "learning_rate_schedule": "cosine",
        "learning_rate_warmup_steps": 5 * 32_000 // case.batch_size_per_card, "decay_norms": True,
        "cards_per_process": case.cards_per_node, "kvstore": "device" if case.cards > 1 else None,
        "loss_scaling": None, "loss_scaling_rule": {},
    }  # fmt: skip
    assert {key: written[key] for key in expected} == expected
    assert written["dali"] == {
        "threads": 4, "prefetch_queue_depth": 2, "seed": 42, "num_attempts": 10,
        "device_memory_padding": 2**26, "host_memory_padding": 2**26,
    }  # fmt: skip
    stated = OWN if case.data is DataSource.UNSTATED else MXNET
    assert sourced_settings(case, "gpu")["label_smoothing"].source.where == stated
    data = [each.value for each in fixed_of(case, "gpu") if each.name == "data"]
    assert data == (["read by DALI"] if case.data is DataSource.UNSTATED else [])


@pytest.mark.parametrize("figure", FIGURES, ids=name_of)
def test_half_precision_has_four_channels_in_nhwc(figure: PublishedFigure) -> None:
    written = settings_for(figure.case, "gpu")
    keys = ("layout", "feed_layout", "input_channels", "input_dtype", "amp_level", "amp_dtype", "amp_through")
    half = ("NHWC", "NCHW", 4, "float16", "O2", "float16", "cast")
    single = ("NCHW", "NCHW", 3, "float32", None, None, None)
    assert tuple(written[key] for key in keys) == (half if figure.case.precision.is_amp else single)
    fused = "batch norm" in [each.about for each in departures_of(figure.case)]
    assert fused is figure.case.precision.is_amp


def test_on_a_cpu_the_rate_starts_at_once_and_half_precision_is_bfloat16() -> None:
    written = settings("mxnet-resnet50v1.5-amp-bs4-1x2-dali", "cpu")
    assert written["learning_rate"] == pytest.approx(0.1 * 8 / 256)
    assert (written["learning_rate_warmup_steps"], written["learning_rate_schedule"]) == (0, "step")
    assert (written["amp_level"], written["amp_dtype"], written["amp_through"]) == ("O1", "bfloat16", "amp")
    assert (written["layout"], written["input_channels"], written["dali"]["threads"]) == ("NCHW", 3, None)
    assert written["label_smoothing"] == 0.1
