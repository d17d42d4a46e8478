"""``--set``: what it changes, what it refuses, and which changes a throughput does not depend on."""

from __future__ import annotations

import datetime

import pytest

from helpers.plan.overrides import (
    NEUTRAL,
    effective,
    leaves,
    neutral_reason,
    parse_overrides,
    settings_segment,
    with_overrides,
)
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError

SETTINGS = {"learning_rate": 0.1, "dali": {"threads": 1, "seed": 42}, "amp_level": None, "environment": {"A": "0.80"}}


# --- the command line's words


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("learning_rate=0.2", 0.2),
        ("weight_decay=1e-5", 1e-5),
        ("amp_level=null", None),
        ("augmentation.crop_area=[0.08, 1]", [0.08, 1]),
        ("layout=NHWC", "NHWC"),
        ("environment.FLAGS_conv_workspace_size_limit=4000", "4000"),
        ("environment.A='4000'", "4000"),
    ],
)
def test_a_value_is_yaml_and_a_variable_s_is_text(word: str, value: object) -> None:
    assert list(parse_overrides([word]).values()) == [value]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["batch"], "'batch', expected KEY=VALUE"),
        (["=1"], "KEY=VALUE"),
        (["seed=1", "seed=2"], "'seed'.*given twice"),
        (["layout=[1"], "'layout'.*YAML"),
        (["layout=2024-13-45"], "'layout'.*YAML"),
    ],
)
def test_a_word_that_is_no_key_and_value_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_overrides(words)


# --- what an override changes


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    changed = with_overrides(SETTINGS, {"learning_rate": 1, "dali.threads": 2, "amp_level": "O1"}, "a case")
    assert changed == {**SETTINGS, "learning_rate": 1, "dali": {"threads": 2, "seed": 42}, "amp_level": "O1"}
    assert SETTINGS["dali"] == {"threads": 1, "seed": 42}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("learning_rat", 1, "one of amp_level, dali, environment, learning_rate"),
        ("dali.thread", 1, "one of seed, threads"),
        ("learning_rate", "fast", "a value like 0.1"),
        ("learning_rate", True, "a value like 0.1"),
        ("learning_rate", float("nan"), "finite numbers"),
        ("amp_level", datetime.date(2024, 1, 2), "finite numbers, texts, lists"),
    ],
)
def test_an_override_of_nothing_or_of_another_kind_is_refused(key: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        with_overrides(SETTINGS, {key: value}, "a case")


def test_an_override_equal_to_the_value_is_none() -> None:
    overrides = {"learning_rate": 0.1, "dali.seed": 42.0, "dali.threads": 2}
    assert effective(SETTINGS, overrides, "a case") == {"dali.threads": 2}
    assert type(with_overrides(SETTINGS, {"dali.seed": 42.0}, "a case")["dali"]["seed"]) is int


# --- what does not matter


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learning_rate", 0.2), ("learning_rate", 1e-9), ("learning_rate_decay", 0.5), ("momentum", 0.875),
        ("weight_decay", 3.05e-5), ("learning_rate_boundaries", [1, 2]), ("learning_rate_boundaries", []),
        ("dali.seed", 0), ("learning_rate_warmup_steps", 0), ("learning_rate_warmup_steps", 100),
    ],
)  # fmt: skip
def test_numbers_that_no_step_s_work_depends_on_are_neutral_with_a_reason(key: str, value: object) -> None:
    reason = neutral_reason(key, value)
    assert reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learning_rate", 0), ("learning_rate", 0.0), ("learning_rate", float("nan")), ("learning_rate", None),
        ("learning_rate", True), ("learning_rate", 1e-300),
        ("learning_rate_decay", 0), ("momentum", 0), ("momentum", -0.9), ("weight_decay", 0.0),
        ("learning_rate_boundaries", [60, 30]), ("learning_rate_boundaries", [0]), ("learning_rate_boundaries", [1.5]),
        ("learning_rate_boundaries", 3), ("dali.seed", -1), ("dali.seed", 1.5), ("dali.seed", False),
        ("learning_rate_warmup_steps", -1), ("label_smoothing", 0.1), ("batch_norm_epsilon", 1e-5),
    ],
)  # fmt: skip
def test_a_value_that_may_switch_work_off_is_not_neutral(key: str, value: object) -> None:
    assert neutral_reason(key, value) is None


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_neutral_key_is_a_setting_whose_usual_value_is_of_the_neutral_kind(device: str) -> None:
    cases = ("paddle-resnet50v1.5-fp32-bs256-1x1-dali-static", "tensorflow-resnet50v1.5-fp32-bs256-1x1-dali")
    known = [dict(leaves(settings_for(Case.parse(case_id), device))) for case_id in cases]
    assert NEUTRAL
    for key, neutral in NEUTRAL.items():
        assert [neutral.holds(each[key]) for each in known if key in each][-1:] == [True], key


# --- what has to be equal for two results to be compared


def test_the_settings_that_matter_are_facts_of_a_segment() -> None:
    assert settings_segment(SETTINGS) == {
        "setting dali.threads": "1",
        "setting amp_level": "null",
        "setting environment.A": '"0.80"',
    }
