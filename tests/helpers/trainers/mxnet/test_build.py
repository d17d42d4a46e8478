"""MXNet's programs of the published rows, traced without a card."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.trainers.common.process import EXIT_COMPLETE, EXIT_FAILED, EXIT_REFUSED
from tests.helpers.trainers.environments import MXNET

pytestmark = [pytest.mark.slow, MXNET.needs]

RESNET50 = "mxnet-resnet50v1.5"


@pytest.mark.parametrize(
    ("case", "parameters", "facts"),
    [
        ("amp-bs256-1x8-dali", 25_560_168, {"float16_convolutions": "53", "NHWC_convolutions": "53"}),
        ("fp32-bs128-1x1-unstated", 25_557_032, {"float32_convolutions": "53", "NCHW_convolutions": "53"}),
    ],
)
def test_a_published_row_s_program_is_traced_without_a_card(
    tmp_path: Path, case: str, parameters: int, facts: dict[str, str]
) -> None:
    status, answer = MXNET.build(tmp_path, f"{RESNET50}-{case}")
    assert (status, answer["built"]) == (EXIT_COMPLETE, True), answer
    assert answer["parameters"] == parameters
    assert answer["operators"] > 170
    assert facts.items() <= answer["facts"].items()


def test_a_wrong_setting_fails_by_name(tmp_path: Path) -> None:
    status, answer = MXNET.build(tmp_path, f"{RESNET50}-fp32-bs128-1x1-dali", layout="CHW")
    assert status == EXIT_FAILED
    assert "field 'layout'" in answer["reason"]


def test_a_graph_in_another_type_than_the_case_s_is_refused(tmp_path: Path) -> None:
    status, answer = MXNET.build(tmp_path, f"{RESNET50}-amp-bs256-1x1-dali", input_dtype="float32")
    assert status == EXIT_REFUSED, answer
    assert answer["reason"].startswith("MXNet does not take the case's images: ")
