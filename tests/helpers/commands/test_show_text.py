"""One case in words: settings under their sources, commands that can be pasted, lines that fit."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
import yaml

from helpers.commands.show import CaseSheet, FigureLine, FixedLine, RecordedLine, SettingLine, render, value_text

SHEET = CaseSheet(
    case_id="paddle-vgg16-fp32-bs32-1x8-native-static",
    target="v100",
    device="gpu",
    words={"framework": "Paddle", "cards": "8 cards"},
    figures=(FigureLine(1888.2, "gate", "V100-SXM2", "paddle x", "FP32", "fleetx-20-100-median7", "doc.txt", "T", ""),),
    protocol="fleetx",
    warmup_steps=60,
    most_warmup_steps=220,
    window_steps=100,
    runs=7,
    published_tolerance=0.05,
    recorded_tolerance=0.08,
    settings=(
        SettingLine("layout", "NCHW", "NCHW", "docs/measuring-rules.md, VGG16"),
        SettingLine("learning_rate", 0.01, 0.01, "suite's choice", "the published rate makes it NaN"),
        SettingLine("momentum", 0.9, 0.9, "docs/measuring-rules.md, VGG16"),
        SettingLine("environment.FLAGS_a", "1", "1", "suite's choice", "because"),
    ),
    fixed=(FixedLine("loss", "mean cross-entropy", "docs/measuring-rules.md"),),
    environment={"FLAGS_a": "1", "CUDA_VISIBLE_DEVICES": "0,1"},
    commands=(("PYTHON", "-u", "-m", "paddle.distributed.launch", "--devices", "0,1", "-m", "trainer", "a b.json"),),
    here="needs 8 cards",
    machine="no GPU",
)

TEXT = """\
paddle-vgg16-fp32-bs32-1x8-native-static [v100]

case
  framework  Paddle
  cards      8 cards

published
  1888.2 images/s on V100-SXM2, paddle x; status gate; by fleetx-20-100-median7
    printed as FP32 in "T" of doc.txt

protocol
  fleetx: 60 to 220 (until steady) steps of warm-up, 100 measured, 7 runs in fresh processes
  tolerance: -5.0% against a published figure; ±8.0% is the smallest change that counts against the
    reference build

settings on a GPU, by source
  docs/measuring-rules.md, VGG16
    layout    NCHW
    momentum  0.9
  suite's choice
    learning_rate  0.01  the published rate makes it NaN

the same whatever the settings say
  loss: mean cross-entropy (docs/measuring-rules.md)

environment of every rank, by source
  suite's choice
    FLAGS_a  1  because
  the launcher
    CUDA_VISIBLE_DEVICES  0,1

command of one run (RUN: its folder, PYTHON: the framework's interpreter)
  PYTHON -u -m paddle.distributed.launch --devices 0,1 -m trainer 'a b.json'

on this machine
  no GPU
  not run: needs 8 cards
  recorded: nothing"""


def test_the_sheet_is_told_section_by_section() -> None:
    assert render(SHEET) == TEXT


def test_what_was_changed_is_told_old_and_new_with_what_it_means() -> None:
    changed = (
        SettingLine("learning_rate", 0.02, 0.01, "s", neutral="a factor of the update"),
        SettingLine("momentum", 0.9, 0.9, "s"),
    )
    sheet = replace(SHEET, settings=changed)
    assert sheet.comparable
    text = render(sheet)
    assert "changed with --set\n  learning_rate: 0.01 → 0.02\n    does not matter: a factor of the update\n" in text
    assert "learning_rate  0.02 (changed)" in text
    other = replace(sheet, settings=(*changed, SettingLine("layout", "NHWC", "NCHW", "s")))
    assert not other.comparable
    assert "  layout: NCHW → NHWC\n    may matter to the throughput\n" in render(other)


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_longer_than_asked_and_the_command_can_be_pasted(width: int) -> None:
    command = ("PYTHON", "-u", "-m", "launch", *(f"--option{n}" if n % 2 else f"value {n}" for n in range(1, 41)))
    lines = render(replace(SHEET, commands=(command,), here="x " * 200, problem="y " * 200), width).splitlines()
    assert [line for line in lines if len(line) > width] == []
    section = next(number for number, line in enumerate(lines) if line.startswith("command of one run"))
    pasted = "\n".join(lines[section + 1 : lines.index("", section)])
    assert tuple(shlex.split(pasted.replace("\\\n", " "))) == command


def test_a_value_too_long_for_its_column_stands_whole_with_the_remark_below() -> None:
    long = SettingLine("environment.TUNABLES", "a=1:" * 40, "a=1:" * 40, "s", "because it is fast")
    text = render(replace(SHEET, settings=(long, SettingLine("environment.A", "1", "1", "s", "short"))))
    assert f"    TUNABLES  {'a=1:' * 40}\n        because it is fast\n    A         1" in text


def test_no_text_of_a_file_can_forge_the_terminal() -> None:
    text = render(replace(SHEET, words={"a\x1b": "b\x1b[2J\nc"}, machine="\r", here="\x07"))
    assert not set(text) & {"\x1b", "\r", "\x07"}


def test_a_case_that_runs_and_is_recorded_says_so() -> None:
    recorded = RecordedLine(0.3039, "wall-clock", 2, "2026-11-21T10:00", "7688495538f4aaaa")
    text = render(replace(SHEET, here=None, recorded=recorded))
    assert "\n  runs\n" in text
    assert "recorded: 0.3039 images/s by wall-clock, 2 runs, 2026-11-21, 7688495538f4" in text


def test_what_is_missing_is_said_where_it_would_stand() -> None:
    text = render(
        replace(SHEET, figures=(), settings=(), problem="none: no recipe", commands=(), not_launched="no way")
    )
    assert "published\n  none\n" in text
    assert "by source\n  none: no recipe\n" in text
    assert "  none: no way\n" in text


@pytest.mark.parametrize("value", [None, True, 3, 0.1, 1.3333333333333333, "NHWC", [0.08, 1.0], [], {"a": [1, None]}])
def test_a_value_reads_as_set_takes_it(value: object) -> None:
    assert yaml.safe_load(value_text(value)) == value
