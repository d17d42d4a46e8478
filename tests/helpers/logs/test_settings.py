"""What the log says of its configuration and what was asked for: filled, sharpened, contradicted."""

from __future__ import annotations

import pytest

from helpers.logs.settings import (
    NEEDED,
    LogSetting,
    Stated,
    card_words,
    has_tf32,
    same_card,
    settle,
)
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
    ("name", "words"),
    [
        ("V100", {"model": "V100"}),
        ("Tesla V100-SXM2-32GB", {"model": "V100", "form": "SXM2", "memory": "32GB"}),
        ("NVIDIA A100 80GB PCIe", {"model": "A100", "form": "PCIE", "memory": "80GB"}),
        ("NVIDIA H100 80GB HBM3", {"model": "H100", "memory": "80GB"}),
        ("A100-SXM4-40GB MIG 1g.5gb", {"model": "A100 MIG 1G.5GB", "form": "SXM4", "memory": "40GB"}),
        ("SXM2", {"form": "SXM2"}),
        ("", {}),
    ],
)
def test_what_a_name_tells(name: str, words: dict[str, str]) -> None:
    assert card_words(name) == words


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("V100", "Tesla V100-SXM2-32GB", True),
        ("v100_sxm2", "V100-SXM2-32GB", True),
        ("V100-SXM2-16GB", "V100-SXM2-32GB", False),
        ("V100", "A100", False),
        ("A100", "A100 MIG 1g.5gb", False),
        ("32GB", "V100-32GB", False),
        ("", "", False),
    ],
)
def test_whether_two_names_may_mean_one_card(one: str, other: str, same: bool) -> None:
    assert same_card(one, other) is same_card(other, one) is same


@pytest.mark.parametrize("name", ["A100", "NVIDIA H200", "GB200", "GH200", "L40S", "RTX-A6000", "A100 MIG 1g.5gb"])
def test_cards_with_tf32(name: str) -> None:
    assert has_tf32(name)


@pytest.mark.parametrize("name", ["V100", "Tesla P100", "T4", ""])
def test_cards_without(name: str) -> None:
    assert not has_tf32(name)
