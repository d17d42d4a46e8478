"""torch.profiler as the trainer uses it: layers, types, and what is said where it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.trainers.environments import PYTORCH
from tests.helpers.trainers.once import made_once

pytestmark = [pytest.mark.slow, PYTORCH.needs]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    def looked() -> Any:
        folder = tmp_path_factory.mktemp("profile")
        printed = PYTORCH.run(str(Path(__file__).with_name("profile_units.py")), str(folder))
        return json.loads(printed.splitlines()[-1])

    return dict(made_once(tmp_path_factory, "profile-pytorch", looked))


def test_each_operator_is_in_its_layer_forward_and_backward(told: dict[str, Any]) -> None:
    calls = {tuple(row[:3]): row[-1] for row in told["rows"]}
    assert calls["forward", "0", "aten::conv2d"] == 2
    assert calls["backward", "0", "aten::convolution_backward"] == 2
    assert calls["forward", "3", "aten::batch_norm"] == 1
    assert calls["backward", "3", "aten::native_batch_norm_backward"] == 1
    assert told["phases"] == ["backward", "forward"]


def test_a_cast_is_in_the_layer_that_makes_it(told: dict[str, Any]) -> None:
    casts = sorted(row[4] for row in told["rows"] if row[:3] == ["forward", "1", "aten::to"])
    assert casts == ["bfloat16,float32", "float32,bfloat16"]


def test_no_hook_is_left_in_the_model(told: dict[str, Any]) -> None:
    assert told["hooks"] == 0


def test_it_can_record_less(told: dict[str, Any]) -> None:
    whole, untyped, bare = told["levels"]
    assert whole["layers"] == ["", "0", "1", "3", "4"] == untyped["layers"]
    assert "float32,bfloat16" in whole["types"]
    assert (untyped["types"], bare["types"], bare["layers"]) == ([""], [""], [""])
    assert untyped["operators"] == whole["operators"]
    assert set(bare["operators"]) <= set(whole["operators"])
    # They are left out on purpose: a note that the model is compiled would be wrong.
    assert bare["notes"] == []
    whole_bytes, untyped_bytes, bare_bytes = told["bytes"]
    assert whole_bytes > untyped_bytes > bare_bytes


def test_the_threads_are_pytorchs_own(told: dict[str, Any]) -> None:
    assert [each["threads"] for each in told["levels"]] == [1, 1, 1]
    assert told["threads"] == 2
