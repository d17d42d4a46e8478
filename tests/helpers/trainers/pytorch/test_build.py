"""PyTorch's steps of the published rows on cards, dispatched without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.trainers.common.process import EXIT_COMPLETE, EXIT_FAILED, EXIT_REFUSED
from tests.helpers.trainers.environments import PYTORCH

pytestmark = [pytest.mark.slow, PYTORCH.needs]


@pytest.mark.parametrize(
    ("case_id", "parameters", "facts"),
    [
        (
            "pytorch-resnet50v1.5-amp-bs256-4x8-dali_cpu",
            25_557_032,
            {"float16_convolutions": "53", "NCHW_convolutions": "53", "all_reduce": "not in the step without cards"},
        ),
        ("pytorch-resnet50v1.5-fp32-bs128-1x1-unstated", 25_557_032, {"float32_convolutions": "53"}),
        ("pytorch-resnet50v1.5-amp_o2-bs256-1x1-synthetic", 25_560_168, {"NHWC_convolutions": "53"}),
        ("pytorch-vgg16-bf16-bs128-1x1-synthetic", 138_357_544, {"bfloat16_convolutions": "13"}),
    ],
)
def test_a_step_for_a_card_is_dispatched_with_its_types_and_layouts(
    tmp_path: Path, case_id: str, parameters: int, facts: dict[str, str]
) -> None:
    status, answer = PYTORCH.build(tmp_path, case_id)
    assert (status, answer["built"]) == (EXIT_COMPLETE, True), answer
    assert answer["parameters"] == parameters
    assert answer["operators"] > 100
    assert facts.items() <= answer["facts"].items()


@pytest.mark.parametrize(
    ("case_id", "overrides", "status", "told"),
    [
        (
            "resnet50v1.5-fp32-bs128-1x1-synthetic-compile",
            {},
            EXIT_REFUSED,
            "torch.compile makes the program",
        ),
        ("resnet50v1.5-fp32-bs128-1x1-synthetic", {"layout": "CHW"}, EXIT_FAILED, "field 'layout'"),
    ],
)
def test_what_is_not_built_has_its_reason(
    tmp_path: Path, case_id: str, overrides: dict[str, Any], status: int, told: str
) -> None:
    found, answer = PYTORCH.build(tmp_path, f"pytorch-{case_id}", **overrides)
    assert (found, answer["built"]) == (status, False)
    assert told in answer["reason"]


def test_a_captured_step_is_built_as_the_step_that_is_captured(tmp_path: Path) -> None:
    status, answer = PYTORCH.build(tmp_path, "pytorch-resnet50v1.5-bf16-bs64-1x1-synthetic-graphs")
    assert status == EXIT_COMPLETE, answer
    assert answer["facts"]["graphs"].startswith("on: the step that is built here")
