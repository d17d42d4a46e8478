"""Lines without a record: the literal that a pattern is searched by."""

from __future__ import annotations

import re

import pytest

from helpers.logs.formats import FORMATS
from helpers.logs.reading.lines import finder, literal_of
from helpers.logs.record import FormatSpec
from tests.for_each import for_each


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


@for_each("spec", FORMATS.values(), ids=lambda each: each.name)
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
