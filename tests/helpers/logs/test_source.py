"""Opening a log: what is refused, hashes, and files that change while they are read."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import os
import socket
import tarfile
import tracemalloc
from pathlib import Path

import pytest

import helpers.logs.source
from helpers.logs.source import STANDARD_INPUT, LogFile, open_logs
from helpers.trainers.contract.errors import LogError

LOG = b"DLL 1\nDLL 2\n"


def logs_of(path: Path) -> tuple[LogFile, ...]:
    return open_logs(path).logs


def opened(path: Path, data: bytes) -> LogFile:
    path.write_bytes(data)
    (log,) = logs_of(path)
    return log


def text_of(log: LogFile) -> bytes:
    return b"".join(line.text + b"\n" for line in log.lines())


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
    assert log.sha256 == hashlib.sha256(data).hexdigest()


def test_a_log_in_gbk_is_text(tmp_path: Path) -> None:
    data = "训练日志 ips: 5\n".encode("gbk") * 100
    assert text_of(opened(tmp_path / "a.log", data)) == data


@pytest.mark.parametrize("data", [b"", b"\0" * 100], ids=["no byte", "only nul"])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(LogError, match=r"a\.log: got 'empty'"):
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
        with pytest.raises(LogError, match=r"got 'a tar archive'"):
            open_logs(tmp_path / "logs.tar")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        # Nobody writes to the pipe, which is not waited for.
        for path in (tmp_path, tmp_path / "pipe", tmp_path / "loop", tmp_path / "socket", Path("/dev/zero")):
            with pytest.raises(LogError):
                open_logs(path)
    with pytest.raises(LogError, match=r"missing: got 'No such file or directory'"):
        open_logs(tmp_path / "missing")


@pytest.mark.parametrize("data", [LOG, gzip.compress(LOG)], ids=["plain", "gz"])
@pytest.mark.parametrize("name", ["-", "/dev/fd/{}"])
def test_a_pipe_is_read_as_often_as_needed(data: bytes, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(data)
    with os.fdopen(reading, "rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        (log,) = logs_of(Path(name.format(reading)))
        assert text_of(log) == text_of(log) == LOG
        assert log.sha256 == hashlib.sha256(LOG).hexdigest()


def test_more_bytes_than_a_log_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers.logs.source, "MOST_BYTES", len(LOG) - 1)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LOG)))
    (tmp_path / "log.gz").write_bytes(gzip.compress(LOG))
    (tmp_path / "log.txt").write_bytes(LOG)
    for path in (STANDARD_INPUT, tmp_path / "log.gz", tmp_path / "log.txt"):
        with pytest.raises(LogError, match="got 'more bytes', expected at most"):
            open_logs(path)


def test_a_link_to_a_log_is_followed(tmp_path: Path) -> None:
    opened(tmp_path / "a.log", LOG)
    (tmp_path / "latest").symlink_to("a.log")
    (log,) = logs_of(tmp_path / "latest")
    assert (text_of(log), log.source) == (LOG, str(tmp_path / "latest"))


# ---- files that change


def test_all_that_is_read_of_a_log_is_of_the_moment_it_was_opened(tmp_path: Path) -> None:
    log = opened(tmp_path / "a.log", LOG)
    lines = log.lines()
    next(lines)
    (tmp_path / "a.log").write_bytes(b"another\n")
    assert [line.text for line in lines] == [b"DLL 2"]
    assert (text_of(log), log.sha256) == (LOG, hashlib.sha256(LOG).hexdigest())


# ---- memory


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log_nor_with_a_line(tmp_path: Path) -> None:
    def peak(data: bytes, times: int) -> int:
        with (tmp_path / "a.log").open("wb") as file:
            for _ in range(times):
                file.write(data)
        (log,) = logs_of(tmp_path / "a.log")
        tracemalloc.start()
        for _ in log.lines():
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    lines, no_line = LOG * 9_000, b"x" * 2**20
    assert peak(lines, 40) < 1.5 * peak(lines, 20) < 2**26
    assert peak(no_line, 32) < 2**25
