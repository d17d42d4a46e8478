"""Numbers that are read many at once are those that ``float`` reads one by one."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest

from helpers.logs.reading import numbers as module
from helpers.logs.reading.numbers import MOST_DIGITS, DigitPlaces, decimals, seconds_of

FEW = ["0", "7", "007", "5.", "1.5", "0.1", "0.30", "1347.3684210526317", "999999999999999999", "0.000000000000000001"]


def found(texts: list[str]) -> tuple[bytes, DigitPlaces]:
    """The texts in lines of their own, and where their digits stand."""
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)])[:-1]
    parts = [text.partition(".") for text in texts]
    before, behind = (np.array([len(part[at]) for part in parts], dtype=np.int64) for at in (0, 2))
    return "".join(f"{text}\n" for text in texts).encode(), DigitPlaces(starts + before, before, behind)


def read(texts: list[str]) -> list[float]:
    numbers: list[float] = decimals(*found(texts)).tolist()
    return numbers


def of_any_length(count: int, seed: int) -> Iterable[str]:
    rng = random.Random(seed)
    for _ in range(count):
        digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(1, MOST_DIGITS)))
        point = rng.randint(1, len(digits))
        yield f"{digits[:point]}.{digits[point:]}" if rng.random() < 0.8 else digits


@pytest.mark.parametrize("text", FEW)
def test_one_number(text: str) -> None:
    assert read([text]) == [float(text)]


def test_numbers_of_any_length_are_rounded_as_float_rounds_them() -> None:
    texts = [*FEW, *of_any_length(20_000, 5), *(repr(1347 + random.Random(2).random()) for _ in range(1000))]
    assert read(texts) == [float(text) for text in texts]


def test_a_quotient_that_is_rounded_to_halfway_is_not_rounded_again() -> None:
    texts = ["33906526.4546479024", "595411617.164629519", "336087639.278324157", "668.423875917062162"]
    assert read(texts) == [float(text) for text in texts]


def test_numbers_halfway_between_two_doubles_are_rounded_as_float_rounds_them() -> None:
    """Whole numbers above 2**53 with all digits told: every second or fourth of them is such a one."""
    texts = [f"{2**bits + step}.{'0' * zeros}" for bits in (53, 54, 55) for step in range(-9, 40) for zeros in (0, 1)]
    assert read(texts) == [float(text) for text in texts]


def test_where_long_doubles_are_doubles_large_numbers_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WIDE", False)
    texts = [*FEW, *of_any_length(500, 6)]
    assert read(texts) == [float(text) for text in texts]


def test_no_digits_are_no_number() -> None:
    assert str(read(["1", "", "2.5"])) == "[1.0, nan, 2.5]"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"1970/01/02 00:00:01", 86401),
        (b"1970-01-01 00:01:00.250000", 60.25),
        (b"1970-01-01 00:00:01,500", 1.5),
        (b"1970-01-01T00:00:02", 2),
        (b"1621935982.789", 1621935982.789),
        (b" 12 ", 12),
    ],
)
def test_a_time_stamp_in_seconds(text: bytes, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds, abs=1e-6)


def test_a_time_stamp_without_a_year_has_differences() -> None:
    first, last = seconds_of(b"0228 23:59:59.500000"), seconds_of(b"0301 00:00:00.500000")
    assert first is not None and last is not None
    assert last - first == 86401.0  # in a leap year, where every date exists


@pytest.mark.parametrize(
    "text", [b"", b"yesterday", b"2022-13-01 00:00:00", b"2022-12-01", b"nan", b"1e5", b"10:00:00"]
)
def test_what_is_no_time_stamp_is_none(text: bytes) -> None:
    assert seconds_of(text) is None
