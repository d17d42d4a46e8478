"""Opens what a user names: a log, a log packed by gzip, a zip archive of logs, a pipe, or ``-`` for standard input.

Each log is copied once, unpacked, so that all that is read of it is of one state. The bytes are counted while they are
copied, and none of the sizes in an archive is trusted.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from helpers.common.files import named_by_user, open_regular
from helpers.logs.lines import AS_IT_IS, BLOCK_BYTES, Encoding, LogLine, clean
from helpers.trainers.contract.errors import LogError

STANDARD_INPUT = Path("-")
# Of one log, of all members of an archive together, and of a pipe.
MOST_BYTES = 2**30
_MOST_MEMBERS = 1000
# zipfile reads an archive's list of contents as one block of the size that the archive states.
_MOST_LIST_BYTES = 2**24
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    UnicodeError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
_OUTSIDE = re.compile(r"^(?:[A-Za-z]:|[/\\])|(?:^|[/\\])\.\.(?:[/\\]|$)|\0")
# Enough to recognise a file.
_HEAD_BYTES = 2**16
_GZIP, _ZIP = b"\x1f\x8b", (b"PK\x03\x04", b"PK\x05\x06")
_PACKED = (
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstandard file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a rar archive"),
)
_TAR_MARK, _TAR_AT = b"ustar", 257
_MARKS = (
    (b"\xef\xbb\xbf", Encoding(None, 3)),
    (b"\xff\xfe", Encoding("utf-16-le", 2)),
    (b"\xfe\xff", Encoding("utf-16-be", 2)),
)
# Control characters that no program prints as text. NUL is not among them, since crashed disks leave it in logs.
_CONTROL = bytes((*range(1, 7), *range(14, 27), *range(28, 32)))
_MOST_CONTROL_SHARE = 0.02
# In UTF-16 text that is mostly ASCII, every second byte is NUL and the other bytes are not.
_LEAST_NUL_SHARE, _MOST_OTHER_NUL_SHARE = 0.4, 0.01
# Names of files that are no logs but often beside logs. Any other member is recognised by its beginning.
_NO_LOG_NAMES = re.compile(
    r"\.(png|jpe?g|gif|svg|pdf|html|css|js|json|csv|tsv|xml|ya?ml|toml|ini|cfg|md|rst|pyc?|ipynb|sh|bat|cc?|cpp|cu|h"
    r"|patch|diff|prototxt|params|pdparams|ckpt|pth?|h5|np[yz]|pb|docx|xlsx|pptx)$",
    re.IGNORECASE,
)
_NO_LOG_FOLDERS = frozenset({"__MACOSX", ".git", "__pycache__"})
# A log of fewer bytes is kept in memory.
_IN_MEMORY = 2**24


class LogFile:
    """A copy of one log, unpacked, as it was when it was opened.

    ``source`` is its place, for messages (``logs.zip!1n8g/b128.log``). ``name`` is the same with ``/`` between folders
    and without ``.gz``; configuration is read from it.
    """

    def __init__(self, source: str, name: str, file: IO[bytes]) -> None:
        """Copies what ``file`` has. Raises LogError if it is more than a log has, or is damaged."""
        self.source, self.name = source, name
        self._copy = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="perfgate-log-")  # noqa: SIM115
        found, count = hashlib.sha256(), 0
        try:
            while block := file.read(BLOCK_BYTES):
                count += len(block)
                if count > MOST_BYTES:
                    raise _too_large(f"log {source}")
                found.update(block)
                self._copy.write(block)
        except (*_DAMAGE, gzip.BadGzipFile) as error:
            raise _damaged(source, error) from error
        # The same for a log in a zip, in a gz and as a plain file.
        self.sha256 = found.hexdigest()
        self.head = self._head()

    def __repr__(self) -> str:
        return f"LogFile({self.source!r})"

    def file(self) -> IO[bytes]:
        """The bytes from the start."""
        self._copy.seek(0)
        return cast("IO[bytes]", self._copy)

    def blocks(self) -> Iterator[bytes]:
        self._copy.seek(0)
        while block := self._copy.read(BLOCK_BYTES):
            at = self._copy.tell()
            yield block
            # Another pass may have begun meanwhile.
            self._copy.seek(at)

    def lines(self) -> Iterator[LogLine]:
        """The log in clean lines; each call begins at the start."""
        return clean(self.blocks(), _encoding(self.head))

    def _head(self) -> bytes:
        """Up to 64 KiB from the first byte that is not NUL (at an even offset)."""
        offset, head = 0, b""
        for block in self.blocks():
            if head:
                head += block
            elif found := block.lstrip(b"\0"):
                head = b"\0" * ((offset + len(block) - len(found)) % 2) + found
            offset += len(block)
            if len(head) >= _HEAD_BYTES:
                break
        return head[:_HEAD_BYTES]


@dataclass(frozen=True)
class LogFiles:
    """The logs in the opened file."""

    logs: tuple[LogFile, ...]
    # The members of an archive that are not logs, each with the reason.
    skipped: tuple[tuple[str, str], ...] = ()


def open_logs(path: Path) -> LogFiles:
    """The log in a file, or the logs in a zip archive; recognised by the file's content, not by its name.

    Raises LogError if it is neither a file nor a pipe, cannot be read, is empty, is not text, is packed in another way,
    or is an archive that is damaged, unsafe or without a log.
    """
    name = path.as_posix()
    try:
        with _opened(path) as file:
            log = LogFile(str(path), name, file)
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise LogError(f"log {path}", got=text, expected="a file that can be read") from error
    if log.head.startswith(_ZIP):
        return _of_archive(path, log)
    if log.head.startswith(_GZIP):
        name = name[: -len(".gz")] if name.lower().endswith(".gz") else name
        with gzip.GzipFile(fileobj=log.file(), mode="rb") as unpacked:
            log = LogFile(str(path), name, cast("IO[bytes]", unpacked))
    if what := _no_text(log.head):
        raise LogError(f"log {path}", got=what, expected="a training log: text, or text packed by gzip or zip")
    return LogFiles((log,))


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """A file, a pipe or standard input for reading."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    kind = path.stat().st_mode
    if stat.S_ISFIFO(kind):
        # Without O_NONBLOCK, a named pipe that nobody writes to would be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
            os.set_blocking(pipe.fileno(), True)
            yield pipe
        return
    if not stat.S_ISREG(kind):
        raise LogError(f"log {path}", got="no file", expected="a file, a pipe, or - for standard input")
    with open_regular(named_by_user(path)) as file:
        yield file


def no_log_by_name(path: str) -> str:
    """Why a file beside logs is not a log, by its path; empty if it may be one."""
    name = PurePosixPath(path)
    if _NO_LOG_FOLDERS & set(name.parts[:-1]) or name.name.startswith("."):
        return "a program's own file"
    return f"{name.suffix} is no log" if _NO_LOG_NAMES.search(name.name) else ""


def _too_large(about: str) -> LogError:
    most = f"at most {MOST_BYTES >> 30} GiB, unpacked"
    return LogError(about, got="more bytes", expected=most, remedy="Give the part of it that is needed")


def _damaged(source: str, error: Exception) -> LogError:
    return LogError(f"log {source}", got=f"damaged: {error}", expected="a whole file", remedy="Fetch it again")


# ---- what a file is, by its beginning


def _no_text(head: bytes) -> str:
    """What the file is in words; empty for text."""
    if not head:
        return "empty"
    if head.startswith((_GZIP, *_ZIP)):
        return "an archive in an archive"
    if found := next((kind for magic, kind in _PACKED if head.startswith(magic)), ""):
        return found
    if head[_TAR_AT:].startswith(_TAR_MARK):
        return "a tar archive"
    encoding = _encoding(head)
    text = head[encoding.mark_bytes :]
    if encoding.codec:
        text = text.decode(encoding.codec, "replace").encode("utf-8", "replace")
    text = text.replace(b"\0", b"")
    control = len(text) - len(text.translate(None, _CONTROL))
    return "not text" if control > _MOST_CONTROL_SHARE * len(text) else ""


def _encoding(head: bytes) -> Encoding:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    pairs = len(head) // 2
    nuls = [head[at : 2 * pairs : 2].count(0) for at in (0, 1)]
    for other, codec in ((0, "utf-16-le"), (1, "utf-16-be")):
        if pairs and nuls[1 - other] >= _LEAST_NUL_SHARE * pairs and nuls[other] <= _MOST_OTHER_NUL_SHARE * pairs:
            return Encoding(codec)
    return AS_IT_IS


# ---- zip archives


class _Bounded:
    """A file that refuses to read more at once than a list of contents may have."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, count: int = -1, /) -> bytes:
        if count > _MOST_LIST_BYTES:
            raise zipfile.BadZipFile(f"a list of contents of {count} bytes")
        return self._file.read(count)


def _of_archive(path: Path, packed: LogFile) -> LogFiles:
    about = f"zip archive {path}"
    logs: list[LogFile] = []
    skipped: list[tuple[str, str]] = []
    try:
        with zipfile.ZipFile(cast("IO[bytes]", _Bounded(packed.file()))) as archive:
            infos = archive.infolist()
            _check_list(about, infos)
            for info in infos:
                if reason := "a folder" if info.is_dir() else no_log_by_name(info.filename):
                    skipped.append((info.filename, reason))
                    continue
                source = f"{path}!{info.filename}"
                if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    expected = "deflate (8) or stored (0), no password"
                    raise LogError(f"log {source}", got="packed otherwise", expected=expected, remedy="Unpack it")
                with archive.open(info) as member:
                    log = LogFile(source, f"{path.as_posix()}!{info.filename}", member)
                if reason := _no_text(log.head):
                    skipped.append((info.filename, reason))
                else:
                    logs.append(log)
    except _DAMAGE as error:
        raise _damaged(str(path), error) from error
    if not logs:
        named = ", ".join(f"{name} ({reason})" for name, reason in skipped[:5]) or "empty"
        raise LogError(about, got=named, expected="a log in it")
    return LogFiles(tuple(logs), tuple(skipped))


def _check_list(about: str, infos: list[zipfile.ZipInfo]) -> None:
    """Refuses an archive as a whole if a name leads out of it, if it has a link or a name twice, or is too large."""
    if len(infos) > _MOST_MEMBERS:
        raise LogError(about, got=f"{len(infos)} members", expected=f"at most {_MOST_MEMBERS}")
    seen: set[str] = set()
    for info in infos:
        if _OUTSIDE.search(info.orig_filename):
            raise LogError(about, got=info.orig_filename, expected="names of files within the archive's own folder")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise LogError(f"{about}!{info.filename}", got="a link or a device", expected="a file")
        if info.filename in seen and not info.is_dir():
            raise LogError(about, got=info.filename, expected="each name once")
        seen.add(info.filename)
    # The sum counts, since members may share bytes of the archive, and then each alone looks harmless.
    if sum(info.file_size for info in infos) > MOST_BYTES:
        raise _too_large(about)
