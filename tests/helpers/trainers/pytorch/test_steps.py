"""The parts of PyTorch's step: counts, proof of precision and layout, weight decay, learning rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.environments import PYTORCH
from tests.helpers.trainers.once import made_once

pytestmark = [pytest.mark.slow, PYTORCH.needs]

CASE = Case.parse("pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    def looked() -> Any:
        folder = tmp_path_factory.mktemp("units")
        spec = JobSpec("j", CASE, 0, str(folder), "cpu", 0, 1, settings=settings_for(CASE, "cpu"))
        spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
        printed = PYTORCH.run(str(Path(__file__).with_name("step_units.py")), str(spec.spec_path))
        return json.loads(printed.splitlines()[-1])

    return dict(made_once(tmp_path_factory, "steps-pytorch", looked))


def test_convolutions_and_weights_of_another_type_or_layout_are_refused(told: dict[str, Any]) -> None:
    proofs = told["proofs"]
    assert proofs["right"] == proofs["right_half"] == ""
    assert "convolutions in bfloat16: 0 of 53" in proofs["not_cast"]
    assert "convolutions in float32: 0 of 53" in proofs["cast"]
    assert "convolutions in NHWC" in proofs["layout"]
    assert "0 of 53" in proofs["never_ran"]
    assert proofs["weights"] == "the weights of stem.convolution are torch.float16, not torch.float32"


def test_weight_decay_spares_batch_norm_where_the_settings_say_so(told: dict[str, Any]) -> None:
    assert told["groups"] == {"True": [[161, 1e-4]], "False": [[55, 1e-4], [106, 0.0]]}


def test_the_learning_rate_falls_at_the_boundaries_of_the_epochs(told: dict[str, Any]) -> None:
    assert told["rates"] == pytest.approx([1.0, 1.0, 0.1, 0.01, 0.001])


def test_what_the_step_gets_is_a_copy_of_a_loader_s_array(told: dict[str, Any]) -> None:
    assert told["fed"] == [1.0, 1.0]


def test_a_graph_is_captured_once_and_replayed_over_each_batch(told: dict[str, Any]) -> None:
    assert told["graphed"] == {
        "losses": [100.0, 101.0, 102.0, 103.0, 104.0, 105.0], "captures": 1, "replays": 3, "streams": 1,
    }  # fmt: skip
