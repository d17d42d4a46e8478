"""Cleaning a log's bytes: each quirk by example, and no dependence on where blocks were divided."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.logs import lines as module
from helpers.logs.lines import AS_IT_IS, MOST_LINE_BYTES, UNSAID, Encoding, LogLine, clean, line_text

UTF_16 = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}


def cleaned(data: bytes, encoding: Encoding = AS_IT_IS) -> bytes:
    return b"".join(line.text + b"\n" for line in clean([data], encoding))


def by_rank(data: bytes) -> list[tuple[int, int, bytes]]:
    """Line, rank and text; without what is empty."""
    return [(line.number, line.rank, line.text) for line in clean([data]) if line.text]


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"a\nb\n", b"a\nb\n"),
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"10%\r20%\rdone\n", b"10%\n20%\ndone\n"),
        (b"a\r\r\nb\n", b"a\n\nb\n"),
        (b"step\r", b"step\n"),
        (b"ips: 1\x0023.5\0\0\n\0", b"ips: 123.5\n"),
        (b"a\r\0\nb\n", b"a\nb\n"),
        (b"\x1b[32mips\x1b[0m: \x1b[1;38;5;9m12\x1b[K\n", b"ips: 12\n"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\n", b"ab\n"),
        (b"\x1b]0;a title without its end, ips: 12\n", b"0;a title without its end, ips: 12\n"),
        (b"\x1b]0;title\nips: 12\x07\n", b"0;title\nips: 12\x07\n"),
        (b"\x1b(B\x1b=\x1bMa\x1b\n", b"a\n"),
        (b"\x1b[31\nips: 3\n", b"31\nips: 3\n"),
        ("速度 ips: 5\n".encode("gbk"), "速度 ips: 5\n".encode("gbk")),
    ],
    ids=["plain", "crlf", "cr", "cr-crlf", "cr-last", "nul", "nul-in-crlf", "csi", "osc", "osc-open",
         "osc-over-lines", "short-escapes", "csi-open", "gbk"],
)  # fmt: skip
def test_a_quirk_is_taken_away(raw: bytes, lines: bytes) -> None:
    assert cleaned(raw) == lines


def test_a_log_with_a_utf_8_mark_begins_with_its_first_character() -> None:
    assert cleaned(codecs.BOM_UTF8 + b"DLL 1\n", Encoding(None, 3)) == b"DLL 1\n"


@pytest.mark.parametrize("codec", UTF_16)
@pytest.mark.parametrize("marked", [True, False])
def test_utf_16_becomes_utf_8(codec: str, marked: bool) -> None:
    mark = UTF_16[codec] if marked else b""
    raw = mark + "ips: 12 图像 😀\r\nend\n".encode(codec)
    assert cleaned(raw, Encoding(codec, len(mark))) == "ips: 12 图像 😀\nend\n".encode()


def test_utf_16_that_was_cut_within_a_character_is_still_read() -> None:
    lines = list(clean(["ips: 12\nen".encode("utf-16-le")[:-1]], Encoding("utf-16-le")))
    assert [line.text for line in lines] == [b"ips: 12", "e\ufffd".encode()]
    assert [line.cut for line in lines] == [False, True]


def test_of_nothing_but_nul_there_is_no_line() -> None:
    assert list(clean([b"\0" * 100, b""])) == []


def test_a_line_that_is_too_long_is_cut_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LINE_BYTES", 250)
    lines = list(clean([b"y" * 250 + b"\ntwo\n" + b"x" * 251 + b"\nfour\n"]))
    assert [(line.number, line.too_long, len(line.text)) for line in lines] == [
        (1, False, 250),
        (2, False, 3),
        (3, True, 200),
        (4, False, 4),
    ]


def test_a_line_without_end_is_not_kept() -> None:
    def blocks() -> Iterator[bytes]:
        yield b"one\n"
        for _ in range(1000):
            yield b"x" * 1000
        yield b"\nthree"

    assert MOST_LINE_BYTES < 1000 * 1000
    one, two, three = clean(blocks())
    assert (one.text, three.text, three.number, three.cut) == (b"one", b"three", 3, True)
    assert two == LogLine(2, b"x" * 200, UNSAID, too_long=True)


@pytest.mark.parametrize(
    ("line", "text"),
    [("速度".encode(), "速度"), ("速度".encode("gbk"), "速度"), (b"caf\xe9 \xff", "caf\xe9 \xff")],
    ids=["utf-8", "gbk", "latin-1"],
)
def test_a_line_is_decoded_for_people(line: bytes, text: str) -> None:
    assert line_text(line) == text


# ---- where blocks are divided makes no difference

PIECES = st.one_of(
    st.sampled_from(
        [b"\n", b"\r", b"\r\n", b"\0", b"\x1b", b"\x1b[", b"31", b"m", b"\x1b[0m", b"\x1b]0;", b"\x07", b"\x1b\\",
         b"[1,0]<stdout>:", b"[1,0]<stdout>: ", b"[1,3]<stderr>:", b"[2,11]<stddiag>:", b"[0]<stdout>:", b"[1,",
         b"Wed Jun  1 12:20:31 2022[1,0]<stdout>:", b"Wed Jun  1 12:20:31 2022", b"]<stdout>:", b"ips: 12.5",
         b"[job@1,4][node:77]<stdout>: ", "速度".encode("gbk"), "é".encode(), b"x" * 240]
    ),
    st.binary(max_size=8),
)  # fmt: skip


@st.composite
def divided(draw: st.DrawFn, longest: int = 40) -> tuple[bytes, list[bytes]]:
    """Bytes, and the same in blocks."""
    data = b"".join(draw(st.lists(PIECES, max_size=longest)))
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return data, [data[start:end] for start, end in pairwise([0, *places, len(data)])]


@settings(deadline=None)
@given(divided(), st.sampled_from([AS_IT_IS, *(Encoding(codec, mark) for codec in sorted(UTF_16) for mark in (0, 2))]))
@example((b"a\r\nb", [b"a\r", b"", b"\0", b"\nb"]), AS_IT_IS)
@example((b"x" * 250 + b"\r\n", [b"x" * 250, b"\r", b"\n"]), AS_IT_IS)
def test_cleaning_by_blocks_equals_cleaning_at_once(drawn: tuple[bytes, list[bytes]], encoding: Encoding) -> None:
    data, blocks = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_LINE_BYTES", 250)
        at_once = list(clean([data], encoding))
        assert list(clean(blocks, encoding)) == at_once
    assert not set(b"\0\r\x1b\n") & set(b"".join(line.text for line in at_once))
    numbers = [line.number for line in at_once]
    assert sorted(set(numbers)) == list(range(1, max(numbers, default=0) + 1))


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"])), max_size=20), st.sampled_from(sorted(UTF_16)))
def test_text_in_utf_16_is_the_same_text(texts: list[str], codec: str) -> None:
    whole = "".join(f"{text}\n" for text in texts)
    assert cleaned(whole.encode(codec), Encoding(codec)) == cleaned(whole.encode())


# ---- whose line it is

DATE = b"Wed Jun  1 12:20:31 2022"


@pytest.mark.parametrize(
    "prefix",
    [
        b"[1,0]<stdout>:",
        b"[1,0]<stderr>:",
        b"[12,0]<stddiag>:",
        DATE + b"[1,0]<stdout>:",
        b"Tue Jun 14 15:39:05 2022[1,0]<stdout>:",
        b"[1,0]<stdout>: ",
        b"[prterun-host-77@1,0]<stdout>: ",
        b"[1,0][node-1:4711]<stdout>: ",
        b"[0]<stdout>:",
        b"Wed Jun 01 12:20:31 2022[0]<stdout>:",
    ],
)
def test_rank_0s_prefix_is_taken_off(prefix: bytes) -> None:
    assert by_rank(prefix + b"DLL 1\n" + prefix + b"DLL 2\n") == [(1, 0, b"DLL 1"), (2, 0, b"DLL 2")]


@pytest.mark.parametrize(
    "lines",
    [
        b"plain\n",
        b"[0] hello\n",
        b"0: hello\n",
        b"[2022/06/01 12:20:31] ppcls INFO: x <stdout>:\n",
        b"[1,0] <stdout>: x\n",
        b"[1,0]<stdfoo>:x\n",
        b"[1,]<stdout>:x\n",
        b"[a b,0]<stdout>:x\n",
    ],
)
def test_what_is_no_prefix_for_certain_is_left(lines: bytes) -> None:
    assert by_rank(lines) == [(1, UNSAID, lines[:-1])]


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
        (b"[1,1]<stderr>:a[1,1]<stderr>:b[1,2]<stderr>:c\n", [(1, 1, b"ab"), (1, 2, b"c")]),
        (
            b"launcher\n[1,1]<stdout>:a\nsummary\n\n[1,0]<stdout>:b\nend\n",
            [(1, UNSAID, b"launcher"), (2, 1, b"a"), (3, UNSAID, b"summary"), (5, 0, b"b"), (6, UNSAID, b"end")],
        ),
        (b"[1,0]<stdout>: a[1,0]<stdout>: b\n", [(1, 0, b"a b")]),
        (DATE + b"\n[1,0]<stdout>:" + DATE + b" x\n", [(1, UNSAID, DATE), (2, 0, DATE + b" x")]),
        (b"[1,0]<stdout>:[1,0]<stdout>: a\n", [(1, 0, b"a")]),
    ],
    ids=["others", "pieces", "two ranks", "two others", "nobody's", "spaces", "a date", "twice"],
)
def test_a_line_is_divided_by_rank(data: bytes, found: list[tuple[int, int, bytes]]) -> None:
    assert by_rank(data) == found
