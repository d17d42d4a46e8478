from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.launch.nodes.wire import FrameReader, boot_id, encode, suite_digest
from helpers.trainers.contract.errors import LaunchError


@given(st.lists(st.binary(), max_size=5), st.integers(1, 40))
def test_any_bytes_arrive_as_they_were_however_they_are_cut(chunks: list[bytes], cut: int) -> None:
    stream = b"".join(encode("file", name="rank1.jsonl", data=b64encode(chunk).decode()) for chunk in chunks)
    reader = FrameReader("node n1")
    frames = [frame for at in range(0, len(stream), cut) for frame in reader.feed(stream[at : at + cut])]
    assert [b64decode(frame["data"]) for frame in frames] == chunks


def test_what_a_log_in_shell_prints_is_no_frame_and_is_kept() -> None:
    reader = FrameReader("node n1")
    frames = reader.feed(b"Welcome!\n$ " + encode("gone", rank=1) + b"\xff\n")
    assert frames == [{"kind": "gone", "rank": 1}]
    assert list(reader.chatter) == ["Welcome!", "$", "�"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"3", b"[" * 100_000, b'{"kind": 3}', b'{"kind": ["file"]}', b'{"kind": "surprise"}',
        b'{"kind": "alive", "more": 1}', b'{"kind": "gone"}', b'{"kind": "gone", "rank": true}',
        b'{"kind": "gone", "rank": NaN}', b'{"kind": "file", "name": "rank1.jsonl", "data": null}',
        b'{"kind": "ready", "facts": {"driver": 5}, "host_id": "0", "card_ids": [], "flags": []}',
        b'{"kind": "ready", "facts": {}, "host_id": "0", "card_ids": [1], "flags": []}',
    ],
)  # fmt: skip
def test_a_marked_line_that_is_no_frame_is_an_error(body: bytes) -> None:
    with pytest.raises(LaunchError, match=r"node n1: .*expected "):
        FrameReader("node n1").feed(b"perfgate-node " + body + b"\n")


def test_the_greeting_of_another_checkout_may_hold_more() -> None:
    hello = {"protocol": 99, "suite": "x", "boot_id": "y", "host": "h", "pid": 1, "news": []}
    assert FrameReader("node n1").feed(encode("hello", **hello)) == [{"kind": "hello", **hello}]


def test_a_line_without_end_is_an_error() -> None:
    reader = FrameReader("node n1")
    with pytest.raises(LaunchError, match="a line of over"):
        for _ in range(9):
            reader.feed(b"x" * 1024 * 1024)


def test_a_number_that_is_none_is_not_sent() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode("over", code=float("nan"))


def test_the_digest_changes_with_a_files_name_and_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    first = suite_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("no code")
    assert suite_digest(tmp_path) == first
    (tmp_path / "a.py").write_text("x = 2")
    second = suite_digest(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, suite_digest(tmp_path)}) == 3


def test_the_running_machine_has_one_name(tmp_path: Path) -> None:
    assert boot_id() == boot_id()
    folder = tmp_path / "sys/kernel/random"
    folder.mkdir(parents=True)
    (folder / "boot_id").write_text("abc\n")
    assert boot_id(tmp_path) == "abc"
