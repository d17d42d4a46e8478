"""The configuration of a TensorFlow job: what is refused of it, and how a header says it; no framework needed."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.tensorflow.settings import TensorflowSettings, setting_facts


def facts(case_id: str, device: str = "gpu", **changed: Any) -> dict[str, str]:
    case = Case.parse(f"tensorflow-resnet50v1.5-{case_id}")
    spec = JobSpec("j", case, 0, "r", device, 0, 1, settings={**settings_for(case, device), **changed})
    return setting_facts(spec, TensorflowSettings.of(spec))


def test_a_plain_case_switches_nothing_on() -> None:
    expected = {
        "precision": "float32", "weights": "float32", "xla": "off", "communication": "none", "loss_scaling": "none",
        "label_smoothing": "none", "decay_norms": "on", "layout": "NHWC", "memory_fraction": "grows as needed",
        "learning_rate": "0.0015625, times 0.1 at epochs 30, 60, 90",
    }  # fmt: skip
    assert expected.items() <= facts("fp32-bs4-1x1-native", "cpu").items()


def test_a_published_case_says_its_casts_its_scale_and_its_exchange() -> None:
    expected = {
        "precision": "AMP O1 in float16: casts in the graph", "weights": "float32, cast where they are used",
        "xla": "autoclustering", "communication": "NCCL", "label_smoothing": "0.1", "decay_norms": "off",
        "memory_fraction": "0.7", "learning_rate": "0.007, cosine over 64344 steps, warm-up of 960 steps",
    }  # fmt: skip
    said = facts("amp-bs224-1x8-dali-xla")
    assert expected.items() <= said.items()
    assert said["loss_scaling"].startswith("static 128.0, whatever overflows (decr_every_n_nan_or_inf 1000000000")


@pytest.mark.parametrize(
    ("case_id", "name", "value"),
    [
        ("fp32-bs4-1x1-native", "xla_mode", "autoclustering"),
        ("fp32-bs4-1x1-native-xla", "xla_mode", None),
        ("fp32-bs4-1x2-native", "communication", None),
        ("fp32-bs4-1x1-native", "communication", "NCCL"),
        ("fp32-bs4-1x1-native", "intra_op_threads", 0),
        ("fp32-bs4-1x1-native", "memory_fraction", 1.5),
        ("amp-bs4-1x1-native", "amp_level", "O2"),
        ("bf16-bs4-1x1-native", "amp_dtype", "float16"),
    ],
)
def test_a_setting_that_contradicts_the_case_is_refused_by_its_name(case_id: str, name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        facts(case_id, **{name: value})
    assert caught.value.field == name
