"""Opens a file that a user names: one log, a packed log, or a zip archive of logs.

An archive is refused as a whole if it would write outside its folder when unpacked, has links, has a name twice, holds
another archive, has more than MOST_MEMBERS members or more bytes than logs have, is encrypted or is damaged.
"""

from __future__ import annotations

import hashlib
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from helpers.logs.sources.archive import (
    BLOCK_BYTES,
    EMPTY,
    GZIP,
    ZIP,
    Bounds,
    FileHead,
    FileState,
    LogOnDisk,
    Stored,
    check_bounds,
    damaged,
    head_of,
    opened,
    read_head,
    state_of,
)
from helpers.logs.sources.clean import Chunk, Encoding, clean
from helpers.trainers.contract.errors import LogError

_A_LOG = "a training log: text, or text packed by gzip or zip"
_GZIP_SUFFIX = ".gz"
# How many members of an archive without a log an error names.
_NAMED = 5
MOST_MEMBERS = 10_000
# The largest list of contents of a zip archive. zipfile reads it as one block of the size that the archive states.
_MOST_READ_BYTES = 2**24
_ENCRYPTED = 0x1
_OUTSIDE = re.compile(r"^(?:[A-Za-z]:|[/\\])|(?:^|[/\\])\.\.(?:[/\\]|$)|\0")
# Names of files that are no logs but often beside logs. Any other member is recognised by its beginning.
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
    """A member of an archive that is not a log, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ZipMember:
    """A member of a zip archive."""

    path: Path
    state: FileState
    name: str
    # The index in the archive's list of contents, from 0.
    index: int
    packed_bytes: int

    @property
    def source(self) -> str:
        return f"{self.path}!{self.name}"

    def blocks(self) -> Iterator[bytes]:
        with _listed(self.path, self.state) as archive:
            yield from self.blocks_of(archive)

    def blocks_of(self, archive: zipfile.ZipFile) -> Iterator[bytes]:
        """The same bytes, from an archive that is already open."""
        bounds = Bounds(self.source)
        bounds.count(self.packed_bytes, 0)
        with archive.open(archive.infolist()[self.index]) as member:
            while block := member.read(BLOCK_BYTES):
                bounds.count(0, len(block))
                yield block


def zip_members(path: Path, state: FileState) -> tuple[list[tuple[ZipMember, Encoding]], list[Skipped]]:
    """The members that are text with their encodings, in the archive's order, and the other members with the reasons.

    Raises LogError.
    """
    members: list[tuple[ZipMember, Encoding]] = []
    skipped: list[Skipped] = []
    with _listed(path, state) as archive:
        infos = archive.infolist()
        _check_list(path, state, infos)
        for index, info in enumerate(infos):
            member = ZipMember(path, state, info.filename, index, info.compress_size)
            reason = _no_log(info)
            head = FileHead() if reason else _head(member, archive, info)
            if reason or not head.text:
                skipped.append(Skipped(info.filename, reason or head.what))
            else:
                members.append((member, head.encoding))
    return members, skipped


class _Bounded:
    """A file that refuses to read more at once than a list of contents may have."""

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
    # The sum counts, since members may share bytes of the archive, and then each alone looks harmless.
    check_bounds(str(path), state.size_bytes, sum(info.file_size for info in infos))


def _no_log(info: zipfile.ZipInfo) -> str:
    """Why the member is not a log, by its name; empty if it may be one."""
    if info.is_dir():
        return "a folder"
    return no_log_by_name(info.filename) or ("empty" if info.file_size == 0 else "")


def no_log_by_name(path: str) -> str:
    """Why a file beside logs is not a log, by its path; empty if it may be one."""
    name = PurePosixPath(path)
    if _NO_LOG_FOLDERS & set(name.parts[:-1]) or name.name.startswith("."):
        return "a program's own file"
    return f"{name.suffix} is no log" if _NO_LOG_NAMES.search(name.name) else ""


def _head(member: ZipMember, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> FileHead:
    """Recognise a member by its beginning. Raises LogError if it cannot be read or is an archive."""
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


class LogFile:
    """One log.

    ``source`` is its place, for messages (``logs.zip!1n8g/b128.log``). ``name`` is the same with ``/`` between folders
    and without ``.gz``; configuration is read from it.
    """

    def __init__(self, source: str, name: str, stored: Stored, encoding: Encoding) -> None:
        self.source = source
        self.name = name
        self._stored = stored
        self._encoding = encoding
        self._sha256: str | None = None

    def __repr__(self) -> str:
        return f"LogFile({self.source!r})"

    def chunks(self) -> Iterator[Chunk]:
        """The log in clean lines; each call begins at the start. Raises LogError if it cannot be read, if its archive
        is damaged or a decompression bomb, and if the file changes while it is read."""
        blocks = self._stored.blocks()
        return clean(blocks if self._sha256 else self._hashed(blocks), self._encoding)

    def sha256(self) -> str:
        """The SHA-256 of the log's unpacked bytes, in hexadecimal: the same for a log in a zip, in a gz and as a plain
        file.

        It is known after the chunks were read to their end; otherwise this reads the file. Raises LogError.
        """
        if self._sha256 is None:
            for _ in self._hashed(self._stored.blocks()):
                pass
        assert self._sha256 is not None
        return self._sha256

    def _hashed(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        found = hashlib.sha256()
        for block in blocks:
            found.update(block)
            yield block
        self._sha256 = found.hexdigest()


@dataclass(frozen=True)
class LogFiles:
    """The logs in the opened file."""

    logs: tuple[LogFile, ...]
    # Members of an archive that are not logs.
    skipped: tuple[Skipped, ...] = ()

    def __iter__(self) -> Iterator[LogFile]:
        return iter(self.logs)


def open_logs(path: Path) -> LogFiles:
    """The log in a file, or the logs in a zip archive; recognised by the file's content, not by its name.

    Raises LogError if it is not a regular file, cannot be read, is empty, is not text, is packed in another way, or is
    an archive that is damaged, unsafe or without a log.
    """
    with opened(path) as file:
        state = state_of(file)
    stored = LogOnDisk(path, state)
    head = read_head(head_of(stored.blocks()))
    if head.what == ZIP:
        return _of_archive(path, *zip_members(path, state))
    name = path.as_posix()
    if head.what == GZIP:
        stored = LogOnDisk(path, state, packed=True)
        head = read_head(head_of(stored.blocks()))
        name = name[: -len(_GZIP_SUFFIX)] if name.lower().endswith(_GZIP_SUFFIX) else name
    if head.what == EMPTY:
        raise LogError(f"log {path}", got=EMPTY, expected="at least one line")
    if not head.text:
        remedy = "Unpack it and give the log itself" if head.packed else None
        raise LogError(f"log {path}", got=head.what, expected=_A_LOG, remedy=remedy)
    return LogFiles((LogFile(str(path), name, stored, head.encoding),))


def _of_archive(path: Path, members: Sequence[tuple[ZipMember, Encoding]], skipped: Sequence[Skipped]) -> LogFiles:
    if not members:
        named = [f"{each.name} ({each.reason})" for each in skipped[:_NAMED]]
        more = [f"and {len(skipped) - _NAMED} more"] if len(skipped) > _NAMED else []
        raise LogError(f"zip archive {path}", got=", ".join([*named, *more]) or EMPTY, expected="a log in it")
    logs = tuple(
        LogFile(member.source, f"{path.as_posix()}!{member.name}", member, encoding) for member, encoding in members
    )
    return LogFiles(logs, tuple(skipped))
