"""docs/published.md point by point: what it says of a configuration, every published Paddle row's recipe has.

Where the suite departs from a sentence, the test says so and asks for the reason beside the recipe.
"""

from __future__ import annotations

import inspect
from typing import Any

from helpers.launch.launchers import launch_command
from helpers.launch.launchers.launcher import Place
from helpers.plan.baseline_files import BASELINES
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.published import PublishedFigure, load_published
from helpers.plan.recipes import OWN
from helpers.plan.recipes.recipe import fixed_of, settings_for, sourced_settings
from helpers.trainers.common import images as data
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import Model
from tests.for_each import for_each

FIGURES = [
    figure
    for card in ("v100", "a100")
    for figure in load_published(BASELINES / "published" / f"{card}.json").figures
    if figure.case.framework is Framework.PADDLE
]
RESNET50 = [figure for figure in FIGURES if figure.case.model is Model.RESNET50]
VGG16 = [figure for figure in FIGURES if figure.case.model is Model.VGG16]
SINGLE = [figure for figure in RESNET50 if figure.case.precision in (Precision.FP32, Precision.TF32)]
PURE = [figure for figure in RESNET50 if figure.case.precision is Precision.AMP_O2]
AUTO = [figure for figure in VGG16 if figure.case.auto]
COLLECTIVE = [figure for figure in VGG16 if not figure.case.auto]
VGG16_AMP = [figure for figure in COLLECTIVE if figure.case.precision is Precision.AMP_O1]


def name_of(figure: PublishedFigure) -> str:
    return f"{figure.target}-{figure.case.id}"


def settings(figure: PublishedFigure) -> dict[str, Any]:
    return settings_for(figure.case, "gpu")


def fixed(figure: PublishedFigure) -> dict[str, str]:
    return {each.name: each.value for each in fixed_of(figure.case, "gpu")}


def test_the_rows_are_the_10_of_resnet50_and_the_44_of_vgg16() -> None:
    assert (len(FIGURES), len(RESNET50), len(VGG16)) == (54, 10, 44)
    assert (len(SINGLE), len(PURE), len(AUTO), len(VGG16_AMP)) == (5, 5, 16, 16)


# --- Paddle ResNet50 v1.5 configuration behind the numbers


@for_each("figure", FIGURES, ids=name_of)
def test_launcher_python_for_one_card_and_paddle_s_for_more_with_all_nodes(figure: PublishedFigure) -> None:
    case = figure.case
    spec = draft_job(
        SuiteCase(case, figure.target, MeasuringProtocol("p", 1, 1, 1)),
        settings(figure),
        device="gpu",
        run_folder="RUN",
    )
    place = Place(1, case.nodes, "10.0.0.2", "10.0.0.1:1234") if case.nodes > 1 else None
    words = " ".join(launch_command(spec, "python", place).argv)
    if case.cards == 1:
        assert words == "python -u -m helpers.trainers.paddle.trainer RUN/spec.json"
        return
    assert words.startswith("python -u -m paddle.distributed.launch")
    assert "--devices 0,1,2,3,4,5,6,7" in words
    assert (f"--nnodes {case.nodes}" in words) is (case.nodes > 1)


# Rows, settings of the recipe, and words of what the recipe says is fixed.
SAID: list[tuple[list[PublishedFigure], dict[str, Any], dict[str, str]]] = [
    (
        RESNET50,
        {
            "optimizer": "momentum", "momentum": 0.9, "learning_rate": 0.1, "learning_rate_boundaries": [30, 60, 90],
            "weight_decay": 1e-4,
            "fleet": {"nccl_comm_num": 1, "fuse_all_reduce_ops": True, "fuse_grad_size_in_MB": 16},
            "accuracy_top_k": [1, 5],
        },
        {
            "loss": "mean cross-entropy, no label smoothing", "image size": "224 x 224", "seed": "1234",
            "model": "v1.5: stride 2 in the 3x3 convolution",
        },
    ),
    (
        SINGLE,
        {
            "layout": "NCHW", "feed_layout": "NCHW", "input_channels": 3, "input_dtype": "float32",
            "build_strategy": {"fuse_elewise_add_act_ops": True, "enable_addto": True},
            "amp_level": None, "amp_dtype": None, "amp_through": None, "loss_scaling": None,
        },
        {},
    ),
    (
        PURE,
        {
            "amp_level": "O2", "amp_dtype": "float16", "layout": "NHWC", "input_channels": 4, "input_dtype": "float16",
            "loss_scaling": 128.0,
            "loss_scaling_rule": {
                "incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 2, "incr_ratio": 2.0, "decr_ratio": 0.8,
            },
            # PaddleClas's loader gives CHW; its model transposes.
            "feed_layout": "NCHW", "amp_through": "decorate",
            "build_strategy": {
                "fuse_bn_act_ops": True, "fuse_bn_add_act_ops": True, "fuse_elewise_add_act_ops": True,
                "enable_addto": True,
            },
        },
        {"optimizer's weights": "multi_precision"},
    ),
    (
        [*PURE, *AUTO],
        {
            "dali.seed": 42, "dali.num_attempts": 100, "dali.device_memory_padding": 211025920,
            "dali.host_memory_padding": 140544512, "augmentation.crop_area": [0.08, 1.0],
            "augmentation.crop_aspect_ratio": [3 / 4, 4 / 3], "augmentation.flip_probability": 0.5,
        },
        {"decoding": "mixed, linear, int64"},
    ),
    ([*SINGLE, *COLLECTIVE], {}, {"decoding": "random resized crop, flip, normalise"}),
    (
        VGG16,
        {"optimizer": "momentum", "momentum": 0.9, "weight_decay": 1e-4, "layout": "NCHW", "accuracy_top_k": []},
        {"model": "VGG16 with convolution bias, no batch norm"},
    ),
    (
        COLLECTIVE,
        {
            "execution_strategy": {"num_threads": 2, "num_iteration_per_drop_scope": 100},
            "build_strategy": {
                "enable_inplace": False, "fuse_elewise_add_act_ops": True, "fuse_bn_act_ops": True,
            },
            "fleet": {"nccl_comm_num": 1},
        },
        {},
    ),
    (VGG16_AMP, {"amp_level": "O1", "amp_dtype": "float16", "amp_through": "fleet", "loss_scaling": 32768.0}, {}),
]  # fmt: skip


@for_each("figure", FIGURES, ids=name_of)
def test_every_row_s_recipe_is_what_the_document_says(figure: PublishedFigure) -> None:
    told, words = settings(figure), fixed(figure)
    for figures, wanted, fixed_words in SAID:
        if figure not in figures:
            continue
        for name, value in wanted.items():
            group, _, inner = name.rpartition(".")
            assert (told[group][inner] if group else told[inner]) == value, name
        for name, parts in fixed_words.items():
            # Of the decoding each word is looked for.
            for part in parts.split(", ") if name == "decoding" else [parts]:
                assert part in words[name]
    assert figure.case.execution is Execution.STATIC
    assert figure.case.data is (DataSource.DALI if figure in [*PURE, *AUTO] else DataSource.NATIVE)
    assert figure.case.data is DataSource.DALI or told["native"]["workers"] > 0


def test_the_batch_the_seed_and_the_images_are_the_document_s() -> None:
    assert {figure.case.batch_size_per_card for figure in RESNET50} == {256}
    assert data.IMAGE_SIZE == 224
    assert inspect.signature(JobSpec).parameters["seed"].default == 1234


@for_each("figure", RESNET50, ids=name_of)
def test_resnet50_environment(figure: PublishedFigure) -> None:
    flags = settings(figure)["environment"]
    published = {
        "FLAGS_fraction_of_gpu_memory_to_use": "0.80",
        "FLAGS_cudnn_batchnorm_spatial_persistent": "1",
        "FLAGS_max_inplace_grad_add": "8",
        "FLAGS_cudnn_exhaustive_search": "1",
        "FLAGS_eager_delete_tensor_gb": "0.0",
        "FLAGS_conv_workspace_size_limit": "1500" if figure in PURE else "4000",
        "FLAGS_apply_pass_to_program": "true",
    }
    assert {name: flags.get(name) for name in published} == published
    assert flags["FLAGS_enable_pir_api"] == "0"
    for name in set(flags) - set(published):
        assert sourced_settings(figure.case, "gpu")[f"environment.{name}"].source.where == OWN


def test_dali_pipeline_without_a_gpu_has_no_padding() -> None:
    told = settings_for(Case.parse("paddle-resnet50v1.5-fp32-bs4-1x1-dali-static"), "cpu")["dali"]
    assert (told["device_memory_padding"], told["host_memory_padding"]) == (0, 0)


@for_each("figure", VGG16, ids=name_of)
def test_vgg16_learning_rate_departs_from_the_published_one_and_says_why(figure: PublishedFigure) -> None:
    source = sourced_settings(figure.case, "gpu")["learning_rate"].source
    assert settings(figure)["learning_rate"] == 0.01
    assert source.where == OWN
    assert "0.1" in source.reason


@for_each("figure", AUTO, ids=name_of)
def test_vgg16_auto_is_the_case_s_own_switch_and_leaves_the_strategies_to_it(figure: PublishedFigure) -> None:
    assert figure.case.auto
    told = settings(figure)
    for group in ("build_strategy", "execution_strategy", "fleet"):
        source = sourced_settings(figure.case, "gpu")[group].source
        assert told[group] == {}
        assert source.where == OWN
        assert "strategy.auto" in source.reason


def test_vgg16_cards_are_1_8_2x8_and_4x8_for_every_batch() -> None:
    shapes = {(figure.case.nodes, figure.case.cards_per_node) for figure in VGG16}
    assert shapes == {(1, 1), (1, 8), (2, 8), (4, 8)}
    by_table = {(figure.table, figure.case.batch_size_per_card) for figure in VGG16}
    assert len(by_table) * 4 == len(VGG16)
