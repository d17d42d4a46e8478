"""Settings are read strictly, and no override can turn a case into another one."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.settings import Settings, main
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.settings import PaddleSettings
from helpers.trainers.pytorch.settings import PytorchSettings

_DDP = {"gradient_as_bucket_view": True, "bucket_cap_mb": 25, "static_graph": False}


def _spec(case_id: str = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic", **overrides: Any) -> JobSpec:
    case = Case.parse(case_id)
    settings = {**settings_for(case, "cpu"), **overrides}
    return JobSpec("j", case, 0, "r", "cpu", 0, 1, settings=settings, overrides=overrides)


def test_an_override_replaces_the_recipe_s_value() -> None:
    assert Settings.of(_spec(learning_rate=0.5)).learning_rate == 0.5


def test_learning_rates_fall_at_each_boundary() -> None:
    settings = Settings.of(_spec(learning_rate=1.0))
    assert settings.learning_rates == pytest.approx((1.0, 0.1, 0.01, 0.001))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"learning_rat": 1}, "settings.learning_rat"),
        ({"native": {"workers": 1}}, "native.prefetch_factor"),
        ({"dali": {"thread": 1}}, "dali.thread"),
        ({"dali": 3}, "dali"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"layout": "NCWH"}, "layout"),
        ({"input_channels": 5}, "input_channels"),
        ({"input_dtype": "int8"}, "input_dtype"),
        ({"feed_layout": "CHW"}, "feed_layout"),
        ({"accuracy_top_k": [0]}, "accuracy_top_k"),
        ({"accuracy_top_k": 5}, "accuracy_top_k"),
        ({"amp_through": "auto_cast"}, "amp_through"),
        ({"loss_scaling": 2.0}, "loss_scaling_rule"),
        ({"loss_scaling_rule": {"incr_ratio": 2.0}}, "loss_scaling_rule"),
        ({"learning_rate": "0.1"}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"momentum": -1}, "momentum"),
        ({"loss_scaling": 0}, "loss_scaling"),
        ({"amp_level": "O2", "amp_dtype": "bfloat16"}, "amp_level"),
        ({"amp_dtype": "bfloat16"}, "amp_dtype"),
    ],
)
def test_a_setting_that_is_unknown_or_wrong_is_refused_by_name(overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=rf"training settings: field '{words}'"):
        Settings.of(_spec(**overrides))


def test_a_missing_setting_is_refused_by_name() -> None:
    spec = _spec()
    settings = {key: value for key, value in spec.settings.items() if key != "momentum"}
    with pytest.raises(ConfigError, match="momentum"):
        Settings.of(JobSpec("j", spec.case, 0, "r", "cpu", 0, 1, settings=settings))


def test_an_override_cannot_change_the_precision_of_the_case() -> None:
    with pytest.raises(ConfigError, match="amp_o1 of the case"):
        Settings.of(_spec("paddle-vgg16-amp_o1-bs4-1x1-dali-to_static", amp_level=None, amp_dtype=None))


@pytest.mark.parametrize(
    ("device", "execution", "through", "expected"),
    [
        ("gpu", "static", "auto_cast", "decorate, fleet"),
        ("gpu", "dynamic", "decorate", "auto_cast"),
        ("cpu", "static", "fleet", "auto_cast"),
    ],
)
def test_what_casts_must_fit_device_and_execution(device: str, execution: str, through: str, expected: str) -> None:
    case = Case.parse(f"paddle-resnet50v1.5-amp_o1-bs4-1x1-dali-{execution}")
    settings = {**settings_for(case, device), "amp_through": through}
    with pytest.raises(ConfigError, match=f"amp_through.*{expected}"):
        Settings.of(JobSpec("j", case, 0, "r", device, 0, 1, settings=settings))


def test_a_step_of_the_loss_scale_must_be_a_positive_number() -> None:
    case = Case.parse("paddle-resnet50v1.5-amp_o2-bs4-1x1-dali-static")
    settings = settings_for(case, "gpu")
    settings["loss_scaling_rule"] = {**settings["loss_scaling_rule"], "decr_ratio": 0}
    with pytest.raises(ConfigError, match=r"loss_scaling_rule\.decr_ratio"):
        Settings.of(JobSpec("j", case, 0, "r", "gpu", 0, 1, settings=settings))


# ---- each framework has its own keys


PYTORCH = "pytorch-resnet50v1.5-fp32-bs4-1x1-dali"


def test_a_job_is_read_with_its_framework_s_settings() -> None:
    assert isinstance(Settings.of(_spec()), PaddleSettings)
    assert isinstance(Settings.of(_spec(PYTORCH)), PytorchSettings)
    with pytest.raises(ConfigError, match=r"framework.*'pytorch', expected paddle"):
        PaddleSettings.of(_spec(PYTORCH))


@pytest.mark.parametrize(
    ("case_id", "foreign"),
    [
        (PYTORCH, {"build_strategy": {}}),
        (PYTORCH, {"amp_through": None}),
        ("paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic", {"decay_norms": True}),
        ("paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic", {"ddp": {}}),
    ],
)
def test_another_framework_s_key_is_unknown(case_id: str, foreign: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"settings.{next(iter(foreign))}"):
        Settings.of(_spec(case_id, **foreign))


@pytest.mark.parametrize(
    ("case_id", "overrides", "words"),
    [
        (PYTORCH, {"decay_norms": 1}, "decay_norms"),
        (PYTORCH, {"cudnn_benchmark": None}, "cudnn_benchmark"),
        (PYTORCH, {"compile_mode": "default"}, "compile_mode"),
        (f"{PYTORCH}-compile", {"compile_mode": None}, "compile_mode"),
        (PYTORCH, {"ddp": {"static_graph": True}}, "ddp"),
        (PYTORCH.replace("1x1", "1x2"), {"ddp": {}}, "ddp"),
        (PYTORCH.replace("1x1", "1x2"), {"ddp": _DDP | {"bucket_cap_mb": 0}}, "ddp.bucket_cap_mb"),
        (PYTORCH.replace("1x1", "1x2"), {"ddp": _DDP | {"static_graph": 1}}, "ddp.static_graph"),
        (PYTORCH.replace("fp32", "bf16"), {"amp_level": "O2"}, "amp_level"),
        (PYTORCH.replace("fp32", "bf16"), {"amp_dtype": "float16"}, "amp_dtype"),
        (PYTORCH.replace("fp32", "amp"), {"amp_level": None, "amp_dtype": None}, "amp_level"),
    ],
)
def test_a_setting_of_pytorch_s_own_is_checked_too(case_id: str, overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"field '{words}'"):
        Settings.of(_spec(case_id, **overrides))


CASE = Case.parse("paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic")


def test_each_job_is_answered_in_order() -> None:
    settings = settings_for(CASE, "cpu")
    right = JobSpec("j", CASE, 0, "r", "cpu", 0, 1, settings=settings).to_json()
    wrong = JobSpec("j", CASE, 0, "r", "cpu", 0, 1, settings={**settings, "momentum": -1}).to_json()
    out, errors = io.StringIO(), io.StringIO()
    assert main(io.StringIO(json.dumps([wrong, right, "{}"])), out, errors) == 0
    answers = json.loads(out.getvalue())
    assert "momentum" in answers[0]
    assert answers[1] is None
    assert "schema" in answers[2]
    assert errors.getvalue() == ""


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[null", "3"])
def test_what_is_no_list_of_texts_is_refused(text: str) -> None:
    out, errors = io.StringIO(), io.StringIO()
    assert main(io.StringIO(text), out, errors) == 1
    assert out.getvalue() == ""
    assert errors.getvalue()
