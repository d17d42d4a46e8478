"""The configuration of a run of NVIDIA's scripts: from its parameters, its lines, its ranks and its name."""

from __future__ import annotations

import pytest

from helpers.logs.formats.common import facts_of
from tests.helpers.logs.nvidia_lines import (
    MLLOG,
    MXNET_PARAMETERS,
    PYTORCH_PARAMETERS,
    TENSORFLOW_PARAMETERS,
    context,
    settings,
)

NVLOG = ":::NVLOGv0.2.3 None 1600000000.123456789 (runner.py:{line}) {text}"


def nvlog(*texts: str) -> list[str]:
    return [NVLOG.format(line=number, text=text) for number, text in enumerate(texts, 100)]


def test_parameters_hold_spaces_commas_lists_and_nothing() -> None:
    found = {key: said.value for key, said in facts_of(context([TENSORFLOW_PARAMETERS])).parameters.items()}
    assert found["data_dir"] == "./my data/tf, records"
    assert found["lr_steps"] == "[30, 60]"
    assert found["xla"] == "True"
    assert found["use_static_loss_scaling"] == "True"
    assert "export_dir" not in found
    assert "pretrained" not in found


def test_tensorflow() -> None:
    assert settings("nvidia-tensorflow", [TENSORFLOW_PARAMETERS, "Num GPUs 4", "Per-GPU Batch Size 96"]) == {
        "framework": "tensorflow",
        "model": "resnet50v1.5",
        "precision": "amp",
        "batch_size_per_card": "96",
        "cards": "4",
        "data": "native",
        "xla": "true",
    }


@pytest.mark.parametrize(
    ("change", "setting", "value"),
    [
        (("amp : True", "amp : False"), "precision", "fp32"),
        (("amp : True", "precision : fp32  use_tf_amp : True"), "precision", "amp"),
        (("amp : True", "precision : fp16  use_tf_amp : False"), "precision", "amp"),
        (("amp : True", "precision : fp32  use_tf_amp : False"), "precision", "fp32"),
        (("dali : False", "dali : True"), "data", "dali"),
        (("dali : False", "use_dali : True"), "data", "dali"),
        (("data_dir : ./my data/tf, records", "data_dir : None"), "data", "synthetic"),
        (("xla : True", "use_xla : False"), "xla", "false"),
        (("arch : resnet50", "arch : se-resnext101-32x4d"), "model", "se-resnext101-32x4d"),
    ],
)
def test_tensorflow_parameters(change: tuple[str, str], setting: str, value: str | None) -> None:
    assert change[0] in TENSORFLOW_PARAMETERS
    assert settings("nvidia-tensorflow", [TENSORFLOW_PARAMETERS.replace(*change)]).get(setting) == value


def test_tensorflow_of_2019() -> None:
    lines = nvlog(
        "TF AMP is activated - Experimental Feature",
        "Model HParams:",
        'Name: "resnet50_v1.5"',
        "Starting Model Training...",
        "Num GPUs: 8",
        "Per-GPU Batch Size: 96",
        "XLA is activated - Experimental Feature",
    )
    expected = {
        "framework": "tensorflow",
        "model": "resnet50v1.5",
        "precision": "amp",
        "batch_size_per_card": "96",
        "cards": "8",
        "xla": "true",
    }
    assert settings("nvidia-tensorflow", lines) == expected
    assert settings("nvidia-tensorflow", lines[1:]) == {**expected, "precision": "fp32"}
    assert settings("nvidia-tensorflow", lines[1:], "tf_amp_bs96.txt") == expected


def test_a_log_of_records_alone_knows_its_framework_and_its_name() -> None:
    assert settings("nvidia-tensorflow", []) == {"framework": "tensorflow"}
    named = settings("nvidia-tensorflow", [], "logs/tf_gpu32_amp_bs64.txt", ranks=[0])
    assert named == {"framework": "tensorflow", "precision": "amp", "batch_size_per_card": "64", "cards": "32"}


def test_pytorch() -> None:
    assert settings("nvidia-pytorch", [PYTORCH_PARAMETERS]) == {
        "framework": "pytorch",
        "model": "resnet50v1.5",
        "precision": "fp32",
        "batch_size_per_card": "96",
        "cards": "4",
        "data": "dali_cpu",
    }


@pytest.mark.parametrize(
    ("change", "setting", "value"),
    [
        (("amp : False", "amp : True"), "precision", "amp"),
        (("fp16 : False", "fp16 : True"), "precision", "amp"),
        (("dali-cpu", "dali-gpu"), "data", "dali"),
        (("dali-cpu", "pytorch"), "data", "native"),
        (("dali-cpu", "syntetic"), "data", "synthetic"),
        (("dali-cpu", "synthetic"), "data", "synthetic"),
        (("dali-cpu", "something"), "data", None),
        (("world_size : 4", "world_size : 0"), "cards", None),
    ],
)
def test_pytorch_parameters(change: tuple[str, str], setting: str, value: str | None) -> None:
    assert settings("nvidia-pytorch", [PYTORCH_PARAMETERS.replace(*change)]).get(setting) == value


def test_mxnet_divides_the_batch_of_all_cards() -> None:
    assert settings("nvidia-mxnet", [MXNET_PARAMETERS]) == {
        "framework": "mxnet",
        "model": "resnet50v1.5",
        "precision": "amp",
        "batch_size_per_card": "96",
        "cards": "4",
        "data": "dali",
    }


@pytest.mark.parametrize(
    ("change", "setting", "value"),
    [
        (("num_layers : 50", "num_layers : 101"), "model", "resnetv15-101"),
        (("resnetv15", "resnetv1"), "model", "resnetv1-50"),
        (("float16", "float64"), "precision", None),
        (("amp : False", "amp : True"), "precision", "amp"),
    ],
)
def test_mxnet_parameters(change: tuple[str, str], setting: str, value: str | None) -> None:
    assert settings("nvidia-mxnet", [MXNET_PARAMETERS.replace(*change)]).get(setting) == value


def test_mxnet_on_several_nodes() -> None:
    """``gpus`` are those of one node: ranks, or a name with nodes, tell the others."""
    by_ranks = settings("nvidia-mxnet", [MXNET_PARAMETERS], ranks=range(8))
    assert (by_ranks["cards"], by_ranks["batch_size_per_card"]) == ("8", "48")
    by_name = settings("nvidia-mxnet", [MXNET_PARAMETERS], "2n4g/r50_b48_fp16_1.log")
    assert (by_name["cards"], by_name["batch_size_per_card"]) == ("8", "48")
    fewer_ranks = settings("nvidia-mxnet", [MXNET_PARAMETERS], ranks=(0, 1))
    assert fewer_ranks["cards"] == "4"


@pytest.mark.parametrize(
    ("report", "cards", "batch"),
    [("report.json-2,192", "2", "192"), ("report.json-2,100", "4", "96"), ("report.json", "4", "96")],
)
def test_benchmarks_report_name_tells_cards_and_batch(report: str, cards: str, batch: str) -> None:
    """Its figures hold where they give the batch of all cards."""
    line = MXNET_PARAMETERS.replace("disp_batches : 20", f"dllogger_log : {report}")
    found = settings("nvidia-mxnet", [line], ranks=range(4), runs=2)
    assert (found["cards"], found["batch_size_per_card"]) == (cards, batch)


def test_ranks_of_a_log_with_several_runs_are_not_each_runs() -> None:
    found = settings("nvidia-mxnet", [MXNET_PARAMETERS], ranks=range(8), runs=2)
    assert "cards" not in found
    assert "batch_size_per_card" not in found
    assert "cards" not in settings("nvidia-tensorflow", [TENSORFLOW_PARAMETERS], ranks=range(8), runs=2)


@pytest.mark.parametrize(
    ("ranks", "cards"), [((), None), ((0,), None), ((0, 1, 2), "3"), ((0, 2), None), ((1, 2), None)]
)
def test_ranks_tell_the_cards_where_none_is_missing(ranks: tuple[int, ...], cards: str | None) -> None:
    assert settings("nvidia-tensorflow", [TENSORFLOW_PARAMETERS], ranks=ranks).get("cards") == cards


def test_the_contents_cards_stand_above_ranks_and_name() -> None:
    lines = [TENSORFLOW_PARAMETERS, "Num GPUs 4"]
    assert settings("nvidia-tensorflow", lines, "tf_gpu8_fp32_bs32.txt", ranks=range(8))["cards"] == "4"
    assert settings("nvidia-tensorflow", lines, "tf_gpu8_fp32_bs32.txt")["precision"] == "amp"


@pytest.mark.parametrize(
    ("name", "line", "precision", "gpu"),
    [
        ("A100_LOG/a.txt", "", "tf32", "A100"),
        ("V100_LOG/a.txt", "", "fp32", "V100"),
        ("a.txt", "pciBusID: 0 name: NVIDIA A100-SXM4-40GB computeCapability: 8.0", "tf32", "A100-SXM4-40GB"),
        ("a.txt", "pciBusID: 0 name: Tesla V100-SXM2-16GB computeCapability: 7.0", "fp32", "V100-SXM2-16GB"),
        ("a.txt", "| NVIDIA H100 80GB HBM3 |", "tf32", "H100"),
        ("a.txt", "", "fp32", None),
    ],
)  # fmt: skip
def test_fp32_is_tf32_on_a_card_that_has_it(name: str, line: str, precision: str, gpu: str | None) -> None:
    found = settings("nvidia-pytorch", [PYTORCH_PARAMETERS, line], name)
    assert (found["precision"], found.get("gpu")) == (precision, gpu)
    amp = settings("nvidia-pytorch", [PYTORCH_PARAMETERS.replace("amp : False", "amp : True"), line], name)
    assert amp["precision"] == "amp"


def test_a_name_that_says_fp32_is_tf32_too() -> None:
    assert settings("nvidia-tensorflow", [], "A100/tf_gpu8_fp32_bs64.txt")["precision"] == "tf32"


def test_mllog() -> None:
    lines = [
        MLLOG.format(key="submission_benchmark", value='"resnet"'),
        MLLOG.format(key="global_batch_size", value="3264"),
        MLLOG.format(key="tracked_stats", value='{"throughput": 1.5}'),
        ":::MLLOG not JSON",
        ":::MLLOG [1]",
    ]
    assert settings("nvidia-mllog", lines, "mxnet_8gpu.log") == {
        "framework": "mxnet",
        "model": "resnet50v1.5",
        "batch_size_per_card": "408",
        "cards": "8",
    }
    assert "batch_size_per_card" not in settings("nvidia-mllog", lines)
    other = settings("nvidia-mllog", [MLLOG.format(key="submission_benchmark", value='"bert"')])
    assert other == {"model": "bert"}


def test_a_hostile_parameter_line_is_quick_and_harmless() -> None:
    lines = [
        "DLL 2022-03-04 05:06:07.123456 - PARAMETER " + "a : " * 30_000,
        "DLL 2022-03-04 05:06:07.123456 - PARAMETER batch_size : " + "9" * 60_000,
    ]
    for format_name in ("nvidia-tensorflow", "nvidia-mxnet"):
        assert set(settings(format_name, lines)) == {"framework"}


def test_ranks_of_mpirun_are_nodes_of_pytorchs_script() -> None:
    """It starts a launcher a node, which starts a process a card."""
    assert "cards" not in settings("nvidia-pytorch", [], ranks=range(4))
    assert settings("nvidia-pytorch", [], "pytorch_gpu32_amp_bs64.txt", ranks=range(4))["cards"] == "32"


def test_a_name_with_more_cards_than_ranks_knows_of_lines_left_out() -> None:
    assert settings("nvidia-tensorflow", [], "tf_gpu32_amp_bs64.txt", ranks=range(4))["cards"] == "32"
    assert settings("nvidia-tensorflow", [], "tf_gpu2_amp_bs64.txt", ranks=range(4))["cards"] == "4"
