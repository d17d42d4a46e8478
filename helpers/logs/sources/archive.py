"""Reads a log's bytes from a plain or gzip file, limits what is unpacked, and recognises a file by its beginning.

Nothing is unpacked to disk. The sizes in an archive's headers are not trusted: the unpacked bytes are counted while
reading and compared with the packed bytes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from helpers.logs.sources.clean import AS_IT_IS, Encoding
from helpers.machine.files import named_by_user, open_regular
from helpers.trainers.contract.errors import LogError

BLOCK_BYTES = 2**20
_PACKED_BLOCK_BYTES = 2**18
# A line of a log has about a hundred bytes, of which a dozen are new, so a log packs by a factor of 10 to 30. Deflate's
# maximum is 1032, reached by repeating one line.
MOST_RATIO = 250
# Up to so many unpacked bytes any ratio is harmless, since they are read and counted but not kept.
FREE_BYTES = 2**26
MOST_UNPACKED_BYTES = 2**35
_UNPACK = "If you trust it, unpack it and give the log itself"

# Enough to recognise a file. tar's mark is within the first 512 bytes.
HEAD_BYTES = 2**16
GZIP, ZIP, EMPTY = "a gzip file", "a zip archive", "empty"
_TAR = "a tar archive"
_MAGIC = (
    (b"\x1f\x8b", GZIP),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
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


class Stored(Protocol):
    """A source of a log's bytes."""

    @property
    def source(self) -> str:
        """Its name in messages."""
        ...

    def blocks(self) -> Iterator[bytes]:
        """The bytes in order, at most BLOCK_BYTES at a time; each call reads anew. Raises LogError."""
        ...


@dataclass(frozen=True)
class FileState:
    """The identity, size and time of a file. If they are different later, the file was written or replaced."""

    device: int
    inode: int
    size_bytes: int
    changed_ns: int


def state_of(file: BinaryIO) -> FileState:
    found = os.fstat(file.fileno())
    return FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@contextmanager
def opened(path: Path, state: FileState | None = None) -> Iterator[BinaryIO]:
    """The file for reading, links followed.

    Raises LogError if it is not a regular file, cannot be read, or is not in ``state`` before and after reading.
    """
    try:
        with open_regular(named_by_user(path)) as file:
            _check_state(path, file, state)
            yield file
            _check_state(path, file, state)
    except OSError as error:
        raise LogError(f"log {path}", got=error.strerror or str(error), expected="a file that can be read") from error


def _check_state(path: Path, file: BinaryIO, state: FileState | None) -> None:
    now = state_of(file)
    if state is not None and now != state:
        raise LogError(
            f"log {path}",
            got=f"{now.size_bytes} bytes after {state.size_bytes}: it is written or replaced while it is read",
            expected="a file that stays as it is",
            remedy="Wait until the training has ended, or give a copy",
        )


@dataclass(frozen=True)
class LogOnDisk:
    """A plain file, or a gzip file of one or several members."""

    path: Path
    state: FileState
    packed: bool = False

    @property
    def source(self) -> str:
        return str(self.path)

    def blocks(self) -> Iterator[bytes]:
        with opened(self.path, self.state) as file:
            if not self.packed:
                while block := file.read(BLOCK_BYTES):
                    yield block
                return
            try:
                yield from _unzipped(file, Bounds(self.source))
            except zlib.error as error:
                raise damaged(self.source, "gzip file", error) from error


def damaged(source: str, kind: str, error: Exception | str) -> LogError:
    return LogError(
        f"log {source}", got=f"a damaged {kind}: {error}", expected=f"a whole {kind}", remedy="Fetch it again"
    )


class Bounds:
    """Counts the packed and unpacked bytes of an archive."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._packed = 0
        self._unpacked = 0

    def count(self, packed: int, unpacked: int) -> None:
        """Adds packed and unpacked bytes. Raises LogError if too many were unpacked."""
        self._packed += packed
        self._unpacked += unpacked
        check_bounds(self._source, self._packed, self._unpacked)


def check_bounds(source: str, packed: int, unpacked: int) -> None:
    """Raises LogError if ``unpacked`` bytes are more than a log has, or more than ``packed`` bytes of a log give."""
    if unpacked > MOST_UNPACKED_BYTES:
        raise LogError(
            f"log {source}", got="more unpacked", expected=f"at most {MOST_UNPACKED_BYTES >> 30} GiB", remedy=_UNPACK
        )
    if unpacked > max(FREE_BYTES, MOST_RATIO * packed):
        raise LogError(
            f"log {source}",
            got=f"{unpacked} bytes out of {packed}",
            expected=f"at most {MOST_RATIO} times as many: this is a decompression bomb, or one line repeated",
            remedy=_UNPACK,
        )


def _unzipped(file: BinaryIO, bounds: Bounds) -> Iterator[bytes]:
    packed, member, members = b"", None, 0
    while packed := packed or file.read(_PACKED_BLOCK_BYTES):
        if member is None:
            # Tapes and some programs pad with NUL behind a member.
            packed = packed.lstrip(b"\0") if members else packed
            if not packed:
                continue
            member = zlib.decompressobj(wbits=31)
            members += 1
        block = member.decompress(packed, BLOCK_BYTES)
        rest = member.unused_data if member.eof else member.unconsumed_tail
        bounds.count(len(packed) - len(rest), len(block))
        packed = rest
        if member.eof:
            member = None
        if block:
            yield block
    if member is not None:
        raise zlib.error("it was cut before its end")


@dataclass(frozen=True)
class FileHead:
    """What kind of file it is, by its beginning."""

    # The encoding of a text.
    encoding: Encoding = AS_IT_IS
    # The kind of file in words; empty for text.
    what: str = ""
    # Whether the file can be unpacked.
    packed: bool = False

    @property
    def text(self) -> bool:
        return not self.what


def head_of(blocks: Iterable[bytes]) -> bytes:
    """Up to HEAD_BYTES from the first byte that is not NUL (at an even offset)."""
    offset, head = 0, b""
    for block in blocks:
        if head:
            head += block
        elif found := block.lstrip(b"\0"):
            head = b"\0" * ((offset + len(block) - len(found)) % 2) + found
        offset += len(block)
        if len(head) >= HEAD_BYTES:
            break
    return head[:HEAD_BYTES]


def read_head(head: bytes) -> FileHead:
    """Recognise a file by the bytes of ``head_of``."""
    if not head:
        return FileHead(what=EMPTY)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return FileHead(what=kind, packed=True)
    if head[_TAR_AT:].startswith(_TAR_MARK):
        return FileHead(what=_TAR, packed=True)
    encoding = _encoding(head)
    text = head[encoding.mark_bytes :]
    if encoding.codec:
        text = text.decode(encoding.codec, "replace").encode("utf-8", "replace")
    text = text.replace(b"\0", b"")
    control = len(text) - len(text.translate(None, _CONTROL))
    return FileHead(encoding, what="not text" if control > _MOST_CONTROL_SHARE * len(text) else "")


def _encoding(head: bytes) -> Encoding:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    pairs = len(head) // 2
    even, odd = head[0 : 2 * pairs : 2].count(0), head[1 : 2 * pairs : 2].count(0)
    if pairs and odd >= _LEAST_NUL_SHARE * pairs and even <= _MOST_OTHER_NUL_SHARE * pairs:
        return Encoding("utf-16-le")
    if pairs and even >= _LEAST_NUL_SHARE * pairs and odd <= _MOST_OTHER_NUL_SHARE * pairs:
        return Encoding("utf-16-be")
    return AS_IT_IS
