"""Files that somebody else put there: every kind of them, and what a reader is told of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import helpers.machine.files
from helpers.machine.files import named_by_user, open_lock, open_regular, read_limited, read_text_limited
from tests.helpers.hostile_files import SPARSE_BYTES, UNREADABLE, in_time

MOST = 100


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    with in_time():
        yield


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_is_no_file_of_a_sane_size_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    make, told = UNREADABLE[kind]
    path = tmp_path / "result.json"
    make(path)
    with pytest.raises(OSError, match=told) as caught:
        read_limited(path, MOST)
    assert str(path) in str(caught.value)


def test_a_socket_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of a socket has at most 107 characters.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(OSError, match="a socket"):
            read_limited(Path("socket"), MOST)


def test_a_file_of_exactly_the_limit_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * MOST)
    assert read_limited(path, MOST) == b"x" * MOST
    path.write_bytes(b"x" * (MOST + 1))
    with pytest.raises(OSError, match=rf"{MOST + 1} bytes, expected at most {MOST}"):
        read_limited(path, MOST)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    unpatched = helpers.machine.files.open_regular

    def grown(path: Path, *, within: Path | None = None, most_bytes: int | None = None) -> object:
        file = unpatched(path, within=within, most_bytes=most_bytes)
        path.write_bytes(b"x" * (MOST + 1))
        return file

    monkeypatch.setattr(helpers.machine.files, "open_regular", grown)
    with pytest.raises(OSError, match=f"more, expected at most {MOST}"):
        read_limited(path, MOST)


def test_text_is_decoded_strictly(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfa")
    assert read_text_limited(path, MOST, encoding="utf-8-sig") == "a"
    path.write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_text_limited(path, MOST)


def test_a_folder_that_leads_out_is_refused_and_one_that_stays_within_is_not(tmp_path: Path) -> None:
    inside, outside = tmp_path / "runs" / "s1", tmp_path / "elsewhere"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "night.json").write_text("{}")
    (tmp_path / "runs" / "out").symlink_to(outside)
    (tmp_path / "runs" / "in").symlink_to(inside)
    within = tmp_path / "runs"
    with pytest.raises(OSError, match=f"a link that leads out of {within}"):
        read_limited(within / "out" / "night.json", MOST, within=within)
    assert read_limited(within / "in" / "night.json", MOST, within=within) == b"{}"
    assert read_limited(within / "out" / "night.json", MOST) == b"{}"


def test_the_folder_itself_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    assert read_limited(tmp_path / "linked" / "file", MOST, within=tmp_path / "linked") == b"x"


def test_a_file_of_another_user_is_refused_where_a_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    path.write_text("{}")
    owner = path.stat().st_uid
    # What this process and the folder's owner are is changed instead of the file: that needs no rights.
    monkeypatch.setattr(helpers.machine.files, "_ROOT_USER", owner + 1)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 2)
    assert read_limited(path, MOST, within=tmp_path) == b"{}"
    state = tmp_path.stat()
    of_another = os.stat_result((*state[:4], owner + 3, *state[5:]))
    monkeypatch.setattr(Path, "stat", lambda self, **_: of_another)
    with pytest.raises(OSError, match=f"a file of user {owner}, expected one of user {owner + 1}, {owner + 2}, "):
        read_limited(path, MOST, within=tmp_path)
    assert read_limited(path, MOST) == b"{}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_that_was_given_away_is_refused_where_a_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("{}")
    os.chown(path, 12345, -1)
    with pytest.raises(OSError, match="a file of user 12345, expected one of user 0"):
        read_limited(path, MOST, within=tmp_path)
    os.chown(tmp_path, 12345, -1)
    assert read_limited(path, MOST, within=tmp_path) == b"{}"


def test_where_the_kernel_does_not_tell_a_files_place_its_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_proc(self: Path) -> Path:
        raise OSError("no /proc")

    monkeypatch.setattr(Path, "readlink", no_proc)
    (tmp_path / "file").write_text("x")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "out").symlink_to(tmp_path)
    assert read_limited(tmp_path / "file", MOST, within=tmp_path) == b"x"
    with pytest.raises(OSError, match="leads out"):
        read_limited(tmp_path / "runs" / "out" / "file", MOST, within=tmp_path / "runs")


def test_a_file_that_is_replaced_meanwhile_still_lies_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    unpatched = os.open

    def replaced(name: str, flags: int, mode: int = 0o777) -> int:
        descriptor = unpatched(name, flags, mode)
        (tmp_path / "new").write_text("new")
        (tmp_path / "new").rename(path)
        return descriptor

    monkeypatch.setattr(os, "open", replaced)
    with open_regular(path, within=tmp_path) as file:
        assert file.read() == b"old"


def test_a_child_process_does_not_get_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with open_regular(tmp_path / "file") as file:
        assert not os.get_inheritable(file.fileno())


def test_what_a_user_names_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "linked").symlink_to("real")
    with pytest.raises(OSError, match="a symbolic link"):
        read_limited(tmp_path / "linked", MOST)
    assert read_limited(named_by_user(tmp_path / "linked"), MOST) == b"x"


def test_a_lock_is_made_and_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        os.close(open_lock(tmp_path / "lock"))
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "a FIFO"),
        (lambda path: path.symlink_to(path.with_name("other")), "Too many levels of symbolic links"),
        (Path.mkdir, "Is a directory"),
    ],
)
def test_a_lock_is_never_something_else(tmp_path: Path, make: Callable[[Path], object], told: str) -> None:
    make(tmp_path / "lock")
    with pytest.raises(OSError, match=told):
        open_lock(tmp_path / "lock")
    assert not (tmp_path / "other").exists()


def test_the_sparse_file_of_these_tests_is_larger_than_every_limit() -> None:
    limits = [value for name, value in vars(helpers.machine.files).items() if name.startswith("MOST_")]
    assert limits and max(limits) < SPARSE_BYTES
