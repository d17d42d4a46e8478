"""Time stamps as seconds of a clock without a zone."""

from __future__ import annotations

import pytest

from helpers.logs.lines import moment_in, seconds_of


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
