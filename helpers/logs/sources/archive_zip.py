"""The logs of a zip archive, and what else lies in it.

Refused as a whole: an archive that would write outside its folder when unpacked, with links, with one name twice, with
another archive in it, with more than MOST_MEMBERS or more bytes than logs have, encrypted, damaged.
"""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from helpers.logs.sources.archive import BLOCK_BYTES, Bounds, FileState, check_bounds, damaged, opened
from helpers.logs.sources.clean import Encoding
from helpers.logs.sources.source_text import Head, head_of, read_head
from helpers.trainers.contract.errors import LogError

MOST_MEMBERS = 10_000
# A list of contents of so many members and long names; zipfile reads it as one block, whatever size the archive says.
_MOST_READ_BYTES = 2**24
_ENCRYPTED = 0x1
_OUTSIDE = re.compile(r"^(?:[A-Za-z]:|[/\\])|(?:^|[/\\])\.\.(?:[/\\]|$)|\0")
# What lies beside logs and is no log, by its name. Others are looked into.
_NO_LOG_NAMES = re.compile(
    r"\.(png|jpe?g|gif|svg|pdf|html|css|js|json|csv|tsv|xml|ya?ml|toml|ini|cfg|md|rst|pyc?|ipynb|sh|bat|cc?|cpp|cu|h"
    r"|patch|diff|prototxt|params|pdparams|ckpt|pth?|h5|np[yz]|pb|docx|xlsx|pptx)$",
    re.IGNORECASE,
)
_NO_LOG_FOLDERS = frozenset({"__MACOSX", ".git", "__pycache__"})
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


@dataclass(frozen=True)
class Skipped:
    """A member of an archive that is no log, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ZipMember:
    """A member of an archive: the ``index``-th of its list."""

    path: Path
    state: FileState
    name: str
    index: int
    packed_bytes: int

    @property
    def source(self) -> str:
        return f"{self.path}!{self.name}"

    def blocks(self) -> Iterator[bytes]:
        with _listed(self.path, self.state) as archive:
            yield from self.blocks_of(archive)

    def blocks_of(self, archive: zipfile.ZipFile) -> Iterator[bytes]:
        """The same out of the archive that is open already."""
        bounds = Bounds(self.source)
        bounds.count(self.packed_bytes, 0)
        with archive.open(archive.infolist()[self.index]) as member:
            while block := member.read(BLOCK_BYTES):
                bounds.count(0, len(block))
                yield block


def zip_members(path: Path, state: FileState) -> tuple[list[tuple[ZipMember, Encoding]], list[Skipped]]:
    """The members that are text with their encodings, in the archive's order, and the others. Raises LogError."""
    members: list[tuple[ZipMember, Encoding]] = []
    skipped: list[Skipped] = []
    with _listed(path, state) as archive:
        infos = archive.infolist()
        _check_list(path, state, infos)
        for index, info in enumerate(infos):
            member = ZipMember(path, state, info.filename, index, info.compress_size)
            reason = _no_log(info)
            head = Head() if reason else _head(member, archive, info)
            if reason or not head.text:
                skipped.append(Skipped(info.filename, reason or head.what))
            else:
                members.append((member, head.encoding))
    return members, skipped


class _Bounded:
    """A file of which nobody reads more at once than a list of contents has."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, count: int = -1, /) -> bytes:
        if count > _MOST_READ_BYTES:
            raise zipfile.BadZipFile(f"a list of contents of {count} bytes")
        return self._file.read(count)


@contextmanager
def _listed(path: Path, state: FileState) -> Iterator[zipfile.ZipFile]:
    with opened(path, state) as file:
        try:
            with zipfile.ZipFile(_Bounded(file)) as archive:
                yield archive
        except _DAMAGE as error:
            raise damaged(str(path), "zip archive", error) from error


def _check_list(path: Path, state: FileState, infos: list[zipfile.ZipInfo]) -> None:
    about = f"zip archive {path}"
    if len(infos) > MOST_MEMBERS:
        raise LogError(about, got=f"{len(infos)} members", expected=f"at most {MOST_MEMBERS}")
    seen: set[str] = set()
    for info in infos:
        kind = stat.S_IFMT(info.external_attr >> 16)
        if _OUTSIDE.search(info.orig_filename):
            raise LogError(about, got=info.orig_filename, expected="names of files within the archive's own folder")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise LogError(f"{about}!{info.filename}", got="a link or a device", expected="a file")
        if info.filename in seen and not info.is_dir():
            raise LogError(about, got=info.filename, expected="each name once")
        seen.add(info.filename)
    # Members may lie upon each other, so each can be harmless alone.
    check_bounds(str(path), state.size_bytes, sum(info.file_size for info in infos))


def _no_log(info: zipfile.ZipInfo) -> str:
    """Why the member is no log, by its name; empty where it may be one."""
    name = PurePosixPath(info.filename)
    if info.is_dir():
        return "a folder"
    if _NO_LOG_FOLDERS & set(name.parts[:-1]) or name.name.startswith("."):
        return "a program's own file"
    if _NO_LOG_NAMES.search(name.name):
        return f"{name.suffix} is no log"
    return "empty" if info.file_size == 0 else ""


def _head(member: ZipMember, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Head:
    """How a member that may be a log begins. Raises LogError where it cannot be read or is an archive."""
    about = f"log {member.source}"
    if info.flag_bits & _ENCRYPTED:
        raise LogError(about, got="an encrypted member", expected="an archive without a password", remedy="Unpack it")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise LogError(
            about,
            got=f"packed by method {info.compress_type}",
            expected="deflate (8) or stored (0)",
            remedy="Unpack it",
        )
    head = read_head(head_of(member.blocks_of(archive)))
    if head.packed:
        raise LogError(
            about,
            got=f"{head.what} in an archive",
            expected="logs",
            remedy="Unpack the outer archive and give what is in it",
        )
    return head
