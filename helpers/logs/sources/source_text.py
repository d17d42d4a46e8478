"""What the beginning of a file shows: text and in which code, an archive, or something else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from helpers.logs.sources.clean import AS_IT_IS, Encoding

# Enough to tell; at least 512, where tar's mark stands.
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
# Control characters that no program prints as text; NUL is not among them, since crashed disks leave it in logs.
_CONTROL = bytes((*range(1, 7), *range(14, 27), *range(28, 32)))
_MOST_CONTROL_SHARE = 0.02
# Of UTF-16 that is mostly ASCII every second byte is NUL, and the others are not.
_LEAST_NUL_SHARE, _MOST_OTHER_NUL_SHARE = 0.4, 0.01


@dataclass(frozen=True)
class Head:
    """Text in ``encoding``, or ``what`` it is else, in words; ``packed`` where that is something to be unpacked."""

    encoding: Encoding = AS_IT_IS
    what: str = ""
    packed: bool = False

    @property
    def text(self) -> bool:
        return not self.what


def head_of(blocks: Iterable[bytes]) -> bytes:
    """The first HEAD_BYTES from the first that is not NUL, at an even place; less where there is no more."""
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


def read_head(head: bytes) -> Head:
    """What ``head_of`` a file shows."""
    if not head:
        return Head(what=EMPTY)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return Head(what=kind, packed=True)
    if head[_TAR_AT:].startswith(_TAR_MARK):
        return Head(what=_TAR, packed=True)
    encoding = _encoding(head)
    text = head[encoding.mark_bytes :]
    if encoding.codec:
        text = text.decode(encoding.codec, "replace").encode("utf-8", "replace")
    text = text.replace(b"\0", b"")
    control = len(text) - len(text.translate(None, _CONTROL))
    return Head(encoding, what="not text" if control > _MOST_CONTROL_SHARE * len(text) else "")


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
