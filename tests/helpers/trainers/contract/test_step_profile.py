"""Where a step's time goes, written and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.step_profile import NoProfile, OperatorRow, Phase, StepProfile, from_json

ROW = OperatorRow(Phase.BACKWARD, "blocks.3.spatial", "conv2d_grad", "", "float32", "cpu", 1.0, 0.04)
PROFILE = StepProfile(
    framework="paddle",
    rank=1,
    steps=5,
    step_seconds=0.11,
    step_seconds_unprofiled=0.1,
    phases={Phase.FORWARD: 0.04, Phase.BACKWARD: 0.06, Phase.HOST_GAP: 0.01},
    all_reduce_overlapped_seconds=0.0,
    operators=(ROW, replace(ROW, layer="")),
    threads=2,
    profiler="a profiler",
    notes=("it does not tell the kernels",),
)
NONE = NoProfile("paddle", 0, "a profiler", "it named nothing")


@pytest.mark.parametrize("answer", [PROFILE, NONE])
def test_it_is_read_back_as_it_was_written(answer: StepProfile | NoProfile) -> None:
    assert from_json(answer.to_json(), "answer") == answer


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schema": 2}, "'schema'"),
        ({"steps": 0}, "'steps'"),
        ({"rank": True}, "'rank'"),
        ({"step_seconds": 0.2}, "'phases'"),
        ({"step_seconds": float("nan")}, "'step_seconds'"),
        ({"step_seconds_unprofiled": 0.0}, "'step_seconds_unprofiled'"),
        ({"phases": {"forwards": 0.11}}, "'phases'.*data_wait"),
        ({"phases": {"forward": -0.1}}, "'phases.forward'"),
        ({"all_reduce_overlapped_seconds": 0.2}, "'all_reduce_overlapped_seconds'"),
        ({"operators": [[]]}, r"'operators\[0\]'"),
        ({"threads": 0}, "'threads'"),
        ({"notes": "all"}, "'notes'"),
        ({"more": 1}, "'more'"),
    ],
)
def test_anything_else_is_an_error_that_names_the_field(change: dict[str, Any], named: str) -> None:
    record = {**json.loads(PROFILE.to_json()), **change}
    with pytest.raises(StepLogError, match=f"answer: field {named}"):
        from_json(json.dumps(record), "answer")


def test_an_error_in_a_row_names_the_row_and_its_field() -> None:
    record = json.loads(PROFILE.to_json())
    record["operators"][1]["seconds_per_step"] = "long"
    with pytest.raises(StepLogError, match=r"operators\[1\].seconds_per_step"):
        from_json(json.dumps(record), "answer")
    record["operators"][1] = record["operators"][0]
    with pytest.raises(StepLogError, match="rows with different keys"):
        from_json(json.dumps(record), "answer")


def test_what_cannot_be_read_is_not_written() -> None:
    with pytest.raises(StepLogError, match="phases"):
        replace(PROFILE, phases={}).to_json()


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000])
def test_another_file_is_an_error(text: str) -> None:
    with pytest.raises(StepLogError, match="answer"):
        from_json(text, "answer")
