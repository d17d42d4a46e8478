"""Opening what a user names: plain and packed logs, pipes, and what is no log."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

import helpers.logs.source
from helpers.logs.source import STANDARD_INPUT, LogFile, open_log
from helpers.trainers.contract.errors import LogError

LOG = b"".join(b"step %d ips: %d.5\n" % (step, 300 + step % 7) for step in range(2000))
ZIP, TAR = io.BytesIO(), io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as packed, tarfile.open(fileobj=TAR, mode="w") as joined:
    packed.writestr("a.log", LOG)
    joined.add(__file__, "a.log")


def text_of(log: LogFile) -> bytes:
    return b"".join(line.text + b"\n" for line in log.lines())


def opened(path: Path, data: bytes) -> LogFile:
    path.write_bytes(data)
    return open_log(path)


@pytest.mark.parametrize(
    "data",
    [
        LOG,
        LOG.replace(b"\n", b"\r\n"),
        gzip.compress(LOG),
        gzip.compress(LOG[:99]) + gzip.compress(LOG[99:]) + b"\0" * 7,
    ],
    ids=["plain", "crlf", "gz", "gz of several members and padding"],
)
def test_a_log_is_read_by_its_content_as_often_as_needed(tmp_path: Path, data: bytes) -> None:
    log = opened(tmp_path / "a.log.gz", data)
    assert text_of(log) == text_of(log) == LOG
    assert log.name == (tmp_path / ("a.log" if data.startswith(b"\x1f\x8b") else "a.log.gz")).as_posix()


def test_the_hash_is_that_of_the_unpacked_bytes(tmp_path: Path) -> None:
    for name, data in (("a.log", LOG), ("a.gz", gzip.compress(LOG))):
        assert opened(tmp_path / name, data).sha256 == hashlib.sha256(LOG).hexdigest()


def test_a_log_in_gbk_is_text(tmp_path: Path) -> None:
    data = "训练日志 ips: 5\n".encode("gbk") * 100
    assert text_of(opened(tmp_path / "a.log", data)) == data


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (gzip.compress(b""), "empty"),
        (bytes(range(256)) * 10, "not text"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\1\0\x08\2\0\0\0", "not text"),
        (ZIP.getvalue(), "not text"),
        (gzip.compress(TAR.getvalue()), "not text"),
        (LOG.decode().encode("utf-16"), "not text"),
    ],
    ids=["empty", "empty gz", "any", "png", "zip", "tar.gz", "utf-16"],
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes, what: str) -> None:
    with pytest.raises(LogError) as error:
        opened(tmp_path / "a.log", data)
    assert error.value.got == what


@pytest.mark.parametrize(
    "damaged",
    [
        gzip.compress(LOG)[:-1],
        gzip.compress(os.urandom(20_000).hex().encode())[:-1000],
        gzip.compress(LOG) + b"garbage",
        gzip.compress(LOG)[:-6] + b"\0\0" + gzip.compress(LOG)[-4:],
    ],
    ids=["cut in its end", "cut", "something behind", "a wrong sum"],
)
def test_a_damaged_gz_is_an_error_and_no_shorter_log(tmp_path: Path, damaged: bytes) -> None:
    with pytest.raises(LogError, match="expected a file that can be read"):
        opened(tmp_path / "a.gz", damaged)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name in ("", "pipe", "loop", "socket", "missing"):
            with pytest.raises(LogError):
                open_log(tmp_path / name)
    with pytest.raises(LogError):
        open_log(Path("/dev/zero"))


@pytest.mark.parametrize("data", [LOG, gzip.compress(LOG)], ids=["plain", "gz"])
@pytest.mark.parametrize("name", ["-", "/dev/fd/{}"])
def test_a_pipe_is_read_as_often_as_needed(data: bytes, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(data)
    with os.fdopen(reading, "rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        log = open_log(Path(name.format(reading)))
        assert text_of(log) == text_of(log) == LOG


def test_more_bytes_than_a_log_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers.logs.source, "MOST_BYTES", len(LOG) - 1)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LOG)))
    (tmp_path / "log.gz").write_bytes(gzip.compress(LOG))
    (tmp_path / "log.txt").write_bytes(LOG)
    for path in (STANDARD_INPUT, tmp_path / "log.gz", tmp_path / "log.txt"):
        with pytest.raises(LogError, match="got 'more bytes', expected at most"):
            open_log(path)


def test_all_that_is_read_of_a_log_is_of_the_moment_it_was_opened(tmp_path: Path) -> None:
    log = opened(tmp_path / "a.log", LOG)
    (tmp_path / "a.log").write_bytes(b"another\n")
    (tmp_path / "latest").symlink_to("a.log")
    assert text_of(log) == LOG
    assert text_of(open_log(tmp_path / "latest")) == b"another\n"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log_nor_with_a_line(tmp_path: Path) -> None:
    def peak(data: bytes, times: int) -> int:
        log = opened(tmp_path / "a.log", data * times)
        tracemalloc.start()
        for _ in log.lines():
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(LOG, 40) < 2**20
    assert peak(b"x" * 2**20, 16) < 2**20
