"""The configuration of a run of NVIDIA's scripts: from its parameters, its lines, its ranks and its name."""

from __future__ import annotations

import pytest

from tests.helpers.hostile_files import in_time
from tests.helpers.logs.nvidia_lines import (
    MLLOG,
    MXNET_PARAMETERS,
    PYTORCH_PARAMETERS,
    TENSORFLOW_PARAMETERS,
    context,
    settings,
)

PARAMETERS = {
    "nvidia-tensorflow": TENSORFLOW_PARAMETERS,
    "nvidia-pytorch": PYTORCH_PARAMETERS,
    "nvidia-mxnet": MXNET_PARAMETERS,
}


def nvlog(*texts: str) -> list[str]:
    return [f":::NVLOGv0.2.3 None 1600000000.5 (runner.py:{line}) {text}" for line, text in enumerate(texts, 100)]


def test_parameters_hold_spaces_commas_lists_and_nothing() -> None:
    found = {key: said.value for key, said in context([TENSORFLOW_PARAMETERS]).parameters.items()}
    assert found["data_dir"] == "./my data/tf, records"
    assert found["lr_steps"] == "[30, 60]"
    assert found["use_static_loss_scaling"] == "True"
    assert not {"export_dir", "pretrained"} & found.keys()


@pytest.mark.parametrize(
    ("name", "lines", "found"),
    [
        ("nvidia-tensorflow", ["Num GPUs 4"], "tensorflow resnet50v1.5 amp 96 4 native true"),
        ("nvidia-pytorch", [], "pytorch resnet50v1.5 fp32 96 4 dali_cpu"),
        ("nvidia-mxnet", [], "mxnet resnet50v1.5 amp 4 dali 96"),
    ],
)
def test_the_parameters_are_the_configuration(name: str, lines: list[str], found: str) -> None:
    assert list(settings(name, [PARAMETERS[name], *lines]).values()) == found.split()


@pytest.mark.parametrize(
    ("name", "old", "new", "setting", "value"),
    [
        ("nvidia-tensorflow", "amp : True", "amp : False", "precision", "fp32"),
        ("nvidia-tensorflow", "amp : True", "precision : fp32  use_tf_amp : True", "precision", "amp"),
        ("nvidia-tensorflow", "amp : True", "precision : fp16  use_tf_amp : False", "precision", "amp"),
        ("nvidia-tensorflow", "amp : True", "precision : fp32  use_tf_amp : False", "precision", "fp32"),
        ("nvidia-tensorflow", "dali : False", "use_dali : True", "data", "dali"),
        ("nvidia-tensorflow", "data_dir : ./my data/tf, records", "data_dir : None", "data", "synthetic"),
        ("nvidia-tensorflow", "xla : True", "use_xla : False", "xla", "false"),
        ("nvidia-tensorflow", "arch : resnet50", "arch : se-resnext101-32x4d", "model", "se-resnext101-32x4d"),
        ("nvidia-pytorch", "amp : False", "amp : True", "precision", "amp"),
        ("nvidia-pytorch", "fp16 : False", "fp16 : True", "precision", "amp"),
        ("nvidia-pytorch", "dali-cpu", "pytorch", "data", "native"),
        ("nvidia-pytorch", "dali-cpu", "syntetic", "data", "synthetic"),
        ("nvidia-pytorch", "dali-cpu", "something", "data", None),
        ("nvidia-pytorch", "world_size : 4", "world_size : 0", "cards", None),
        ("nvidia-mxnet", "num_layers : 50", "num_layers : 101", "model", "resnetv15-101"),
        ("nvidia-mxnet", "resnetv15", "resnetv1", "model", "resnetv1-50"),
        ("nvidia-mxnet", "float16", "float64", "precision", None),
        ("nvidia-mxnet", "amp : False", "amp : True", "precision", "amp"),
    ],
)
def test_single_parameters(name: str, old: str, new: str, setting: str, value: str | None) -> None:
    assert old in PARAMETERS[name]
    assert settings(name, [PARAMETERS[name].replace(old, new)]).get(setting) == value


def test_tensorflow_of_2019() -> None:
    lines = nvlog(
        "TF AMP is activated - Experimental Feature",
        'Name: "resnet50_v1.5"',
        "Starting Model Training...",
        "Num GPUs: 8",
        "Per-GPU Batch Size: 96",
        "XLA is activated - Experimental Feature",
    )
    assert list(settings("nvidia-tensorflow", lines).values()) == [
        "tensorflow",
        "resnet50v1.5",
        "amp",
        "96",
        "8",
        "true",
    ]
    assert settings("nvidia-tensorflow", lines[1:])["precision"] == "fp32"
    assert settings("nvidia-tensorflow", lines[1:], "tf_amp_bs96.txt")["precision"] == "amp"


def test_a_log_of_records_alone_knows_its_framework_and_its_name() -> None:
    for name in PARAMETERS:
        assert settings(name, []) == {"framework": name.removeprefix("nvidia-")}
    named = settings("nvidia-tensorflow", [], "logs/tf_gpu32_amp_bs64.txt", ranks=[0])
    assert named == {"framework": "tensorflow", "precision": "amp", "batch_size_per_card": "64", "cards": "32"}


# ---- cards


@pytest.mark.parametrize(
    ("ranks", "name", "cards"), [(range(8), "a.log", "8"), ((), "2n4g/a.log", "8"), ((0, 1), "a.log", "4")]
)
def test_mxnets_gpus_are_those_of_one_node(ranks: tuple[int, ...], name: str, cards: str) -> None:
    found = settings("nvidia-mxnet", [MXNET_PARAMETERS], name, ranks=ranks)
    assert (found["cards"], found["batch_size_per_card"]) == (cards, str(384 // int(cards)))


@pytest.mark.parametrize(
    ("report", "cards", "batch"),
    [("report.json-2,192", "2", "192"), ("report.json-2,100", "4", "96"), ("report.json", "4", "96")],
)
def test_benchmarks_report_name_tells_cards_and_batch(report: str, cards: str, batch: str) -> None:
    """Its figures hold where they give the batch of all cards."""
    line = MXNET_PARAMETERS.replace("disp_batches : 20", f"dllogger_log : {report}")
    found = settings("nvidia-mxnet", [line], ranks=range(4), runs=2)
    assert (found["cards"], found["batch_size_per_card"]) == (cards, batch)


@pytest.mark.parametrize(
    ("ranks", "runs", "name", "cards"),
    [
        ((), 1, "a.log", None),
        ((0,), 1, "a.log", None),
        ((0, 1, 2), 1, "a.log", "3"),
        ((0, 2), 1, "a.log", None),
        ((0, 1, 2, 3), 2, "a.log", None),
        ((0, 1, 2, 3), 1, "tf_gpu32.txt", "32"),
        ((0, 1, 2, 3), 1, "tf_gpu2.txt", "4"),
    ],
)
def test_ranks_tell_the_cards_of_one_run_where_none_is_missing(
    ranks: tuple[int, ...], runs: int, name: str, cards: str | None
) -> None:
    assert settings("nvidia-tensorflow", [TENSORFLOW_PARAMETERS], name, ranks, runs).get("cards") == cards


def test_ranks_of_a_log_with_several_runs_are_not_each_runs() -> None:
    assert "cards" not in settings("nvidia-mxnet", [MXNET_PARAMETERS], ranks=range(8), runs=2)


def test_the_contents_cards_stand_above_ranks_and_name() -> None:
    lines = [TENSORFLOW_PARAMETERS, "Num GPUs 4"]
    assert settings("nvidia-tensorflow", lines, "tf_gpu8_fp32_bs32.txt", ranks=range(8))["cards"] == "4"


def test_ranks_of_mpirun_are_nodes_of_pytorchs_script() -> None:
    """It starts a launcher a node, which starts a process a card."""
    assert "cards" not in settings("nvidia-pytorch", [], ranks=range(4))


# ---- the card


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


def test_mllog() -> None:
    lines = [
        MLLOG.format(key="submission_benchmark", value='"resnet"'),
        MLLOG.format(key="global_batch_size", value="3264"),
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


def test_a_hostile_parameter_line_is_quick_and_harmless() -> None:
    lines = [
        "DLL 2022-03-04 05:06:07.123456 - PARAMETER " + "a : " * 30_000,
        "DLL 2022-03-04 05:06:07.123456 - PARAMETER batch_size : " + "9" * 60_000,
    ]
    with in_time():
        for name in PARAMETERS:
            assert set(settings(name, lines)) == {"framework"}
