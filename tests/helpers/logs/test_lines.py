"""Cleaning a log's bytes, whose line it is, and time stamps."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.logs.lines import MOST_LINE_BYTES, UNSAID, LogLine, clean, moment_in, seconds_of


def lines_of(data: bytes) -> list[LogLine]:
    return list(clean(io.BytesIO(data)))


def by_rank(data: bytes) -> list[tuple[int, int, bytes]]:
    """Line, rank and text; without what is empty."""
    return [(line.number, line.rank, line.text) for line in lines_of(data) if line.text]


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"10%\r20%\rdone\n", b"10%\n20%\ndone\n"),
        (b"step\r", b"step\n"),
        (b"ips: 1\x0023.5\0\0\n", b"ips: 123.5\n"),
        (b"\x1b[32mips\x1b[0m: \x1b[1;38;5;9m12\x1b[K\n", b"ips: 12\n"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\n", b"ab\n"),
        (b"\x1b]0;a title without its end, ips: 12\n", b"0;a title without its end, ips: 12\n"),
        (b"\x1b(B\x1b=\x1bMa\x1b\n", b"a\n"),
        ("速度 ips: 5\n".encode("gbk"), "速度 ips: 5\n".encode("gbk")),
    ],
    ids=["crlf", "cr", "cr-last", "nul", "csi", "osc", "osc-open", "short-escapes", "gbk"],
)
def test_a_quirk_is_taken_away(raw: bytes, lines: bytes) -> None:
    assert b"".join(line.text + b"\n" for line in lines_of(raw)) == lines


def test_a_line_that_is_too_long_is_cut_and_told() -> None:
    longest, longer = b"y" * (MOST_LINE_BYTES - 1), b"x" * (3 * MOST_LINE_BYTES)
    found = lines_of(longest + b"\ntwo\n" + longer + b"\nfour")
    assert [(line.number, line.too_long, len(line.text), line.cut) for line in found] == [
        (1, False, len(longest), False),
        (2, False, 3, False),
        (3, True, 200, False),
        (4, False, 4, True),
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [b"\n", b"\r", b"\0", b"\x1b", b"\x1b[0m", b"\x1b]0;", b"\x07", b"[1,0]<stdout>:", b"[2,11]<stddiag>:",
                 b"[0]<stdout>:", b"Wed Jun  1 12:20:31 2022[1,0]<stdout>:", b"]<stdout>:", b"ips: 12.5"]
            ),
            st.binary(max_size=8),
        ),
        max_size=40,
    )
)  # fmt: skip
def test_every_line_of_any_bytes_is_clean_and_numbered(pieces: list[bytes]) -> None:
    found = lines_of(b"".join(pieces))
    assert not set(b"\0\r\x1b\n") & set(b"".join(line.text for line in found))
    numbers = [line.number for line in found]
    assert sorted(set(numbers)) == list(range(1, max(numbers, default=0) + 1))


# ---- whose line it is

DATE = b"Wed Jun  1 12:20:31 2022"


@pytest.mark.parametrize(
    "prefix",
    [
        b"[1,0]<stdout>:",
        b"[12,0]<stddiag>:",
        DATE + b"[1,0]<stdout>:",
        b"[1,0]<stdout>: ",
        b"[prterun-host-77@1,0]<stdout>: ",
        b"[1,0][node-1:4711]<stdout>: ",
        b"[0]<stdout>:",
    ],
)
def test_rank_0s_prefix_is_taken_off(prefix: bytes) -> None:
    assert by_rank(prefix + b"DLL 1\n" + prefix + b"DLL 2\n") == [(1, 0, b"DLL 1"), (2, 0, b"DLL 2")]


@pytest.mark.parametrize(
    "line", [b"[0] hello", b"0: hello", b"[1,0] <stdout>: x", b"[1,0]<stdfoo>:x", b"[a b,0]<stdout>:x"]
)
def test_what_is_no_prefix_for_certain_is_left(line: bytes) -> None:
    assert by_rank(line + b"\n") == [(1, UNSAID, line)]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (
            b"[1,0]<stdout>:a\n" + DATE + b"[1,1]<stdout>:b\n[1,10]<stderr>:c\n[1,0]<stdout>:d\n",
            [(1, 0, b"a"), (2, 1, b"b"), (3, 10, b"c"), (4, 0, b"d")],
        ),
        (
            b"[1,0]<stderr>:[[1,0]<stderr>:11:02:53] storage.cc[1,0]<stderr>::199[1,0]<stderr>: Using CPU\n",
            [(1, 0, b"[11:02:53] storage.cc:199 Using CPU")],
        ),
        (
            b"[1,0]<stdout>:total_ips[1,3]<stderr>:warn[1,0]<stdout>: : 5\n[1,3]<stderr>:ing\n",
            [(1, 0, b"total_ips : 5"), (1, 3, b"warn"), (2, 3, b"ing")],
        ),
        (
            b"launcher\n[1,1]<stdout>:a\nsummary\n\n[1,0]<stdout>:b\n",
            [(1, UNSAID, b"launcher"), (2, 1, b"a"), (3, UNSAID, b"summary"), (5, 0, b"b")],
        ),
    ],
    ids=["others", "pieces", "two ranks", "nobody's"],
)
def test_a_line_is_divided_by_rank(data: bytes, found: list[tuple[int, int, bytes]]) -> None:
    assert by_rank(data) == found


# ---- time stamps


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"1970/01/02 00:00:01", 86401),
        (b"1970-01-01 00:01:00.250000", 60.25),
        (b"1621935982.789", 1621935982.789),
        (b"yesterday", None),
        (b"2022-13-01 00:00:00", None),
        (b"nan", None),
    ],
)
def test_a_time_stamp_in_seconds(text: bytes, seconds: float | None) -> None:
    assert seconds_of(text) == (None if seconds is None else pytest.approx(seconds, abs=1e-6))


def test_a_time_stamp_without_a_year_has_differences() -> None:
    first, last = seconds_of(b"0228 23:59:59.500000"), seconds_of(b"0301 00:00:00.500000")
    assert first is not None and last is not None
    assert last - first == 86401.0  # in a leap year, where every date exists


@pytest.mark.parametrize(
    ("line", "moment"),
    [
        (b"[2022/06/06 15:22:57] ppcls INFO: epoch:0", "2022-06-06T15:22:57"),
        (b":::NVLOGv0.2.3 None 1621935605.798510075 (runner.py:1)", "2021-05-25T09:40:05"),
        (b"I0826 15:33:20.069663 139708281382656 keras_utils.py:133]", ""),
        (b"batch_cost: 0.12, ips: 1234567890.5123456789 images", ""),
        (b" " * 300 + b"2022-06-06 15:22:57", ""),
    ],
)
def test_a_time_with_its_year_is_found_in_a_line(line: bytes, moment: str) -> None:
    assert moment_in(line) == moment
