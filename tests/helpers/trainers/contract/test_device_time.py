"""What a rank says of its cards' time, written and read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.trainers.contract.device_time import DeviceTime
from helpers.trainers.contract.errors import StepLogError

KNOWN = DeviceTime("a profiler", 5, 0.125)
UNKNOWN = DeviceTime("a profiler", 5, None, "it recorded nothing")


@pytest.mark.parametrize("answer", [KNOWN, UNKNOWN])
def test_it_is_read_back_as_it_was_written(answer: DeviceTime) -> None:
    assert DeviceTime.from_json(answer.to_json(), "answer") == answer


def test_a_result_says_it_in_words_and_as_a_number() -> None:
    assert KNOWN.facts(0.128) == {
        "device_time": "0.125 s a step, 97.7% of the window's 0.128 s (a profiler, 5 steps after the window)",
        "device_seconds_per_step": "0.125",
    }
    assert UNKNOWN.facts(0.128) == {"device_time": "unknown: it recorded nothing (a profiler)"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seconds_per_step": 0.0}, "seconds_per_step"),
        ({"seconds_per_step": float("nan")}, "seconds_per_step"),
        ({"seconds_per_step": "0.1"}, "seconds_per_step"),
        ({"steps": 0}, "steps"),
        ({"steps": True}, "steps"),
        ({"method": None}, "method"),
        ({"more": 1}, "an object with"),
    ],
)
def test_anything_else_is_an_error_that_names_the_field(change: dict[str, Any], named: str) -> None:
    record = {**json.loads(KNOWN.to_json()), **change}
    with pytest.raises(StepLogError, match=named):
        DeviceTime.from_json(json.dumps(record), "answer")


@pytest.mark.parametrize("text", ["", "[]", '{"method": "x"}', "[" * 100_000])
def test_another_file_is_an_error(text: str) -> None:
    with pytest.raises(StepLogError, match="answer"):
        DeviceTime.from_json(text, "answer")
