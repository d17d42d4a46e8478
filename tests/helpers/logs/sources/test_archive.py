"""Packed logs: gz and zip, whole, damaged and hostile."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from helpers.logs.sources import archive
from helpers.logs.sources.source import LogFile, Skipped, open_logs
from helpers.trainers.contract.errors import LogError

LOG = b"".join(b"step %d ips: %d.5\n" % (step, 300 + step % 7) for step in range(2000))


def text_of(log: LogFile) -> bytes:
    return b"".join(chunk.data for chunk in log.chunks())


def read(path: Path) -> bytes:
    (log,) = open_logs(path)
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


@pytest.mark.parametrize("left_out", [1, 8, 9, 1000])
def test_a_cut_gz_is_an_error_and_no_shorter_log(tmp_path: Path, left_out: int) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(os.urandom(200_000).hex().encode() + b"\n" + LOG)[:-left_out])
    (log,) = open_logs(path)
    with pytest.raises(LogError, match=r"log\.gz: got 'a damaged gzip file: it was cut before its end'"):
        text_of(log)


@pytest.mark.parametrize("damage", [b"garbage", b"\x1f\x8b\x08"], ids=["garbage", "a second one cut"])
def test_a_gz_with_something_else_behind_is_an_error(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(LOG) + damage)
    with pytest.raises(LogError, match="a damaged gzip file"):
        read(path)


def test_a_gz_whose_sum_is_wrong_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    whole = bytearray(gzip.compress(LOG))
    whole[-6] ^= 1
    path.write_bytes(whole)
    with pytest.raises(LogError, match=r"a damaged gzip file: .*check"):
        read(path)


def test_a_gz_bomb_is_refused_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 2**22)
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"ips: 5\n" * 3_000_000))
    (log,) = open_logs(path)
    seen = 0
    with pytest.raises(LogError, match=r"bytes out of [0-9]+', expected at most 250 times as many: .* bomb"):
        for chunk in log.chunks():
            seen += len(chunk.data)
    assert seen <= 2**22


def test_a_log_of_more_than_there_can_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_UNPACKED_BYTES", 2**30 - 1)
    with pytest.raises(LogError, match="got 'more unpacked'"):
        archive.Bounds("log").count(2**29, 2**30)
    archive.Bounds("log").count(2**29, 2**30 - 1)


# ---- zip


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_logs_of_a_zip_are_read(tmp_path: Path, method: int) -> None:
    path = packed(tmp_path / "ngc.zip", ("1n1g/b128_1.log", LOG), ("1n8g/workerlog.0", b"8 cards\n"), method=method)
    first, second = open_logs(path)
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
    assert [log.name for log in logs] == [f"{path}!logs/a.log"]
    assert logs.skipped == (
        Skipped("logs/", "a folder"),
        Skipped("logs/result.json", ".json is no log"),
        Skipped("logs/CURVE.PNG", ".PNG is no log"),
        Skipped("logs/empty.log", "empty"),
        Skipped("logs/nul.log", "empty"),
        Skipped("logs/events.out", "not text"),
        Skipped("__MACOSX/logs/._a.log", "a program's own file"),
        Skipped("logs/.DS_Store", "a program's own file"),
    )


def test_a_zip_without_a_log_says_what_is_in_it(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", *((f"{n}.json", b"{}") for n in range(7)))
    with pytest.raises(LogError, match=r"got '0\.json \(\.json is no log\), .*, and 2 more', expected a log in it"):
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


def test_a_name_with_dots_is_a_name(tmp_path: Path) -> None:
    assert len(open_logs(packed(tmp_path / "x.zip", ("a..b/c...log", LOG))).logs) == 1


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_a_link_or_a_device_in_a_zip_is_refused(tmp_path: Path, kind: int) -> None:
    path = packed(tmp_path / "x.zip", ("good.log", LOG), (unix("a.log", kind | 0o777), b"/etc/passwd"))
    with pytest.raises(LogError, match=r"x\.zip!a\.log: got 'a link or a device'"):
        open_logs(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"got 'a\.log', expected each name once"):
        open_logs(packed(tmp_path / "x.zip", ("a.log", LOG), ("a.log", b"another\n")))


def _zip_of_logs() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as inner:
        inner.writestr("a.log", LOG)
    return made.getvalue()


@pytest.mark.parametrize(
    ("data", "kind"),
    [(gzip.compress(LOG), "a gzip file"), (_zip_of_logs(), "a zip archive"), (b"BZh91AY&SY", "a bzip2 file")],
    ids=["gz", "zip", "bz2"],
)
def test_an_archive_in_an_archive_is_refused(tmp_path: Path, data: bytes, kind: str) -> None:
    with pytest.raises(LogError, match=rf"!inner: got '{kind} in an archive', .*Unpack the outer archive"):
        open_logs(packed(tmp_path / "x.zip", ("inner", data)))
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(data))
    with pytest.raises(LogError, match=rf"got '{kind}', .*Unpack it"):
        open_logs(path)


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", ("a.log", LOG))
    whole = bytearray(path.read_bytes())
    whole[6] |= 1
    whole[whole.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(whole)
    with pytest.raises(LogError, match=r"x\.zip!a\.log: got 'an encrypted member'"):
        open_logs(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_packing_that_cannot_be_bounded_is_refused(tmp_path: Path, method: int) -> None:
    with pytest.raises(LogError, match=rf"a\.log: got 'packed by method {method}'"):
        open_logs(packed(tmp_path / "x.zip", ("a.log", LOG), method=method))


def test_a_log_that_packs_as_logs_do_is_no_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 2**10)
    gz = tmp_path / "a.log.gz"
    gz.write_bytes(gzip.compress(LOG))
    for path in (gz, packed(tmp_path / "x.zip", ("a.log", LOG))):
        assert read(path) == LOG


def test_a_zip_bomb_is_refused_by_its_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 2**20)
    with pytest.raises(LogError, match="bomb"):
        open_logs(packed(tmp_path / "x.zip", ("a.log", b"0" * 2**21)))


def test_a_zip_bomb_whose_list_is_wrong_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = b"\n".join(os.urandom(500).hex().encode() for _ in range(400))
    # In a large archive its list allows what this member alone must not have.
    path = packed(tmp_path / "x.zip", ("a.log", b"ips: 5\n" * 3_000_000), ("b.log", noise))
    monkeypatch.setattr(archive, "FREE_BYTES", 2**22)
    first, second = open_logs(path)
    with pytest.raises(LogError, match=r"x\.zip!a\.log: got '[0-9]+ bytes out of [0-9]+'.*bomb"):
        text_of(first)
    assert len(text_of(second)) == len(noise) + 1


def test_a_member_that_is_longer_than_its_list_says_is_damaged(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", ("a.log", LOG))
    whole = bytearray(path.read_bytes())
    struct.pack_into("<L", whole, whole.index(b"PK\x01\x02") + 24, 100)
    path.write_bytes(whole)
    with pytest.raises(LogError, match=r"a damaged zip archive: .*CRC"):
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
    monkeypatch.setattr("helpers.logs.sources.source.MOST_MEMBERS", 2)
    with pytest.raises(LogError, match="got '3 members', expected at most 2"):
        open_logs(packed(tmp_path / "x.zip", *((f"{n}.log", LOG) for n in range(3))))


@pytest.mark.parametrize("place", range(0, 200, 3))
def test_a_damaged_zip_is_an_error_or_reads_the_same(tmp_path: Path, place: int) -> None:
    first = LOG[: LOG.index(b"step 10 ")]
    path = packed(tmp_path / "x.zip", ("a.log", first), ("b.log", b"b\n"))
    whole = bytearray(path.read_bytes())
    whole[place * len(whole) // 200] ^= 0x55
    path.write_bytes(whole)
    try:
        found = [text_of(log) for log in open_logs(path)]
    except LogError as error:
        assert str(error).isprintable()
        return
    assert found == [first, b"b\n"]


def test_an_archive_cut_short_is_damaged(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", ("a.log", LOG))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(LogError, match="a damaged zip archive: File is not a zip file"):
        open_logs(path)


def test_the_same_log_has_one_hash_however_it_is_packed(tmp_path: Path) -> None:
    plain, gz = tmp_path / "a.log", tmp_path / "a.log.gz"
    plain.write_bytes(LOG)
    gz.write_bytes(gzip.compress(LOG))
    paths = (plain, gz, packed(tmp_path / "a.zip", ("a.log", LOG)))
    assert len({log.sha256() for path in paths for log in open_logs(path)}) == 1
    assert zlib.crc32(LOG) == zlib.crc32(read(gz))
