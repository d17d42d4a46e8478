"""The parts of PyTorch's step: counts, proof of precision and layout, weight decay, learning rates."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.trainers.environments import PYTORCH

pytestmark = [pytest.mark.slow, PYTORCH.needs]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return PYTORCH.units(tmp_path_factory, "resnet50v1.5-fp32-bs4-1x1-synthetic")


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


def test_what_a_cpu_cannot_run_is_refused_with_its_reason(told: dict[str, Any]) -> None:
    assert [each.partition(" ")[0] for each in told["refused"]] == ["TF32", "CUDA"]
