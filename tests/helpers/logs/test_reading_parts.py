"""What the reader is built of: literals of patterns, time stamps, parts of columns."""

from __future__ import annotations

import re

import numpy as np
import pytest

from helpers.logs.column import ColumnPart, NumberColumn
from helpers.logs.formats.table import FORMATS
from helpers.logs.reading.lines import finder, literal_of
from helpers.logs.reading.numbers import seconds_of
from helpers.logs.record import FormatSpec


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        (rb"abc", b"abc"),
        (rb"^== begin ==$", b"== begin =="),
        (rb"a[bc]defg?h", b"def"),
        (rb"ab+cde", b"cde"),
        (rb"abc*", b"ab"),
        (rb"ab{2,3}cde", b"cde"),
        (rb"x(?P<epoch>longer)y", b"x"),
        (rb"(?:one|two) words", b" words"),
        (rb"one|two", b""),
        (rb"\d+\.\w+: \(", b": ("),
        (rb"a\tb", b"a\tb"),
        (rb"[]x]yy", b"yy"),
        (rb"(?i)abc", b""),
        (rb".*", b""),
    ],
)
def test_the_literal_of_a_pattern(pattern: bytes, literal: bytes) -> None:
    assert literal_of(re.compile(pattern)) == literal


@pytest.mark.parametrize("spec", FORMATS.values(), ids=lambda each: each.name)
def test_every_pattern_that_is_looked_for_in_all_of_a_log_has_a_literal(spec: FormatSpec) -> None:
    patterns = [each for each in (*spec.starts, *spec.printed.values(), *spec.proofs) if each is not spec.record]
    assert [each.pattern for each in patterns if len(literal_of(each)) < 4] == []


def test_a_finder_finds_what_its_pattern_finds() -> None:
    found = finder(re.compile(rb"(\d+) images"))
    assert found.search(b"12 image") is None
    assert [match[1] for match in found.matches(b"12 images, 13 images")] == [b"12", b"13"]
    assert list(found.matches(b"none")) == []
    no_literal = finder(re.compile(rb"\d+"))
    assert no_literal.search(b"a 5") is not None


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


def test_a_part_of_a_column_on_disk_is_read_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.logs.column.BLOCK", 4)
    whole = NumberColumn()
    for at in range(0, 10, 2):
        whole.append(np.array([at, at + 1], dtype=np.float64))
    part = ColumnPart(whole, 3, 9)
    whole.append(np.array([99.0]))
    assert part.values() == [3, 4, 5, 6, 7, 8]
    assert part.values(1, 3) == [4, 5]
    assert (part[0], part[-1], len(part), part.mean(2, 4)) == (3, 8, 6, 5.5)
    assert part.values(6) == []
    with pytest.raises(IndexError):
        part[6]


def test_a_column_may_be_read_between_appends() -> None:
    column = NumberColumn()
    column.append(np.array([1.0]))
    column.append(np.array([2.0]))
    assert column.values() == [1, 2]
    column.append(np.array([3.0]))
    assert column.values() == [1, 2, 3]
