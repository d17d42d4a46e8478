"""One case in words: settings under their sources, commands that can be pasted, lines that fit."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
import yaml

from helpers.commands.case_sheet import CaseSheet, SettingLine, render, value_text
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.recipes import Fixed, Source

SHEET = CaseSheet(
    case_id="paddle-vgg16-fp32-bs32-1x8-native-static",
    target="v100",
    device="gpu",
    words={"framework": "Paddle", "cards": "8 cards"},
    figures=(
        {
            "samples_per_s": 1888.2, "status": "gate", "gpu": "V100-SXM2", "framework_version": "paddle x",
            "precision_printed": "FP32", "rule": "fleetx-20-100-median7", "source": "doc.txt", "table": "T", "note": "",
        },
    ),
    protocol=MeasuringProtocol("fleetx", 60, 100, 7, most_warmup_steps=220),
    published_tolerance=0.05,
    recorded_tolerance=0.08,
    settings=(
        SettingLine("layout", "NCHW", "NCHW", "docs/published.md, VGG16"),
        SettingLine("learning_rate", 0.01, 0.01, "suite's choice", "the published rate makes it NaN"),
        SettingLine("momentum", 0.9, 0.9, "docs/published.md, VGG16"),
        SettingLine("environment.FLAGS_a", "1", "1", "suite's choice", "because"),
    ),
    fixed=(Fixed("loss", "mean cross-entropy", Source("docs/published.md")),),
    environment={"FLAGS_a": "1", "CUDA_VISIBLE_DEVICES": "0,1"},
    commands=(("PYTHON", "-u", "-m", "paddle.distributed.launch", "--devices", "0,1", "-m", "trainer", "a b.json"),),
    here="needs 8 cards",
    machine="no GPU",
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_longer_than_asked_but_a_command_which_can_be_pasted(width: int) -> None:
    command = ("PYTHON", "-u", "-m", "launch", *(f"--option{n}" if n % 2 else f"value {n}" for n in range(1, 41)))
    text = render(replace(SHEET, commands=(command,), here="x " * 200, problem="y " * 200), width)
    above, pasted = text.split("\n\ncommand of one run")
    assert [line for line in above.splitlines() if len(line) > width] == []
    variables = [f"{name}={value}" for name, value in SHEET.environment.items()]
    assert shlex.split(pasted.splitlines()[1]) == ["env", *variables, *command]


def test_no_text_of_a_file_can_forge_the_terminal() -> None:
    text = render(replace(SHEET, words={"a\x1b": "b\x1b[2J\nc"}, machine="\r", here="\x07"))
    assert not set(text) & {"\x1b", "\r", "\x07"}


@pytest.mark.parametrize("value", [None, True, 3, 0.1, 1.3333333333333333, "NHWC", [0.08, 1.0], [], {"a": [1, None]}])
def test_a_value_reads_as_set_takes_it(value: object) -> None:
    assert yaml.safe_load(value_text(value)) == value
