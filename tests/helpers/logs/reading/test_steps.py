"""Many old records at once: what is found together is what would be found one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from helpers.logs.formats import FORMATS
from helpers.logs.reading.block import RecordGroups, block_of
from helpers.logs.reading.numbers import seconds_of, seconds_of_rows
from helpers.logs.reading.steps import StepOrder
from tests.for_each import for_each

DLL = FORMATS["nvidia-tensorflow"]


def _order(keys: range, first: float | None, last: float | None) -> StepOrder:
    order = StepOrder()
    order.accept(np.array(keys, dtype=np.float64), first, last)
    return order


@for_each("seed", range(200))
def test_old_rows_are_planned_together_as_one_by_one(seed: int) -> None:
    draw = random.Random(seed)
    first = draw.choice([None, 100.0])
    order = _order(range(10, 310, 10), first, None if first is None else 400.0)
    keys = np.array([float(draw.choice((10, 20, 150, 290, 300, 310))) for _ in range(draw.randint(1, 5))])
    seconds = [draw.choice((0.0, 95.0, 120.0, 399.9, 400.0, 404.0, 500.0)) for _ in keys]
    alone = order.plan(keys, lambda row: seconds[row])
    together = order.plan(keys, lambda row: seconds[row], lambda rows: np.array(seconds)[rows])
    assert (alone.stop, alone.why) == (together.stop, together.why)
    told = slice(alone.stop)
    assert alone.kept[told].tolist() == together.kept[told].tolist()


def test_repeated_records_are_dropped_without_asking_each_for_its_time() -> None:
    order = _order(range(10, 310, 10), 100.0, 400.0)
    keys = np.array([10.0, 20.0, 300.0] * 1000)

    def never(row: int) -> float:
        raise AssertionError(f"row {row} was asked alone")

    plan = order.plan(keys, never, lambda rows: np.full(len(rows), 150.0))
    assert plan.stop is None
    assert not plan.kept.any()


def _rows(*texts: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(len(texts), -1)


@pytest.mark.parametrize(
    "texts",
    [
        (b"2022/12/02 18:10:52", b"2024/02/29 00:00:00"),
        (b"2022-11-24 04:01:45.487468", b"1999-12-31 23:59:59.999999"),
        (b"2020-12-16 08:21:31,031", b"2020-12-16 08:21:31,032"),
        (b"0826 15:13:29.256137", b"1231 15:13:29.000000"),
    ],
)
def test_stamps_read_together_are_those_read_alone(texts: tuple[bytes, ...]) -> None:
    together = seconds_of_rows(_rows(*texts))
    assert together is not None
    assert together.tolist() == pytest.approx([seconds_of(each) for each in texts], abs=1e-6)


@pytest.mark.parametrize(
    "other", [b"2022/12/32 18:10:52", b"2023/02/29 18:10:52", b"2022-12/02 18:10:52", b"2022/12/02 1x:10:52"]
)
def test_stamps_that_are_not_all_alike_are_not_read_together(other: bytes) -> None:
    assert seconds_of_rows(_rows(b"2022/12/02 18:10:52", other)) is None


def test_seconds_since_1970_are_not_read_together() -> None:
    assert seconds_of_rows(_rows(b"1621935982.78", b"1621935983.78")) is None


def _line(step: int, second: int) -> bytes:
    return b"DLL 2031-02-03 04:05:%02d.250000 - (0, %d) total_ips : %d.5\n" % (second, step, 700 + step)


def test_a_blocks_stamps_are_its_rows_own() -> None:
    data = b"some words\n" + b"".join(_line(step, step % 60) for step in range(100, 160)) + b"more words\n"
    block = block_of(DLL, RecordGroups(DLL), data, 7)
    rows = np.array([0, 3, 59])
    together = block.seconds(rows)
    assert together is not None
    assert together.tolist() == [seconds_of(block.time(int(row))) for row in rows]


def test_stamps_at_different_places_of_their_lines_are_asked_for_alone() -> None:
    data = _line(10, 1) + b"[x] " + _line(20, 2) + _line(30, 3)
    block = block_of(DLL, RecordGroups(DLL), data, 1)
    assert block.count == 3
    assert block.seconds(np.arange(3)) is None
