"""The configuration of an MXNet job: what is refused of it, and how a header says it; no framework needed."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.mxnet.settings import MxnetSettings, setting_facts


def facts(case_id: str, device: str = "gpu", **changed: Any) -> dict[str, str]:
    case = Case.parse(f"mxnet-resnet50v1.5-{case_id}")
    spec = JobSpec("j", case, 0, "r", device, 0, 1, settings={**settings_for(case, device), **changed})
    return setting_facts(spec, MxnetSettings.of(spec))


def test_single_precision_on_one_card_exchanges_and_casts_nothing() -> None:
    expected = {
        "precision": "float32", "weights": "float32", "kvstore": "none", "loss_scaling": "none",
        "hybridize": "static_alloc on, static_shape on", "layout": "NCHW",
    }  # fmt: skip
    assert expected.items() <= facts("fp32-bs128-1x1-dali").items()


def test_half_precision_is_the_whole_network_on_a_gpu_and_single_operators_on_a_cpu() -> None:
    on_gpu, on_cpu = facts("amp-bs256-1x8-dali"), facts("amp-bs4-1x2-dali", "cpu")
    assert on_gpu["precision"] == "AMP O2 in float16: all but batch norm and loss"
    assert on_gpu["weights"].startswith("float16, float32 master copies (multi_precision)")
    assert on_gpu["feed"] == "NCHW, 4 channels, float16"
    assert on_cpu["precision"] == "AMP O1 in bfloat16: mxnet.contrib.amp"
    assert (on_gpu["kvstore"], on_cpu["kvstore"]) == ("device", "device")
    assert (on_gpu["loss_scaling"], on_cpu["loss_scaling"]) == ("none", "none")


@pytest.mark.parametrize(
    ("case_id", "name", "value"),
    [
        ("fp32-bs4-1x2-native", "kvstore", None),
        ("fp32-bs4-1x1-native", "kvstore", "device"),
        ("fp32-bs4-1x2-native", "kvstore", "dist_sync"),
        ("fp32-bs4-1x1-native", "static_alloc", None),
        ("fp32-bs4-1x1-native", "amp_through", "amp"),
        ("amp-bs4-1x1-native", "amp_through", "amp"),
        ("amp-bs4-1x1-native", "amp_level", "O1"),
        ("amp-bs4-1x1-native", "amp_dtype", None),
    ],
)
def test_a_setting_that_contradicts_the_case_is_refused_by_its_name(case_id: str, name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        facts(case_id, **{name: value})
    assert caught.value.field == name
