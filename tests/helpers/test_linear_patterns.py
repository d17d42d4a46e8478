"""Every pattern of the suite costs in proportion to its line: a stranger's log must not keep it busy for minutes."""

from __future__ import annotations

import re

import pytest

from helpers.logs.formats import FORMATS
from tests.fuzz.patterns import LINE_BYTES, Used, patterns, slow

# Half of the longest line: a quadratic pattern takes far too long all the same.
SIZE = LINE_BYTES // 2


@pytest.fixture(scope="module")
def every() -> list[Used]:
    return patterns()


@pytest.mark.slow
def test_every_pattern_is_linear_in_a_line_of_its_own_beginnings(every: list[Used]) -> None:
    found = [str(each) for each in slow(every, SIZE)]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_the_patterns_are_those_of_the_formats_and_of_the_rest(every: list[Used]) -> None:
    known = {each.pattern.pattern for each in every}
    for spec in FORMATS.values():
        for pattern in (spec.record, *spec.starts, *spec.printed.values()):
            assert pattern.pattern in known, f"{spec.name}: {pattern.pattern!r}"
    places = {each.where.partition(":")[0].rpartition(".")[0] for each in every}
    assert {"helpers.launch.failure", "helpers.logs.lines"} <= places


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        # As they were, each minutes for a line of 64 KB.
        rb"END epoch:(\d+) *,? *train [^\n]*ips: *([-+]?\d+\.?\d*) images/s",
        rb"\[Epoch (\d+), batch (\d+)\][^\n]*(?:ips|speed): *([-+]?\d+\.?\d*) (?:images|samples)/s",
        rb"batch_cost: *([-+]?\d+\.?\d*) s, *reader_cost",
        rb"TimeHistory: ([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.:]|,\d)) seconds, ",
        rb'\{(?=[^\n]*"speed_unit": *"images/s)[^\n]*?"ips": *(\d+)[,}]',
        rb"epoch id: (\d+), step(\d+), train_loss: [^\n]*, total time cost = [^\n]*, speed: *",
        rb"(\w+)=('[^']*'|[^,()]*)",
        rb"a+b",
    ],
)
def test_a_pattern_that_is_not_linear_is_found(pattern: bytes) -> None:
    (found,) = slow([Used("here", re.compile(pattern))], SIZE)
    assert found.seconds > 0.05 and "here" in str(found)
