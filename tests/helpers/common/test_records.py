"""An error of a record is short, and names the first wrong place, whatever else is wrong."""

from __future__ import annotations

import copy
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from helpers.common.records import WrongRecord, read_as
from tests.for_each import for_each


@dataclass(frozen=True)
class Inside:
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Whole:
    by_name: Mapping[str, Inside]
    number: int = 0


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Painted:
    colour: Colour


RIGHT, WRONG = {"numbers": [1]}, {"numbers": [1, "2"]}


@for_each(
    "record",
    [
        {"by_name": {"a": RIGHT, "b": WRONG}},
        {"by_name": {"a": RIGHT, "b": WRONG}, "number": "0"},
        {"by_name": {"a": RIGHT, "b": WRONG, "c": WRONG}},
    ],
)
def test_the_first_wrong_entry_of_a_mapping_is_named(record: dict[str, Any]) -> None:
    before = copy.deepcopy(record)
    with pytest.raises(WrongRecord) as caught:
        read_as(record, Whole, defaults=True)
    assert (caught.value.field, caught.value.got) == ("by_name.b.numbers[1]", "2")
    assert record == before


def test_what_was_expected_does_not_repeat_what_was_got() -> None:
    with pytest.raises(WrongRecord) as caught:
        read_as({"colour": "x" * 5000}, Painted)
    assert caught.value.expected == "a known value"
