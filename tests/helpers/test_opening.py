"""Files that somebody else put there: every kind of them, and what a reader is told of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.common.files import named_by_user, open_lock, open_regular, read_limited
from tests.helpers.hostile_files import UNREADABLE, in_time

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


def test_a_file_of_exactly_the_limit_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * MOST)
    assert read_limited(path, MOST) == b"x" * MOST
    path.write_bytes(b"x" * (MOST + 1))
    with pytest.raises(OSError, match=rf"{MOST + 1} bytes, expected at most {MOST}"):
        read_limited(path, MOST)


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_that_was_given_away_is_refused_where_a_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("{}")
    os.chown(path, 12345, -1)
    with pytest.raises(OSError, match="a file of user 12345, expected one of user 0"):
        read_limited(path, MOST, within=tmp_path)
    os.chown(tmp_path, 12345, -1)
    assert read_limited(path, MOST, within=tmp_path) == b"{}"


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
