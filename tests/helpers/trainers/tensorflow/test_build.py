"""The programs of published rows on cards, traced without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
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
    case = Case.parse(case_id)
    spec = JobSpec("j", case, 0, str(tmp_path), "gpu", 0, 1, settings=settings_for(case, "gpu"))
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    printed = TENSORFLOW.run("-m", "helpers.trainers.tensorflow.build", str(spec.spec_path))
    answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert (answer["built"], answer["parameters"]) == (True, 25_557_032)
    assert answer["operators"] > 1000
    assert facts.items() <= answer["facts"].items()
