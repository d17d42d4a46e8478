"""What the log says of its configuration and what was asked for: filled, sharpened, contradicted."""

from __future__ import annotations

import pytest

from helpers.logs.settings import NEEDED, LogSetting, Stated, agrees, has_tf32, settle
from helpers.trainers.contract.errors import LogError

READ = {each: Stated(value, "line 3") for each, value in zip(
    NEEDED, ("paddle", "resnet50v1.5", "amp_o2", "256", "8"), strict=True
)}  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "read", "asked", "value", "where"),
    [
        (LogSetting.PRECISION, "amp_o2", "amp", "amp_o2", "line 3; --x says amp"),
        (LogSetting.PRECISION, "amp", "amp_o2", "amp_o2", "--x; the log says amp (line 3)"),
        (LogSetting.PRECISION, "tf32", "fp32", "tf32", "line 3; --x says fp32"),
        (LogSetting.GPU, "A100-SXM4-40GB", "A100", "A100-SXM4-40GB", "line 3; --x says A100"),
        (LogSetting.GPU, "A100", "A100-SXM4-40GB", "A100-SXM4-40GB", "--x; the log says A100 (line 3)"),
        (LogSetting.CARDS, "8", "8", "8", "line 3"),
    ],
)
def test_the_more_exact_saying_is_taken_and_both_are_told(
    setting: LogSetting, read: str, asked: str, value: str, where: str
) -> None:
    settled = settle("a.log", {**READ, setting: Stated(read, "line 3")}, {setting: Stated(asked, "--x")})
    assert settled[setting] == Stated(value, where)


@pytest.mark.parametrize(
    ("setting", "read", "asked"),
    [
        (LogSetting.PRECISION, "amp_o2", "amp_o1"),
        (LogSetting.PRECISION, "amp_o2", "fp32"),
        (LogSetting.GPU, "V100", "A100"),
        (LogSetting.CARDS, "8", "1"),
    ],
)
def test_what_contradicts_the_log_is_an_error(setting: LogSetting, read: str, asked: str) -> None:
    with pytest.raises(LogError) as error:
        settle("a.log", {**READ, setting: Stated(read, "line 3")}, {setting: Stated(asked, "--x")})
    assert f"got '{asked} (--x)', expected '{read}', which the log says (line 3)" in str(error.value)


def test_all_that_is_missing_is_named_with_its_options() -> None:
    with pytest.raises(LogError) as error:
        settle("a.log", {LogSetting.FRAMEWORK: READ[LogSetting.FRAMEWORK]}, {LogSetting.CARDS: Stated("8", "--cards")})
    assert str(error.value).endswith("Give --model, --precision, --batch-size")


@pytest.mark.parametrize(
    ("setting", "one", "other", "agreed"),
    [
        (LogSetting.PRECISION, "amp", "amp_o2", True), (LogSetting.PRECISION, "amp_o1", "amp_o2", False),
        (LogSetting.PRECISION, "amp", "fp32", False), (LogSetting.PRECISION, "tf32", "amp", False),
        (LogSetting.GPU, "V100", "Tesla V100-SXM2-32GB", True), (LogSetting.GPU, "A10", "A100", False),
        (LogSetting.GPU, "A100-SXM4-40GB", "A100-SXM4-80GB", False), (LogSetting.GPU, "", "V100", False),
        (LogSetting.CARDS, "8", "08", True), (LogSetting.CARDS, "8", "1", False),
        (LogSetting.MODEL, "VGG16", "vgg16", True), (LogSetting.MODEL, "vgg16", "resnet50v1.5", False),
    ],
)  # fmt: skip
def test_what_agrees_is_what_can_be_true_at_once(setting: LogSetting, one: str, other: str, agreed: bool) -> None:
    assert agrees(setting, one, other) is agrees(setting, other, one) is agreed


@pytest.mark.parametrize(
    ("name", "known"),
    [("A100", True), ("NVIDIA H200", True), ("GB200", True), ("L40S", True), ("RTX-A6000", True), ("V100", False),
     ("Tesla P100-16GB", False), ("T4", False), ("", False)],
)  # fmt: skip
def test_cards_with_tf32(name: str, known: bool) -> None:
    assert has_tf32(name) is known
