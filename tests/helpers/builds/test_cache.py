"""The environments that are kept: complete or absent, in use or removable."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import helpers.builds.cache
from helpers.builds.cache import BuildCache
from helpers.builds.naming import BuildUnavailable, Why
from helpers.common.files import open_lock

DIGESTS = [f"{number:016x}" for number in range(1, 6)]
NOTE = {"source": "s", "framework": "paddle", "distribution": "paddlepaddle", "version": "3", "commit": ""}


def fill(folder: Path, lock: int, size: int = 0) -> Mapping[str, str]:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("#!/bin/sh\n")
    (folder / "bin" / "python").chmod(0o755)
    (folder / "lib").write_bytes(b"x" * size)
    return NOTE


def make(cache: BuildCache, digest: str, used: float, size: int = 1_000_000) -> None:
    cache.take(digest, "b", lambda folder, lock: fill(folder, lock, size))
    cache.release(digest)
    os.utime(cache.folder / f"{digest}.lock", (used, used))


def entries(cache: BuildCache) -> list[str]:
    return sorted(each.name for each in cache.folder.iterdir() if each.is_dir())


def test_what_is_used_longest_ago_goes_first_and_never_what_is_in_use(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, most_bytes=3_100_000)
    for used, digest in enumerate(DIGESTS[:3]):
        make(cache, digest, 1_000_000.0 + used)
    cache.take(DIGESTS[0], "b", fill)
    os.utime(cache.folder / f"{DIGESTS[0]}.lock", (1_000_000.0, 1_000_000.0))
    make(cache, DIGESTS[3], 2_000_000.0)
    assert entries(cache) == [DIGESTS[0], DIGESTS[2], DIGESTS[3]]
    assert [each.digest for each in cache.kept()] == [DIGESTS[3], DIGESTS[2], DIGESTS[0]]
    # Taking one is a use.
    cache.take(DIGESTS[2], "b", fill)
    assert cache.kept()[0].digest == DIGESTS[2]


def test_what_was_named_by_its_folder_is_in_use_too(tmp_path: Path) -> None:
    mine = BuildCache(tmp_path / "mine", most_bytes=1_500_000)
    make(mine, DIGESTS[0], 1_000_000.0)
    (tmp_path / "link").symlink_to(mine.folder / DIGESTS[0])
    with BuildCache(mine.folder) as session:
        session.hold("link", tmp_path / "link" / "bin" / "python")
        assert not mine.remove(DIGESTS[0])
        # It is used longest ago, and yet the other one goes, to make room for which there is no other.
        os.utime(mine.folder / f"{DIGESTS[0]}.lock", (1_000_000.0, 1_000_000.0))
        make(mine, DIGESTS[2], 2_000_000.0)
        make(mine, DIGESTS[3], 3_000_000.0)
        assert entries(mine) == [DIGESTS[0], DIGESTS[3]]
    assert mine.remove(DIGESTS[0])


def test_what_is_removed_while_it_is_waited_for_is_gone(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    make(cache, DIGESTS[0], 1.0)
    # Another session removes it just now.
    remover = open_lock(tmp_path / f"{DIGESTS[0]}.lock")
    fcntl.flock(remover, fcntl.LOCK_EX)

    def removed(text: str) -> None:
        shutil.rmtree(tmp_path / DIGESTS[0])
        os.close(remover)

    with pytest.raises(BuildUnavailable, match="removed it meanwhile"):
        cache.hold("b", tmp_path / DIGESTS[0] / "bin" / "python", removed)


def test_a_maker_that_hangs_is_waited_for_some_hours_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BuildCache(tmp_path)
    make(cache, DIGESTS[0], 1.0)
    maker = open_lock(tmp_path / f"{DIGESTS[0]}.lock")
    fcntl.flock(maker, fcntl.LOCK_EX)
    assert helpers.builds.cache._MOST_WAIT_SECONDS <= 4 * 3600
    monkeypatch.setattr(helpers.builds.cache, "_MOST_WAIT_SECONDS", 0.0)
    told: list[str] = []
    with pytest.raises(BuildUnavailable, match=r"another process holds it for 0 s.*fuser"):
        BuildCache(tmp_path).take(DIGESTS[0], "b", fill, told.append)
    assert told == ["waiting for another session that makes b"]
    os.close(maker)


def test_a_file_that_several_share_counts_once(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "builds", most_bytes=2_500_000)
    shared = tmp_path / "shared"
    shared.write_bytes(b"x" * 2_000_000)

    def linked(folder: Path, lock: int) -> Mapping[str, str]:
        note = fill(folder, lock)
        os.link(shared, folder / "big")
        return note

    for digest in DIGESTS:
        cache.take(digest, "b", linked)
        cache.release(digest)
    assert entries(cache) == DIGESTS
    assert all(each.own_size < 100_000 < each.size for each in cache.kept())


def test_what_cannot_be_filled_is_not_there(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)

    def full(folder: Path, lock: int) -> Mapping[str, str]:
        fill(folder, lock)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(BuildUnavailable) as caught:
        cache.take(DIGESTS[0], "b", full)
    assert caught.value.kind is Why.NO_SPACE
    assert entries(cache) == []
    with pytest.raises(KeyboardInterrupt):
        cache.take(DIGESTS[0], "b", lambda folder, lock: (_ for _ in ()).throw(KeyboardInterrupt))
    assert entries(cache) == []
    make(cache, DIGESTS[0], 1.0)
    assert entries(cache) == DIGESTS[:1]


def test_what_a_killed_maker_left_goes_with_the_next_one(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    make(cache, DIGESTS[0], 1.0)
    for left in (f".making-{DIGESTS[0]}-1", f".making-{DIGESTS[1]}-2", f".removing-{DIGESTS[2]}-3"):
        (tmp_path / left / "bin").mkdir(parents=True)
    # An environment without its note was never finished.
    (tmp_path / DIGESTS[3] / "bin").mkdir(parents=True)
    assert len(cache.kept()) == 1
    make(cache, DIGESTS[3], 2.0)
    assert entries(cache) == [DIGESTS[0], DIGESTS[3]]


@pytest.mark.parametrize("note", ["", "{", "[]", '{"schema": 1}', '{"schema": "2"}'])
def test_an_environment_with_a_damaged_note_is_none(tmp_path: Path, note: str) -> None:
    cache = BuildCache(tmp_path)
    make(cache, DIGESTS[0], 1.0)
    (tmp_path / DIGESTS[0] / ".perfgate-build.json").write_text(note)
    assert cache.kept() == []


def test_answers_are_kept_and_a_damaged_one_is_asked_again(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    assert cache.read_answer("q") is None
    cache.keep_answer("q", {"locked": "a==1"})
    assert cache.read_answer("q") == {"locked": "a==1"}
    (tmp_path / "answers" / "q.json").write_text("[")
    assert cache.read_answer("q") is None
