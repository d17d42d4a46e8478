"""Numbers of many lines at once are those that ``float`` reads one by one; shapes find what the pattern finds."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from helpers.logs.formats import FORMATS
from helpers.logs.reading import numbers as module
from helpers.logs.reading.block import LineBlock, RecordGroups, block_of
from helpers.logs.reading.numbers import MOST_DIGITS, DigitPlaces, Shapes, decimals, moment_in, seconds_of
from helpers.logs.record import FormatSpec
from tests.for_each import for_each
from tests.helpers.logs.reading_doubles import PLAIN

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


# ---- a block that is read by its lines' shapes is the block that the pattern gives

RECORD = "2023-07-28 06:54:{:02d} e{} s{} rate: {}"
OTHER = ["other text", "", "rate: ", "s5 rate: 6", "end of e5: 7", "\xff 1"]


def text(seed: int, odd: list[str], lines: int = 900) -> bytes:
    """Records with others among them, and now and then one of ``odd``."""
    rng = random.Random(seed)
    every = []
    for number in range(lines):
        every.append(RECORD.format(number % 60, number // 100, number, round(1000 * rng.random(), rng.randint(0, 14))))
        if rng.random() < 0.1:
            every.append(rng.choice([*OTHER, *odd]))
    return "".join(f"{line}\n" for line in every).encode("latin-1")


@pytest.fixture(autouse=True)
def _short_blocks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_BYTES", 0)


def shaped(data: bytes, spec: FormatSpec = PLAIN, groups: RecordGroups | None = None) -> LineBlock:
    return block_of(spec, groups or RecordGroups(spec), data, 7)


def plain(data: bytes, spec: FormatSpec = PLAIN) -> LineBlock:
    return LineBlock(spec, RecordGroups(spec), data, 7)


def assert_same(found: LineBlock, expected: LineBlock) -> None:
    assert (found.count, found.line_count, found.others) == (expected.count, expected.line_count, expected.others)
    numbers, right = found.numbers(), expected.numbers()
    assert numbers.keys() == right.keys()
    for each, column in right.items():
        np.testing.assert_array_equal(numbers[each], column)
    for row in range(0, found.count, 7):
        assert (found.line(row), found.time(row)) == (expected.line(row), expected.time(row))


@pytest.mark.parametrize("seed", range(4))
def test_the_same_records_numbers_lines_and_stamps(seed: int) -> None:
    data = text(seed, ["e3 s4 rate: 5 wait 0.25", "e3 s4 rate: 5."])
    found = shaped(data)
    assert type(found) is not LineBlock
    assert_same(found, plain(data))


@pytest.mark.parametrize(
    "odd",
    [
        "e3 s4 rate: nan",
        "e3 s4 rate: 1e5",
        "e3 s4 rate: -5",
        "e3 s4 rate: .5",
        "e3 s4 rate: 10.1.2.3",
        "e3 s4 rate: 1234567890.1234567890",
        "e3 s4 rate: 5 e3 s5 rate: 6",
        "x" * 2000,
    ],
)
def test_a_line_that_needs_the_pattern_itself_is_left_to_it(odd: str) -> None:
    data = text(1, [odd])
    found = shaped(data)
    assert type(found) is LineBlock
    assert_same(found, plain(data))


@pytest.mark.parametrize("few", [0, 4])
def test_each_record_of_a_line_has_its_own_stamp(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.logs.reading.block._FEW_TIMES", few)
    one, two, three = (f"2023-07-28 06:54:0{second} e0 s{second} rate: 5" for second in (1, 2, 3))
    block = plain(f"x {one} {two}\ne0 s7 rate: 5\n{three}\n".encode())
    stamps = [b"2023-07-28 06:54:01", b"2023-07-28 06:54:02", b"", b"2023-07-28 06:54:03"]
    assert [block.time(row) for row in range(4)] == stamps


def test_a_pattern_that_names_a_digit_is_searched_itself() -> None:
    named = replace(PLAIN, record=re.compile(rb"e(?P<epoch>\d+) s(?P<step>\d+) rate: (?P<images_per_s>[1-9]\d*)"))
    data = text(1, [])
    assert type(shaped(data, named)) is LineBlock
    assert_same(shaped(data, named), plain(data, named))


@for_each("spec", FORMATS.values(), ids=lambda spec: spec.name)
def test_every_formats_records_are_found_by_shape(spec: FormatSpec) -> None:
    groups = RecordGroups(spec)
    assert Shapes(groups.record, groups.fields).look(b"\n") is not None
    assert groups.record.groupindex.keys() == spec.record.groupindex.keys() - {"time"}


def test_a_log_of_many_shapes_is_given_up_and_its_shapes_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_SHAPES", 100)
    groups = RecordGroups(PLAIN)
    rng = random.Random(1)
    looked: list[bytes] = []
    monkeypatch.setattr(groups.shapes, "_look", lambda lines: looked.append(lines[0]))
    for _ in range(50):
        letters = "".join(rng.choice("abcdefghij") for _ in range(20))
        assert type(shaped(f"{letters} rate: \n".encode(), groups=groups)) is LineBlock
    assert len(looked) == 9
    many = RecordGroups(PLAIN)
    lines = "".join(f"{'x' * number} rate: \n" for number in range(200)).encode()
    assert type(shaped(lines, groups=many)) is LineBlock
    assert many.shapes._known == {}


def test_a_few_bad_blocks_among_good_ones_change_nothing_for_these() -> None:
    groups = RecordGroups(PLAIN)
    kinds = [type(shaped(text(seed, ["e3 s4 rate: nan"] * (seed % 3 == 0)), groups=groups)) for seed in range(60)]
    assert [kind is LineBlock for kind in kinds] == [seed % 3 == 0 for seed in range(60)]


@pytest.mark.parametrize(
    ("line", "moment"),
    [
        (b"[2022/06/06 15:22:57] ppcls INFO: epoch:0", "2022-06-06T15:22:57"),
        (b"DLL 2021-05-28 09:50:09.336759 - (0, 1)", "2021-05-28T09:50:09"),
        (b":::NVLOGv0.2.3 None 1621935605.798510075 (runner.py:1)", "2021-05-25T09:40:05"),
        (b"I0826 15:33:20.069663 139708281382656 keras_utils.py:133]", ""),
        (b"batch_cost: 0.12, ips: 1234567890.5123456789 images", ""),
        (b"2022-13-06 15:22:57", ""),
        (b" " * 300 + b"2022-06-06 15:22:57", ""),
    ],
)
def test_a_time_with_its_year_is_found_in_a_line(line: bytes, moment: str) -> None:
    assert moment_in(line) == moment
