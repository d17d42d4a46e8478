"""Whose line it is: mpirun's prefixes as they really are."""

from __future__ import annotations

import pytest

from helpers.logs.sources.clean import LinesByRank, by_rank

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
    assert by_rank(prefix + b"DLL 1\n" + prefix + b"DLL 2\n") == LinesByRank(b"DLL 1\nDLL 2\n", b"", frozenset({0}))


def test_other_ranks_lines_are_emptied_and_their_text_kept() -> None:
    lines = b"[1,0]<stdout>:a\n" + DATE + b"[1,1]<stdout>:b\n[1,10]<stderr>:c\n[1,0]<stdout>:d\n"
    assert by_rank(lines) == LinesByRank(b"a\n\n\nd\n", b"b\nc\n", frozenset({0, 1, 10}))


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
    assert by_rank(lines) is None


def test_a_line_that_was_written_in_pieces_is_joined() -> None:
    lines = (
        b"[1,0]<stderr>:[[1,0]<stderr>:11:02:53] storage.cc[1,0]<stderr>::199[1,0]<stderr>: Using CPU[1,0]<stderr>:\n"
    )
    assert by_rank(lines) == LinesByRank(b"[11:02:53] storage.cc:199 Using CPU\n", b"", frozenset({0}))


def test_a_line_that_two_ranks_wrote_is_divided() -> None:
    lines = b"[1,0]<stdout>:total_ips[1,3]<stderr>:warn[1,0]<stdout>: : 5\n[1,3]<stderr>:ing\n"
    assert by_rank(lines) == LinesByRank(b"total_ips : 5\n\n", b"warn\ning\n", frozenset({0, 3}))


def test_pieces_of_two_other_ranks_are_two_lines() -> None:
    lines = b"[1,1]<stderr>:a[1,1]<stderr>:b[1,2]<stderr>:c\n"
    assert by_rank(lines) == LinesByRank(b"\n", b"ab\nc\n", frozenset({1, 2}))


def test_lines_without_a_prefix_are_nobodys_and_stay() -> None:
    lines = b"launcher\n[1,1]<stdout>:a\nsummary\n\n[1,0]<stdout>:b\nend\n"
    assert by_rank(lines) == LinesByRank(b"launcher\n\nsummary\n\nb\nend\n", b"a\n", frozenset({0, 1}))


def test_a_piece_keeps_its_own_space() -> None:
    assert by_rank(b"[1,0]<stdout>: a[1,0]<stdout>: b\n") == LinesByRank(b"a b\n", b"", frozenset({0}))


def test_a_date_that_is_a_lines_text_stays() -> None:
    assert by_rank(DATE + b"\n[1,0]<stdout>:" + DATE + b" x\n") == LinesByRank(
        DATE + b"\n" + DATE + b" x\n", b"", frozenset({0})
    )


def test_it_is_told_in_which_line_the_others_wrote() -> None:
    lines = b"launcher\n[1,0]<stdout>:a\n[1,3]<stderr>:b[1,3]<stderr>:c[1,2]<stderr>:d\n\n[1,2]<stdout>:e\nx\n"
    found = by_rank(lines + b"[1,4]<stdout>:f[1,0]<stdout>:g\n")
    assert found is not None
    assert found.others == b"bc\nd\ne\nf\n"
    assert found.others_at == (2, 2, 4, 6)
    assert found.at == ((2, 3), (2, 3), (2, 2), (4, 2), (6, 4))


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
    found = by_rank(lines)
    monkeypatch.setattr("helpers.logs.sources.clean._without_first_ranks", lambda lines: (lines, frozenset()))
    slow = by_rank(lines)
    assert found is not None and slow is not None
    assert (found, found.at, found.others_at) == (slow, slow.at, slow.others_at)
