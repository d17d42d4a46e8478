"""Cleaning a log's bytes: each quirk by example, and no dependence on where blocks were divided."""

from __future__ import annotations

import codecs
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.logs.record import Line
from helpers.logs.sources.clean import AS_IT_IS, Chunk, Encoding, by_rank, clean, line_text

UTF_16 = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}


def divided_by_rank(lines: bytes) -> Chunk:
    return by_rank(Chunk(lines, 1))


def cleaned(data: bytes, encoding: Encoding = AS_IT_IS) -> bytes:
    return b"".join(chunk.data for chunk in clean([data], encoding))


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
    chunks = list(clean(["ips: 12\nen".encode("utf-16-le")[:-1]], Encoding("utf-16-le")))
    assert b"".join(chunk.data for chunk in chunks) == "ips: 12\ne\ufffd\n".encode()
    assert chunks[-1].cut


def test_the_last_chunk_says_so_and_whether_its_line_has_an_end() -> None:
    whole, cut = list(clean([b"a\n", b"b\n"], AS_IT_IS)), list(clean([b"a\nb"], AS_IT_IS))
    assert [(chunk.data, chunk.last, chunk.cut) for chunk in whole] == [(b"a\n", False, False), (b"b\n", True, False)]
    assert [(chunk.data, chunk.last, chunk.cut) for chunk in cut] == [(b"a\n", False, False), (b"b\n", True, True)]


def test_of_nothing_but_nul_there_is_no_chunk() -> None:
    assert list(clean([b"\0" * 100, b""], AS_IT_IS)) == []


def test_a_line_that_is_too_long_is_emptied_and_told() -> None:
    (chunk,) = clean([b"y" * 250 + b"\ntwo\n" + b"x" * 251 + b"\nfour\n"], AS_IT_IS, 250)
    assert chunk.data == b"y" * 250 + b"\ntwo\n\nfour\n"
    assert chunk.too_long == (Line(3, "x" * 200),)


def test_a_line_without_end_is_not_kept() -> None:
    held = 0

    def blocks() -> object:
        nonlocal held
        yield b"one\n"
        for _ in range(1000):
            held += 1
            yield b"x" * 1000
        yield b"\nthree"

    chunks = list(clean(blocks(), AS_IT_IS, 2500))  # type: ignore[arg-type]
    assert held == 1000
    assert [(chunk.first_line, chunk.data) for chunk in chunks] == [(1, b"one\n"), (2, b"\n"), (3, b"three\n")]
    assert [chunk.too_long for chunk in chunks] == [(), (Line(2, "x" * 200),), ()]


def test_ranks_are_divided_and_line_numbers_hold() -> None:
    (chunk,) = clean([b"[1,0]<stdout>:a\n[1,3]<stdout>:b\n[1,0]<stderr>:c\nd\n"], AS_IT_IS)
    assert (chunk.data, chunk.other_ranks, chunk.ranks) == (b"a\n\nc\nd\n", b"b\n", frozenset({0, 3}))


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


class Joined(NamedTuple):
    """What all chunks hold together; ``others`` and ``named`` with line numbers of the log."""

    data: bytes
    others: list[tuple[int, bytes]]
    ranks: frozenset[int]
    named: list[tuple[int, int]]
    cut: bool
    too_long: list[Line]


def joined(chunks: list[Chunk]) -> Joined:
    """All chunks in one; each is checked against those before it."""
    found = Joined(b"", [], frozenset(), [], chunks[-1].cut if chunks else False, [])
    number = 1
    for chunk in chunks:
        assert chunk.first_line == number
        assert chunk.data.endswith(b"\n")
        assert chunk.last is (chunk is chunks[-1])
        assert chunk.last or not chunk.cut
        texts = chunk.other_ranks.split(b"\n")
        assert texts.pop() == b""
        found.others.extend((number + at, text) for at, text in zip(chunk.others_lines, texts, strict=True))
        found.named.extend((number + at, rank) for at, rank in chunk.rank_lines)
        found.too_long.extend(chunk.too_long)
        found = found._replace(data=found.data + chunk.data, ranks=found.ranks | chunk.ranks)
        number += chunk.data.count(b"\n")
    return found


@settings(deadline=None)
@given(divided())
@example((b"a\r\nb", [b"a\r", b"", b"\0", b"\nb"]))
@example((b"x" * 251 + b"\n", [b"x" * 100] * 2 + [b"x" * 51, b"\n"]))
@example((b"x" * 250 + b"\r\n", [b"x" * 250, b"\r", b"\n"]))
def test_cleaning_by_blocks_equals_cleaning_at_once(drawn: tuple[bytes, list[bytes]]) -> None:
    data, blocks = drawn
    at_once, by_blocks = joined(list(clean([data], AS_IT_IS, 250))), joined(list(clean(blocks, AS_IT_IS, 250)))
    assert by_blocks == at_once
    assert not set(b"\0\r\x1b") & set(b"".join([at_once.data, *(text for _, text in at_once.others)]))
    assert {rank for _, rank in at_once.named} == at_once.ranks - {0}
    ends = data.replace(b"\0", b"").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert at_once.data.count(b"\n") == ends.count(b"\n") + (ends != b"" and not ends.endswith(b"\n"))


@settings(deadline=None)
@given(divided(), st.sampled_from(sorted(UTF_16)), st.integers(0, 2))
def test_so_it_does_in_utf_16(drawn: tuple[bytes, list[bytes]], codec: str, mark: int) -> None:
    data, blocks = drawn
    encoding = Encoding(codec, mark)
    assert joined(list(clean(blocks, encoding, 250))) == joined(list(clean([data], encoding, 250)))


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
    assert divided_by_rank(prefix + b"DLL 1\n" + prefix + b"DLL 2\n") == Chunk(
        b"DLL 1\nDLL 2\n", 1, b"", frozenset({0})
    )


def test_other_ranks_lines_are_emptied_and_their_text_kept() -> None:
    lines = b"[1,0]<stdout>:a\n" + DATE + b"[1,1]<stdout>:b\n[1,10]<stderr>:c\n[1,0]<stdout>:d\n"
    assert divided_by_rank(lines) == Chunk(b"a\n\n\nd\n", 1, b"b\nc\n", frozenset({0, 1, 10}))


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
    assert divided_by_rank(lines) == Chunk(lines, 1)


def test_a_line_that_was_written_in_pieces_is_joined() -> None:
    lines = (
        b"[1,0]<stderr>:[[1,0]<stderr>:11:02:53] storage.cc[1,0]<stderr>::199[1,0]<stderr>: Using CPU[1,0]<stderr>:\n"
    )
    assert divided_by_rank(lines) == Chunk(b"[11:02:53] storage.cc:199 Using CPU\n", 1, b"", frozenset({0}))


def test_a_line_that_two_ranks_wrote_is_divided() -> None:
    lines = b"[1,0]<stdout>:total_ips[1,3]<stderr>:warn[1,0]<stdout>: : 5\n[1,3]<stderr>:ing\n"
    assert divided_by_rank(lines) == Chunk(b"total_ips : 5\n\n", 1, b"warn\ning\n", frozenset({0, 3}))


def test_pieces_of_two_other_ranks_are_two_lines() -> None:
    lines = b"[1,1]<stderr>:a[1,1]<stderr>:b[1,2]<stderr>:c\n"
    assert divided_by_rank(lines) == Chunk(b"\n", 1, b"ab\nc\n", frozenset({1, 2}))


def test_lines_without_a_prefix_are_nobodys_and_stay() -> None:
    lines = b"launcher\n[1,1]<stdout>:a\nsummary\n\n[1,0]<stdout>:b\nend\n"
    assert divided_by_rank(lines) == Chunk(b"launcher\n\nsummary\n\nb\nend\n", 1, b"a\n", frozenset({0, 1}))


def test_a_piece_keeps_its_own_space() -> None:
    assert divided_by_rank(b"[1,0]<stdout>: a[1,0]<stdout>: b\n") == Chunk(b"a b\n", 1, b"", frozenset({0}))


def test_a_date_that_is_a_lines_text_stays() -> None:
    assert divided_by_rank(DATE + b"\n[1,0]<stdout>:" + DATE + b" x\n") == Chunk(
        DATE + b"\n" + DATE + b" x\n", 1, b"", frozenset({0})
    )


def test_it_is_told_in_which_line_the_others_wrote() -> None:
    lines = b"launcher\n[1,0]<stdout>:a\n[1,3]<stderr>:b[1,3]<stderr>:c[1,2]<stderr>:d\n\n[1,2]<stdout>:e\nx\n"
    found = divided_by_rank(lines + b"[1,4]<stdout>:f[1,0]<stdout>:g\n")
    assert found.other_ranks == b"bc\nd\ne\nf\n"
    assert found.others_lines == (2, 2, 4, 6)
    assert found.rank_lines == ((2, 3), (2, 3), (2, 2), (4, 2), (6, 4))


@pytest.mark.parametrize(
    "lines",
    [
        b"[1,0]<stdout>:a\n[1,0]<stdout>:b\n",
        b"[1,0]<stdout>:a[1,0]<stdout>:b\n[1,0]<stdout>:c\n",
        b"[1,0]<stdout>:[1,0]<stdout>:a\n[1,0]<stdout>:b\n",
        b"[1,0]<stdout>: a\n[1,0]<stdout>:b\n",
        b"[1,3]<stdout>:a\n[1,0]<stdout>:b\n[1,3]<stdout>:c[1,0]<stdout>:d\n",
        b"[1,3]<stdout>:a\n[1,0]<stdout>:b\n[1,3]<stdout>:c\nlauncher\n[1,0]<stdout>:[1,2]<stderr>:e\n",
        b"[1,0]<stdout>:a\n" + DATE + b"[1,0]<stdout>:b\n[1,0]<stderr>:c\n",
        b"[1,0]<stdout>:" + DATE + b"[1,2]<stdout>:b\n[1,0]<stdout>:c\n",
        b"[1,0]<stdout>:a\n[5][1,0]<stdout>:b\n[1,0]<stdout>:c\n",
        b"[1,0]<stdout>:a\n[1,0]<stdout>:",
    ],
)
def test_taking_the_most_frequent_prefix_first_changes_nothing(lines: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    found = divided_by_rank(lines)
    monkeypatch.setattr("helpers.logs.sources.clean._without_first_ranks", lambda lines: (lines, frozenset()))
    slow = divided_by_rank(lines)
    assert (found, found.rank_lines, found.others_lines) == (slow, slow.rank_lines, slow.others_lines)
