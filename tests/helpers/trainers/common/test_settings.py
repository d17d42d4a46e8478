"""Settings are read strictly, and no override can turn a case into another one."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from helpers.trainers.common.settings import Settings, main
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.settings import PaddleSettings
from helpers.trainers.pytorch.settings import PytorchSettings
from tests.helpers.trainers.specs import spec_of

PADDLE = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"
STATIC = "paddle-resnet50v1.5-amp_o1-bs4-1x1-dali-static"
PYTORCH = "pytorch-resnet50v1.5-fp32-bs4-1x1-dali"
TENSORFLOW = "tensorflow-resnet50v1.5-fp32-bs4-1x1-native"
COSINE = "tensorflow-resnet50v1.5-fp32-bs128-1x1-dali"
MXNET = "mxnet-resnet50v1.5-fp32-bs4-1x1-native"
DDP = {"gradient_as_bucket_view": True, "bucket_cap_mb": 0, "static_graph": False}


def test_an_override_replaces_the_recipe_s_value_and_rates_fall_at_each_boundary() -> None:
    settings = Settings.of(spec_of(PADDLE, learning_rate=1.0))
    assert settings.learning_rates == pytest.approx((1.0, 0.1, 0.01, 0.001))


def test_a_job_is_read_with_its_framework_s_settings() -> None:
    assert isinstance(Settings.of(spec_of(PADDLE)), PaddleSettings)
    assert isinstance(Settings.of(spec_of(PYTORCH)), PytorchSettings)


@pytest.mark.parametrize(
    ("case_id", "overrides", "field"),
    [
        (PADDLE, {"learning_rat": 1}, "learning_rat"),
        (PADDLE, {"native": {"workers": 1}}, "native.prefetch_factor"),
        (PADDLE, {"dali": {"thread": 1}}, "dali.thread"),
        (PADDLE, {"dali": 3}, "dali"),
        (PADDLE, {"optimizer": "adam"}, "optimizer"),
        (PADDLE, {"layout": "NCWH"}, "layout"),
        (PADDLE, {"input_channels": 5}, "input_channels"),
        (PADDLE, {"input_dtype": "int8"}, "input_dtype"),
        (PADDLE, {"accuracy_top_k": [0]}, "accuracy_top_k"),
        (PADDLE, {"amp_through": "auto_cast"}, "amp_through"),
        (PADDLE, {"loss_scaling": 2.0}, "loss_scaling_rule"),
        (PADDLE, {"learning_rate": "0.1"}, "learning_rate"),
        (PADDLE, {"learning_rate": float("nan")}, "learning_rate"),
        (PADDLE, {"momentum": -1}, "momentum"),
        (PADDLE, {"loss_scaling": 0}, "loss_scaling"),
        (PADDLE, {"amp_level": "O2", "amp_dtype": "bfloat16"}, "amp_level"),
        (PADDLE, {"decay_norms": True}, "decay_norms"),
        (STATIC, {"amp_level": None, "amp_dtype": None}, "amp_level"),
        (STATIC, {"amp_through": "fleet"}, "amp_through"),
        (PYTORCH, {"build_strategy": {}}, "build_strategy"),
        (PYTORCH, {"decay_norms": 1}, "decay_norms"),
        (PYTORCH, {"compile_mode": "default"}, "compile_mode"),
        (PYTORCH.replace("1x1", "1x2"), {"ddp": {}}, "ddp"),
        (PYTORCH.replace("1x1", "1x2"), {"ddp": DDP}, "ddp.bucket_cap_mb"),
        (PYTORCH.replace("fp32", "bf16"), {"amp_dtype": "float16"}, "amp_dtype"),
        (TENSORFLOW, {"xla_mode": "autoclustering"}, "xla_mode"),
        (TENSORFLOW, {"communication": "NCCL"}, "communication"),
        (TENSORFLOW, {"intra_op_threads": 0}, "intra_op_threads"),
        (TENSORFLOW, {"memory_fraction": 1.5}, "memory_fraction"),
        (TENSORFLOW, {"learning_rate_schedule": "linear"}, "learning_rate_schedule"),
        (TENSORFLOW, {"learning_rate_decay_steps": 100}, "learning_rate_decay_steps"),
        (COSINE, {"label_smoothing": 1.0}, "label_smoothing"),
        (COSINE, {"batch_norm_epsilon": 0}, "batch_norm_epsilon"),
        (MXNET, {"kvstore": "device"}, "kvstore"),
        (MXNET.replace("fp32", "amp"), {"amp_level": "O1", "amp_through": "cast"}, "amp_through"),
        (MXNET.replace("fp32", "amp"), {"amp_dtype": None}, "amp_dtype"),
    ],
)
def test_a_setting_that_is_unknown_wrong_or_contradicts_the_case_is_refused_by_name(
    case_id: str, overrides: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.of(spec_of(case_id, **overrides))
    assert caught.value.field == field


def test_a_missing_setting_is_refused_by_name() -> None:
    spec = spec_of(PADDLE)
    settings = {key: value for key, value in spec.settings.items() if key != "momentum"}
    with pytest.raises(ConfigError, match="momentum"):
        Settings.of(JobSpec("j", spec.case, 0, "r", "cpu", 0, 1, settings=settings))


@pytest.mark.parametrize(
    ("case_id", "overrides", "field"),
    [
        (STATIC, {"amp_through": "auto_cast"}, "amp_through"),
        (STATIC, {"loss_scaling_rule": {"incr_ratio": 2.0}}, "loss_scaling_rule"),
        (COSINE, {"learning_rate_decay_steps": None}, "learning_rate_decay_steps"),
    ],
)
def test_what_must_fit_the_device_is_refused_on_a_gpu(case_id: str, overrides: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.of(spec_of(case_id, "gpu", **overrides))
    assert caught.value.field == field


# ---- the check of several jobs, which the suite starts


def test_each_job_is_answered_in_order() -> None:
    right, wrong = spec_of(PADDLE).to_json(), spec_of(PADDLE, momentum=-1).to_json()
    out, errors = io.StringIO(), io.StringIO()
    assert main(io.StringIO(json.dumps([wrong, right, "{}"])), out, errors) == 0
    answers = json.loads(out.getvalue())
    assert "momentum" in answers[0]
    assert answers[1] is None
    assert "schema" in answers[2]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[null"])
def test_what_is_no_list_of_texts_is_refused(text: str) -> None:
    out, errors = io.StringIO(), io.StringIO()
    assert main(io.StringIO(text), out, errors) == 1
    assert (out.getvalue(), bool(errors.getvalue())) == ("", True)
