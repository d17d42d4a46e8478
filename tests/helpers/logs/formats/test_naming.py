"""Configuration from a log's name: what each part says, what is left unsaid."""

from __future__ import annotations

import pytest

from helpers.logs.formats.common import Facts, finished
from helpers.logs.formats.naming import architecture, model_of, settings_of_name
from helpers.logs.settings import LogSetting, Stated


def _values(name: str) -> dict[str, str]:
    return {setting.value: said.value for setting, said in settings_of_name(name).items()}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "logs/paddle_gpu8_pure_fp16_bs256.txt",
            {"framework": "paddle", "cards": "8", "precision": "amp_o2", "batch_size_per_card": "256"},
        ),
        (
            "resnet50/4n8g/rn50_b128_fp32_1.log",
            {
                "model": "resnet50v1.5",
                "batch_size_per_card": "128",
                "precision": "fp32",
                "nodes": "4",
                "cards": "32",
            },
        ),
        (
            "PaddleClas_ResNet50_bs64_amp_fp16_DP_N4C32_d2sT_log",
            {
                "model": "resnet50v1.5",
                "batch_size_per_card": "64",
                "precision": "amp",
                "nodes": "4",
                "cards": "32",
                "execution": "to_static",
            },
        ),
        (
            "paddle-vgg16-amp_o1-bs32-2x8-dali_cpu-static/steps.jsonl",
            {
                "framework": "paddle",
                "model": "vgg16",
                "precision": "amp_o1",
                "batch_size_per_card": "32",
                "nodes": "2",
                "cards": "16",
                "data": "dali_cpu",
                "execution": "static",
            },
        ),
        ("tf_gpu1_tf32.txt", {"framework": "tensorflow", "cards": "1", "precision": "tf32"}),
        (
            "torch_2gpus_bfloat16_batch_size_96",
            {"framework": "pytorch", "cards": "2", "precision": "bf16", "batch_size_per_card": "96"},
        ),
        ("8xV100/run.log", {"gpu": "V100", "cards": "8"}),
        ("B200_b200.log", {"gpu": "B200", "batch_size_per_card": "200"}),
        ("r50_b128_fp16_3.log", {"model": "resnet50v1.5", "batch_size_per_card": "128", "precision": "amp"}),
        ("RN50v1b.txt", {"model": "resnet50v1.5"}),
        ("resnet50_vd_gpu8", {"cards": "8"}),
        ("resnet50_v1_gpu8", {"cards": "8"}),
        ("vgg16_bn.log", {}),
        ("resnet101.log", {}),
        ("2022-06-15_0815d42/workerlog.0", {}),
        ("gpu0_bs0.log", {}),
    ],
)
def test_the_parts_of_a_name(name: str, values: dict[str, str]) -> None:
    assert _values(name) == values


def test_what_a_name_says_twice_differently_is_not_said_and_no_folder_is_asked() -> None:
    values = _values("gpu8_fp32/mxnet_gpu1_gpu8_bs64_bs128.txt")
    assert values == {"framework": "mxnet", "precision": "fp32"}


def test_the_same_thing_twice_is_said_and_the_exact_name_of_a_precision_wins() -> None:
    assert _values("1n8g_8gpus_amp_o2.log") == {"nodes": "1", "cards": "8", "precision": "amp_o2"}


def test_the_innermost_folder_that_says_it_counts_and_is_named() -> None:
    found = settings_of_name("A100_LOG/V100-LOG/1n8g/rn50.log")
    assert found[LogSetting.GPU] == Stated("V100", "folder name V100-LOG")
    assert found[LogSetting.CARDS] == Stated("8", "folder name 1n8g")
    assert found[LogSetting.MODEL] == Stated("resnet50v1.5", "file name")


def test_the_content_goes_before_the_name() -> None:
    stated = {LogSetting.CARDS: Stated("4", "line 3")}
    assert finished(Facts("gpu8_bs64.log", ()), stated) == {
        LogSetting.CARDS: Stated("4", "line 3"),
        LogSetting.BATCH_SIZE_PER_CARD: Stated("64", "file name"),
    }


def test_models_and_precisions_of_a_script() -> None:
    assert [model_of(each) for each in ("ResNet50", "VGG16", "ResNet50_vd", "ResNet50 or VGG16")] == [
        "resnet50v1.5",
        "vgg16",
        None,
        None,
    ]
    assert architecture("ResNet50") == "resnet50v1.5"
    assert architecture("SE-ResNeXt50_32x4d") == "se_resnext50_32x4d"


@pytest.mark.parametrize("name", ["faster_rcnn_r50_fpn_1x_coco_bs2_fp32", "ssd_vgg16_300", "deeplabv3_resnet50_os8"])
def test_a_part_of_another_network_is_not_the_model(name: str) -> None:
    assert model_of(name) is None
    assert LogSetting.MODEL not in settings_of_name(f"{name}.log")


@pytest.mark.parametrize("name", ["resnet50_224x224_bs256", "vit_b16_224x224", "efficientnet_b4", "mixer_16x16"])
def test_the_size_of_an_image_or_a_model_is_no_setting(name: str) -> None:
    found = settings_of_name(f"{name}.log")
    assert not {LogSetting.NODES, LogSetting.CARDS} & found.keys()
    batch = found.get(LogSetting.BATCH_SIZE_PER_CARD)
    assert (batch.value if batch else None) == ("256" if "bs256" in name else None)
