"""The programs of published rows on cards, traced without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.trainers.common.process import EXIT_COMPLETE
from tests.helpers.trainers.environments import TENSORFLOW

pytestmark = [pytest.mark.slow, TENSORFLOW.needs]


@pytest.mark.parametrize(
    ("case_id", "facts"),
    [
        (
            "tensorflow-resnet50v1.5-amp-bs256-1x8-native-xla",
            {"float16_convolutions": "53", "all_reduce": "not in the graph without cards"},
        ),
        ("tensorflow-resnet50v1.5-fp32-bs128-1x1-dali", {"float32_convolutions": "53", "label_smoothing": "0.1"}),
    ],
)
def test_a_published_case_is_traced_with_its_types(tmp_path: Path, case_id: str, facts: dict[str, str]) -> None:
    status, answer = TENSORFLOW.build(tmp_path, case_id)
    assert (status, answer["built"], answer["parameters"]) == (EXIT_COMPLETE, True, 25_557_032)
    assert answer["operators"] > 1000
    assert facts.items() <= answer["facts"].items()
