"""Columns, and their order statistics in bounded memory: those of the sorted list, whatever the numbers are."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from helpers.logs.column import BLOCK, ColumnPart, NumberColumn, median, select, trimmed_mean
from tests.for_each import for_each
from tests.helpers.logs.made_runs import column

RANDOM = random.Random(7)
MIXED = [RANDOM.gauss(0, 1) * 10 ** RANDOM.randint(-9, 9) for _ in range(501)]
ODD = [0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, float("inf"), float("-inf"), 1.0, 1.0, 1.0]
TIED = [3.0] * 20 + [1.0] * 5 + [7.0] * 6


@pytest.mark.parametrize("numbers", [MIXED, ODD, TIED, [4.0]], ids=["mixed", "odd", "tied", "one"])
def test_counting_gives_what_sorting_gives(numbers: Sequence[float]) -> None:
    # Each rank costs a count of half a megabyte, so of many numbers every tenth is looked for.
    ranks = range(0, len(numbers), 1 + len(numbers) // 50)
    assert select(column(numbers), ranks, in_memory=0) == sorted(numbers)[:: ranks.step]
    assert select(column(numbers), ranks) == sorted(numbers)[:: ranks.step]


@pytest.mark.parametrize("in_memory", [0, 10**6])
def test_only_what_stands_from_start_on_counts(in_memory: int) -> None:
    assert select(column([9.0, 1.0, 5.0, 3.0]), (0, 2), 1, in_memory) == [1.0, 5.0]
    assert median(column([100.0, 1.0, 5.0]), 1, in_memory) == 3.0


@for_each("in_memory", [0, 10**6])
@for_each("numbers", [MIXED[:100], TIED, [5.0] * 12, [1.0, 1.0, 2.0, 2.0, 2.0, 9.0, 9.0, 9.0]])
@for_each("each_end", [0, 1, 3])
def test_a_trimmed_mean_is_that_of_the_sorted_middle(numbers: Sequence[float], each_end: int, in_memory: int) -> None:
    kept = sorted(numbers)[each_end : len(numbers) - each_end]
    got = trimmed_mean(column(numbers), each_end, in_memory=in_memory)
    assert got == pytest.approx(statistics.fmean(kept), rel=1e-12, abs=1e-12 * max(map(abs, numbers)))


def test_the_median_of_none_is_no_number() -> None:
    assert median(column([1.0]), 1) != median(column([1.0]), 1)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(IndexError):
        select(column([1.0, 2.0]), (2,))
    with pytest.raises(IndexError):
        trimmed_mean(column([1.0, 2.0]), 1)
    for in_memory in (0, 100):
        with pytest.raises(ValueError, match="NaN"):
            select(column([1.0, float("nan")]), (0,), in_memory=in_memory)


def test_a_column_that_lies_on_disk_is_read_like_any_other() -> None:
    numbers = np.random.default_rng(3).normal(size=BLOCK + 1000)
    long = NumberColumn()
    for part in np.array_split(numbers, 7):
        long.append(part)
    got = trimmed_mean(long, 1000, 10, in_memory=1000)
    assert got == pytest.approx(float(np.mean(np.sort(numbers[10:])[1000:-1000])), rel=1e-9)


def test_a_part_of_a_column_on_disk_is_read_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.logs.column.BLOCK", 4)
    whole = NumberColumn()
    for at in range(0, 10, 2):
        whole.append(np.array([at, at + 1], dtype=np.float64))
    part = ColumnPart(whole, 3, 9)
    whole.append(np.array([99.0]))
    assert part.values() == [3, 4, 5, 6, 7, 8]
    assert part.values(1, 3) == [4, 5]
    assert (part[0], part[-1], len(part)) == (3, 8, 6)
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
