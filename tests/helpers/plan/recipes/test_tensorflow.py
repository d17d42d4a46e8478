"""TensorFlow: NVIDIA's benchmark and DLPerf's calls for the published cases, else what Paddle's trainer has."""

from __future__ import annotations

import pytest

from helpers.plan.published import PublishedFigure
from helpers.plan.recipes import OWN
from helpers.plan.recipes.departures import departures_of
from helpers.plan.recipes.publishers import DLPERF, DLPERF_CALLS, TENSORFLOW
from helpers.plan.recipes.recipe import fixed_of, settings_for, sourced_settings
from helpers.plan.recipes.tensorflow import is_dlperf
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.frameworks import Framework
from tests.for_each import for_each
from tests.helpers.plan.recipes.rows import figures_of, name_of, settings

FIGURES = figures_of(Framework.TENSORFLOW)
OF_DLPERF = [each for each in FIGURES if each.rule == "dlperf-log"]
OF_NVIDIA = [each for each in FIGURES if each.rule.startswith("ngc-tf")]
OF_THE_DRAFT = [each for each in FIGURES if each.rule == "unknown"]


# --- docs/published.md


@for_each("figure", OF_DLPERF, ids=name_of)
def test_dlperf_s_rows_are_trained_as_its_scripts_say(figure: PublishedFigure) -> None:
    case, written = figure.case, settings_for(figure.case, "gpu")
    rate = 0.001 if case.nodes == 1 else 0.256
    assert written["learning_rate"] == pytest.approx(rate * case.batch_size_per_card * case.cards / 256)
    expected = {
        "momentum": 0.875, "weight_decay": 2**-15, "label_smoothing": 0.1, "learning_rate_schedule": "cosine",
        "learning_rate_warmup_steps": 960, "decay_norms": False, "layout": "NHWC",
    }  # fmt: skip
    assert {key: written[key] for key in expected} == expected
    assert written["learning_rate_decay_steps"] == 90 * 1_281_167 // (case.batch_size_per_card * case.cards)
    table = sourced_settings(case, "gpu")
    assert (table["label_smoothing"].source.where, table["learning_rate"].source.where) == (DLPERF, DLPERF_CALLS)


@pytest.mark.parametrize("figure", OF_NVIDIA, ids=name_of)
def test_nvidia_s_rows_are_trained_as_the_report_says(figure: PublishedFigure) -> None:
    case, written = figure.case, settings_for(figure.case, "gpu")
    assert written["learning_rate"] == pytest.approx(0.1 * case.cards)
    expected = {
        "momentum": 0.9, "weight_decay": 1e-4, "label_smoothing": 0.0, "learning_rate_schedule": "step",
        "learning_rate_boundaries": [30, 60, 80, 90], "decay_norms": False, "xla_mode": "autoclustering",
        "memory_fraction": None,
    }  # fmt: skip
    assert {key: written[key] for key in expected} == expected
    assert sourced_settings(case, "gpu")["learning_rate"].source.where == TENSORFLOW


@pytest.mark.parametrize("figure", OF_THE_DRAFT, ids=name_of)
def test_what_the_draft_leaves_open_is_a_stated_choice(figure: PublishedFigure) -> None:
    table = sourced_settings(figure.case, "gpu")
    assert table["learning_rate"].source.where == OWN
    assert "the early draft states nothing" in table["learning_rate"].source.reason
    (data,) = [each for each in fixed_of(figure.case, "gpu") if each.name == "data"]
    assert (data.value, "the early draft" in data.source.where) == ("read by DALI", True)
    assert table["memory_fraction"].value == 0.7
    assert "data" in [each.about for each in departures_of(figure.case)]


@for_each("figure", FIGURES, ids=name_of)
def test_amp_is_float16_with_a_loss_scale_of_128_that_nothing_moves(figure: PublishedFigure) -> None:
    written = settings_for(figure.case, "gpu")
    half = (written["amp_level"], written["amp_dtype"], written["loss_scaling"])
    if not figure.case.precision.is_amp:
        assert (half, written["loss_scaling_rule"]) == ((None, None, None), {})
        return
    assert half == ("O1", "float16", 128.0)
    assert {written["loss_scaling_rule"][f"{way}_every_n_{what}"] for way, what in (
        ("incr", "steps"), ("decr", "nan_or_inf"),
    )} == {10**9}  # fmt: skip


# --- every other case


@pytest.mark.parametrize("rest", ["amp-bs4-1x1-dali", "amp-bs4-1x2-native-xla", "fp32-bs4-1x1-synthetic-xla"])
def test_on_a_cpu_the_rate_starts_at_once_and_half_precision_is_bfloat16(rest: str) -> None:
    case = Case.parse(f"tensorflow-resnet50v1.5-{rest}")
    written = settings_for(case, "cpu")
    assert written["learning_rate"] == pytest.approx(0.1 * case.batch_size_per_card * case.cards / 256)
    assert (written["learning_rate_warmup_steps"], written["learning_rate_decay_steps"]) == (0, None)
    assert written["amp_dtype"] == ("bfloat16" if case.precision.is_amp else None)
    assert (written["loss_scaling"], written["native"]["workers"], written["dali"]["threads"]) == (None, 1, None)
    # What a step computes stays the published one.
    assert written["label_smoothing"] == (0.1 if is_dlperf(case) else 0.0)


def test_tfrecord_files_are_read_where_the_publishers_read_them() -> None:
    rest = "resnet50v1.5-amp-bs256-1x1-native"
    assert settings(f"tensorflow-{rest}-xla")["native_source"] == "tfrecord"
    assert settings(f"tensorflow-{rest}-xla", "cpu")["native_source"] == "jpeg"
    assert settings(f"tensorflow-{rest}")["native_source"] == "jpeg"
