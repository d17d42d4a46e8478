"""Opening a log: what is refused, hashes, and files that change while they are read."""

from __future__ import annotations

import codecs
import hashlib
import os
import socket
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from helpers.logs.sources.source import LogFile, open_logs
from helpers.trainers.contract.errors import LogError

LOG = b"DLL 1\nDLL 2\n"


def opened(path: Path, data: bytes) -> LogFile:
    path.write_bytes(data)
    (log,) = open_logs(path)
    return log


def text_of(log: LogFile) -> bytes:
    return b"".join(chunk.data for chunk in log.chunks())


@pytest.mark.parametrize(
    "data",
    [
        LOG,
        b"\0" * 5 + LOG,
        b"\0" * (2**21 + 1) + LOG,
        codecs.BOM_UTF8 + LOG,
        codecs.BOM_UTF16_LE + LOG.decode().encode("utf-16-le"),
        codecs.BOM_UTF16_BE + LOG.decode().encode("utf-16-be"),
        LOG.decode().encode("utf-16-le"),
        LOG.decode().encode("utf-16-be"),
        LOG.replace(b"\n", b"\r\n"),
    ],
    ids=["plain", "nul", "hole", "utf-8-mark", "utf-16-le-mark", "utf-16-be-mark", "utf-16-le", "utf-16-be", "crlf"],
)
def test_a_log_is_read_in_whatever_code(tmp_path: Path, data: bytes) -> None:
    log = opened(tmp_path / "a.log", data)
    assert text_of(log) == LOG
    assert text_of(log) == LOG, "a second time"
    assert log.sha256() == hashlib.sha256(data).hexdigest()


def test_a_log_in_gbk_is_text(tmp_path: Path) -> None:
    data = "训练日志 ips: 5\n".encode("gbk") * 100
    assert text_of(opened(tmp_path / "a.log", data)) == data


def test_a_name_is_the_path_without_gz(tmp_path: Path) -> None:
    log = opened(tmp_path / "a.log", LOG)
    assert (log.source, log.name, repr(log)) == (str(tmp_path / "a.log"),) * 2 + (f"LogFile('{tmp_path}/a.log')",)


def test_the_hash_is_the_same_before_and_after_reading(tmp_path: Path) -> None:
    before = opened(tmp_path / "a.log", LOG).sha256()
    log = opened(tmp_path / "a.log", LOG)
    next(log.chunks())
    assert list(log.chunks())
    (tmp_path / "a.log").unlink()
    assert log.sha256() == before == hashlib.sha256(LOG).hexdigest()


def test_of_a_log_that_was_read_in_part_the_hash_is_of_the_whole(tmp_path: Path) -> None:
    data = LOG * 200_000
    log = opened(tmp_path / "a.log", data)
    next(log.chunks())
    assert log.sha256() == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("data", [b"", b"\0" * 100], ids=["no byte", "only nul"])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(LogError, match=r"a\.log: got 'empty', expected at least one line"):
        opened(tmp_path / "a.log", data)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (bytes(range(256)) * 10, "not text"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\1\0\x08\2\0\0\0", "not text"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\3\0>\0\1", "not text"),
        (b"BZh91AY&SY", "a bzip2 file"),
        (b"\xfd7zXZ\0\0", "an xz file"),
        (b"\x28\xb5\x2f\xfd\0", "a zstandard file"),
    ],
    ids=["any", "png", "elf", "bz2", "xz", "zstd"],
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes, what: str) -> None:
    with pytest.raises(LogError, match=rf"a\.log: got '{what}', expected a training log"):
        opened(tmp_path / "a.log", data)


def test_a_tar_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    for mode in ("w", "w:gz"):
        with tarfile.open(tmp_path / "logs.tar", mode) as made:
            made.add(tmp_path / "a.log")
        with pytest.raises(LogError, match=r"got 'a tar archive'.* Unpack it and give the log itself"):
            open_logs(tmp_path / "logs.tar")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for path in (tmp_path, tmp_path / "pipe", tmp_path / "loop", tmp_path / "socket", Path("/dev/zero")):
            with pytest.raises(LogError, match="expected a file that can be read"):
                open_logs(path)
    with pytest.raises(LogError, match=r"missing: got 'No such file or directory'"):
        open_logs(tmp_path / "missing")


def test_a_link_to_a_log_is_followed(tmp_path: Path) -> None:
    opened(tmp_path / "a.log", LOG)
    (tmp_path / "latest").symlink_to("a.log")
    (log,) = open_logs(tmp_path / "latest")
    assert (text_of(log), log.source) == (LOG, str(tmp_path / "latest"))


# ---- files that change


def test_a_log_that_grows_after_it_was_opened_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path / "a.log", LOG * 200_000)
    with (tmp_path / "a.log").open("ab") as file:
        file.write(b"more\n")
    for reading in (lambda: next(log.chunks()), log.sha256):
        with pytest.raises(
            LogError, match="got '2400005 bytes after 2400000: it is written or replaced while it is read'"
        ):
            reading()


def test_a_log_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path / "a.log", LOG * 200_000)
    chunks = log.chunks()
    next(chunks)
    with (tmp_path / "a.log").open("ab") as file:
        file.write(b"more\n")
    with pytest.raises(LogError, match="Wait until the training has ended, or give a copy"):
        list(chunks)


def test_a_log_that_was_replaced_or_vanished_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path / "a.log", LOG)
    (tmp_path / "b.log").write_bytes(LOG)
    (tmp_path / "b.log").replace(tmp_path / "a.log")
    with pytest.raises(LogError, match="it is written or replaced"):
        text_of(log)
    (tmp_path / "a.log").unlink()
    with pytest.raises(LogError, match="No such file"):
        text_of(log)


# ---- memory


def test_memory_does_not_grow_with_the_log_nor_with_a_line(tmp_path: Path) -> None:
    def peak(data: bytes, times: int) -> int:
        with (tmp_path / "a.log").open("wb") as file:
            for _ in range(times):
                file.write(data)
        (log,) = open_logs(tmp_path / "a.log")
        tracemalloc.start()
        for _ in log.chunks():
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    lines, no_line = LOG * 90_000, b"x" * 2**20
    assert peak(lines, 32) < 1.5 * peak(lines, 4) < 2**24
    assert peak(no_line, 32) < 2**24
