"""Packed logs: gz and zip, whole, damaged and hostile."""

from __future__ import annotations

import gzip
import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from helpers.logs import source
from helpers.logs.source import LogFile, open_logs
from helpers.trainers.contract.errors import LogError

LOG = b"".join(b"step %d ips: %d.5\n" % (step, 300 + step % 7) for step in range(2000))


def text_of(log: LogFile) -> bytes:
    return b"".join(line.text + b"\n" for line in log.lines())


def read(path: Path) -> bytes:
    (log,) = open_logs(path).logs
    return text_of(log)


def packed(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as made:
        for name, data in members:
            made.writestr(name, data, method)
    return path


def unix(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return info


# ---- gzip


def test_a_gz_is_read_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "paddle_gpu8.log"
    path.write_bytes(gzip.compress(LOG))
    assert read(path) == LOG


def test_a_gz_of_several_members_and_padding_is_one_log(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(LOG) + gzip.compress(b"") + b"\0" * 512 + gzip.compress(b"end\n") + b"\0" * 7)
    assert read(path) == LOG + b"end\n"


@pytest.mark.parametrize("left_out", [1, 1000])
def test_a_cut_gz_is_an_error_and_no_shorter_log(tmp_path: Path, left_out: int) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(os.urandom(200_000).hex().encode() + b"\n" + LOG)[:-left_out])
    with pytest.raises(LogError, match=r"log\.gz: got 'damaged: "):
        read(path)


@pytest.mark.parametrize("damage", [b"garbage", b"\x1f\x8b\x08"], ids=["garbage", "a second one cut"])
def test_a_gz_with_something_else_behind_is_an_error(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(LOG) + damage)
    with pytest.raises(LogError, match="damaged"):
        read(path)


def test_a_gz_whose_sum_is_wrong_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    whole = bytearray(gzip.compress(LOG))
    whole[-6] ^= 1
    path.write_bytes(whole)
    with pytest.raises(LogError, match=r"damaged: CRC check"):
        read(path)


# ---- zip


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_logs_of_a_zip_are_read(tmp_path: Path, method: int) -> None:
    path = packed(tmp_path / "ngc.zip", ("1n1g/b128_1.log", LOG), ("1n8g/workerlog.0", b"8 cards\n"), method=method)
    first, second = open_logs(path).logs
    assert (first.source, first.name) == (f"{path}!1n1g/b128_1.log", f"{path}!1n1g/b128_1.log")
    assert (text_of(first), text_of(second)) == (LOG, b"8 cards\n")


def test_members_that_are_no_logs_are_skipped_and_listed(tmp_path: Path) -> None:
    path = packed(
        tmp_path / "ngc.zip",
        ("logs/", b""),
        ("logs/a.log", LOG),
        ("logs/result.json", b"{}"),
        ("logs/CURVE.PNG", b"\x89PNG"),
        ("logs/empty.log", b""),
        ("logs/nul.log", b"\0" * 9),
        ("logs/events.out", bytes(range(32)) * 20),
        ("__MACOSX/logs/._a.log", b"x"),
        ("logs/.DS_Store", b"x"),
    )
    logs = open_logs(path)
    assert [log.name for log in logs.logs] == [f"{path}!logs/a.log"]
    assert logs.skipped == (
        ("logs/", "a folder"),
        ("logs/result.json", ".json is no log"),
        ("logs/CURVE.PNG", ".PNG is no log"),
        ("logs/empty.log", "empty"),
        ("logs/nul.log", "empty"),
        ("logs/events.out", "not text"),
        ("__MACOSX/logs/._a.log", "a program's own file"),
        ("logs/.DS_Store", "a program's own file"),
    )


def test_a_zip_without_a_log_says_what_is_in_it(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", *((f"{n}.json", b"{}") for n in range(7)))
    with pytest.raises(LogError, match=r"got '0\.json \(\.json is no log\), .*', expected a log in it"):
        open_logs(path)
    with pytest.raises(LogError, match="got 'empty'"):
        open_logs(packed(tmp_path / "y.zip"))


@pytest.mark.parametrize(
    "name", ["../a.log", "a/../../b.log", "/etc/a.log", "..\\a.log", "C:\\a.log", "c:a.log", "\\a.log", "a/.."]
)
def test_a_name_that_leads_outside_is_refused(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / "x.zip", ("good.log", LOG), (name, LOG))
    with pytest.raises(LogError, match="expected names of files within the archive's own folder"):
        open_logs(path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_a_link_or_a_device_in_a_zip_is_refused(tmp_path: Path, kind: int) -> None:
    path = packed(tmp_path / "x.zip", ("good.log", LOG), (unix("a.log", kind | 0o777), b"/etc/passwd"))
    with pytest.raises(LogError, match=r"x\.zip!a\.log: got 'a link or a device'"):
        open_logs(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"got 'a\.log', expected each name once"):
        open_logs(packed(tmp_path / "x.zip", ("a.log", LOG), ("a.log", b"another\n")))


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", ("a.log", LOG))
    whole = bytearray(path.read_bytes())
    whole[6] |= 1
    whole[whole.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(whole)
    with pytest.raises(LogError, match=r"x\.zip!a\.log: got 'packed otherwise'"):
        open_logs(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_packing_that_cannot_be_bounded_is_refused(tmp_path: Path, method: int) -> None:
    with pytest.raises(LogError, match=r"a\.log: got 'packed otherwise'"):
        open_logs(packed(tmp_path / "x.zip", ("a.log", LOG), method=method))


def test_a_member_that_is_longer_than_its_list_says_is_damaged(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", ("a.log", LOG))
    whole = bytearray(path.read_bytes())
    struct.pack_into("<L", whole, whole.index(b"PK\x01\x02") + 24, 100)
    path.write_bytes(whole)
    with pytest.raises(LogError, match=r"damaged: Bad CRC"):
        read(path)


def test_a_list_of_contents_as_large_as_a_disk_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", ("a.log", LOG))
    whole = bytearray(path.read_bytes())
    end = whole.index(b"PK\x05\x06")
    whole = whole[:end] + b"\0" * 2**25 + whole[end:]
    struct.pack_into("<L", whole, end + 2**25 + 12, 2**25)
    path.write_bytes(whole)
    with pytest.raises(LogError, match="a list of contents of 33554432 bytes"):
        open_logs(path)


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.logs.source._MOST_MEMBERS", 2)
    with pytest.raises(LogError, match="got '3 members', expected at most 2"):
        open_logs(packed(tmp_path / "x.zip", *((f"{n}.log", LOG) for n in range(3))))


@pytest.mark.parametrize("place", range(0, 200, 20))
def test_a_damaged_zip_is_an_error_or_reads_the_same(tmp_path: Path, place: int) -> None:
    first = LOG[: LOG.index(b"step 10 ")]
    path = packed(tmp_path / "x.zip", ("a.log", first), ("b.log", b"b\n"))
    whole = bytearray(path.read_bytes())
    whole[place * len(whole) // 200] ^= 0x55
    path.write_bytes(whole)
    try:
        found = [text_of(log) for log in open_logs(path).logs]
    except LogError as error:
        assert str(error).isprintable()
        return
    assert found == [first, b"b\n"]


def test_an_archive_cut_short_is_damaged(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", ("a.log", LOG))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(LogError, match="damaged: File is not a zip file"):
        open_logs(path)


def test_the_same_log_has_one_hash_however_it_is_packed(tmp_path: Path) -> None:
    plain, gz = tmp_path / "a.log", tmp_path / "a.log.gz"
    plain.write_bytes(LOG)
    gz.write_bytes(gzip.compress(LOG))
    paths = (plain, gz, packed(tmp_path / "a.zip", ("a.log", LOG)))
    assert len({log.sha256 for path in paths for log in open_logs(path).logs}) == 1
    assert zlib.crc32(LOG) == zlib.crc32(read(gz))


def test_a_zip_whose_list_has_too_many_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_BYTES", 2 * len(LOG) - 1)
    with pytest.raises(LogError, match="got 'more bytes'"):
        open_logs(packed(tmp_path / "x.zip", ("a.log", LOG), ("b.log", LOG)))


def test_an_archive_in_an_archive_is_no_log(tmp_path: Path) -> None:
    inner = gzip.compress(LOG)
    logs = open_logs(packed(tmp_path / "x.zip", ("a.log", LOG), ("inner", inner)))
    assert logs.skipped == (("inner", "an archive in an archive"),)
