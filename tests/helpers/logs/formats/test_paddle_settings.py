"""The configuration of Paddle's runs from made-up lines: launcher, command line, printed configuration, name."""

from __future__ import annotations

import pytest

from helpers.logs.formats import FORMATS
from helpers.logs.formats.common import Facts
from helpers.logs.record import Line
from helpers.logs.settings import LogSetting, Stated
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.made_runs import configured

_SUMMARY = (
    '{"model_branch": "main", "model_name": "ResNet50_bs64_fp32_DP", "batch_size": 64, "fp_item": "fp16", '
    '"run_mode": "DP", "ips": 2048.5, "speed_unit": "samples/s", "device_num": "N2C16", "frame_version": "2.5.1"}'
)


def _said(name: str, lines: tuple[str, ...], log: str = "some.log", first: str = "") -> dict[LogSetting, Stated]:
    """What a format says of a run of ``lines``; ``first`` is its first record."""
    numbered = [Line(number, text) for number, text in enumerate(lines, 1)]
    facts = Facts(log, numbered, first_record=Line(len(lines) + 1, first) if first else None)
    return configured(FORMATS[name], facts)


def _settings(name: str, *lines: str, log: str = "some.log", first: str = "") -> dict[str, str]:
    return {setting.value: said.value for setting, said in _said(name, lines, log, first).items()}


_STAMP = "[2031/02/03 04:05:06] ppcls INFO: "


def _tree(*lines: str) -> tuple[str, ...]:
    return tuple(_STAMP + line for line in lines)


_NEW = _tree(
    "Arch : ",
    "    name : ResNet50",
    "DataLoader : ",
    "    Eval : ",
    "        sampler : ",
    "            batch_size : 64",
    "    Train : ",
    "        sampler : ",
    "            batch_size : 48",
    "Global : ",
    "    use_dali : True",
    "    to_static : False",
)


def test_a_new_configuration() -> None:
    launched = ("LAUNCH INFO devices: 0,1,2,3", "LAUNCH INFO ips: None", "LAUNCH INFO nnodes: 2")
    assert _settings("paddleclas", *launched, *_NEW) == {
        "framework": "paddle",
        "model": "resnet50v1.5",
        "precision": "fp32",
        "batch_size_per_card": "48",
        "cards": "8",
        "nodes": "2",
        "data": "dali",
        "execution": "static",
    }


def test_a_command_lines_override_goes_before_the_printed_configuration() -> None:
    command = (
        "training_script_args: ['-c', 'ResNet50.yaml', '-o', 'DataLoader.Train.sampler.batch_size=96', '-o', "
        "'AMP.level=O1', '-o', 'Global.to_static=True']"
    )
    settings = _settings("paddleclas-dynamic", command, *_NEW)
    assert settings["batch_size_per_card"] == "96"
    assert settings["precision"] == "amp_o1"
    assert settings["execution"] == "to_static"


@pytest.mark.parametrize(
    ("lines", "precision"),
    [
        (("AMP : ", "    level : O2"), "amp_o2"),
        (("AMP : ", "    level : O1"), "amp_o1"),
        (("AMP : ", "    use_amp : False", "    level : O1"), "fp32"),
        (("AMP : ", "    use_pure_fp16 : False"), "amp"),
        (("AMP : ", "    use_pure_fp16 : True"), "amp_o2"),
        (("use_pure_fp16 : True", "use_amp : False"), "amp_o2"),
        (("use_pure_fp16 : False", "use_amp : True"), "amp"),
        ((), "fp32"),
    ],
)
def test_precisions(lines: tuple[str, ...], precision: str) -> None:
    assert _settings("paddleclas", *_NEW, *_tree(*lines), log="bf16.log")["precision"] == precision


def test_fp32_on_a_card_with_tf32_is_tf32() -> None:
    seen = "W0102 gpu_resources.cc:61] Please NOTE: device: 0, GPU Compute Capability: 8.0, Driver API Version: 11.7"
    assert _settings("paddleclas", *_NEW, seen)["precision"] == "tf32"
    assert _settings("paddleclas", *_NEW, seen.replace("8.0", "7.0"))["precision"] == "fp32"


_OLD = _tree(
    "ARCHITECTURE : ", "    name : VGG16", "TRAIN : ", "    batch_size : 256", "VALID : ", "    batch_size : 64"
)


def test_the_old_batch_size_is_of_all_cards() -> None:
    trainers = "    |                     PADDLE_TRAINERS_NUM                        8                      |"
    said = _said("paddleclas-dynamic-2021", (trainers, *_OLD))
    assert said[LogSetting.BATCH_SIZE_PER_CARD].value == "32"
    assert said[LogSetting.CARDS] == Stated("8", "line 1: PADDLE_TRAINERS_NUM                        8")
    assert _settings("paddleclas-dynamic-2021", *_OLD, log="gpu4.log")["batch_size_per_card"] == "64"
    assert not {"batch_size_per_card", "cards"} & _settings("paddleclas-dynamic-2021", *_OLD).keys()
    with pytest.raises(LogError, match=r"got '3 cards \(file name\)', expected a share of 256 images of all cards"):
        _settings("paddleclas-dynamic-2021", *_OLD, log="gpu3.log")


@pytest.mark.parametrize(
    ("lines", "cards", "nodes"),
    [
        (("ips: 127.0.0.1", "gpus: 0,1,2,3"), "4", "1"),
        (("ips: 10.0.0.1,10.0.0.2", "gpus: 0,1,2,3"), "8", "2"),
        (("python -m paddle.distributed.launch --ips=10.0.0.1,10.0.0.2 --gpus 0,1 x.py",), "4", "2"),
        (("Run Pod: abc, replicas 8, status ready", "Job: a, mode collective, replicas 2[2:2]"), "16", "2"),
        (("PADDLE_TRAINERS_NUM: 32", "gpus: 0,1,2,3,4,5,6,7"), "32", "4"),
        (("Change selected_gpus into reletive values. --ips:0,1,2,3 will change",), None, None),
    ],
)
def test_cards_and_nodes(lines: tuple[str, ...], cards: str | None, nodes: str | None) -> None:
    settings = _settings("paddleclas", *lines)
    assert (settings.get("cards"), settings.get("nodes")) == (cards, nodes)


def test_what_the_content_leaves_open_is_read_from_the_name() -> None:
    settings = _settings("paddleclas", log="paddle_gpu8_amp_bs64_vgg16.txt")
    assert settings == {
        "framework": "paddle",
        "model": "vgg16",
        "precision": "amp",
        "batch_size_per_card": "64",
        "cards": "8",
        "execution": "static",
    }


def test_the_frameworks_version() -> None:
    line = _STAMP + "train with paddle 2.4.1 and device Place(gpu:0)"
    assert _settings("paddleclas-dynamic", line)["framework_version"] == "2.4.1"


def test_a_network_that_the_suite_does_not_know_keeps_its_name() -> None:
    lines = tuple(line.replace("ResNet50", "ResNet101") for line in _NEW)
    assert _settings("paddleclas", *lines, log="resnet50.log")["model"] == "resnet101"


def test_fleetx() -> None:
    command = "python -m paddle.distributed.launch --gpus 0,1,2,3 train.py --model=VGG16 --batch_size 32"
    assert _settings("fleetx-trainer", command, "|  amp = True <-> amp_configs  |") == {
        "framework": "paddle",
        "model": "vgg16",
        "precision": "amp",
        "batch_size_per_card": "32",
        "cards": "4",
        "nodes": "1",
        "execution": "static",
    }


def test_tipc() -> None:
    line = _SUMMARY
    assert _settings("tipc", first=line) == {
        "framework": "paddle",
        "model": "resnet50v1.5",
        "precision": "amp_o2",
        "batch_size_per_card": "64",
        "cards": "16",
        "nodes": "2",
        "framework_version": "2.5.1",
    }
