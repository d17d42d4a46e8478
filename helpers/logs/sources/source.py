"""Opening what a user names: one log, a packed log, an archive of logs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from helpers.logs.sources.archive import GzipFile, PlainFile, Stored, opened, state_of
from helpers.logs.sources.archive_zip import Skipped, ZipMember, zip_members
from helpers.logs.sources.clean import Chunk, Encoding, clean, line_text
from helpers.logs.sources.source_text import EMPTY, GZIP, ZIP, head_of, read_head
from helpers.trainers.contract.errors import LogError

__all__ = ["Chunk", "LogFile", "LogFiles", "Skipped", "line_text", "open_logs"]

_A_LOG = "a training log: text, or text packed by gzip or zip"
_GZIP_SUFFIX = ".gz"
# Of an archive without a log, so many members are named.
_NAMED = 5


class LogFile:
    """One log. ``source`` is where it lies, for people (``logs.zip!1n8g/b128.log``); ``name`` is the same with ``/``
    between folders and without ``.gz``, for what names tell of the configuration."""

    def __init__(self, source: str, name: str, stored: Stored, encoding: Encoding) -> None:
        self.source = source
        self.name = name
        self._stored = stored
        self._encoding = encoding
        self._sha256: str | None = None

    def __repr__(self) -> str:
        return f"LogFile({self.source!r})"

    def chunks(self) -> Iterator[Chunk]:
        """The log in clean lines, from its beginning at each call. Raises LogError where it cannot be read on, where
        its archive is damaged or a bomb, and where the file changes while it is read."""
        blocks = self._stored.blocks()
        return clean(blocks if self._sha256 else self._hashed(blocks), self._encoding)

    def sha256(self) -> str:
        """Of the log's bytes, unpacked: the same log has the same one in a zip, in a gz and plain. Known once the
        chunks were read to their end, else it reads the file. Raises LogError."""
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


class LogFiles(Sequence[LogFile]):
    """The logs in what was opened, and ``skipped``: the members of an archive that are none."""

    def __init__(self, logs: Sequence[LogFile], skipped: Sequence[Skipped] = ()) -> None:
        self._logs = tuple(logs)
        self.skipped = tuple(skipped)

    def __len__(self) -> int:
        return len(self._logs)

    @overload
    def __getitem__(self, index: int) -> LogFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LogFile]: ...
    def __getitem__(self, index: int | slice) -> LogFile | Sequence[LogFile]:
        return self._logs[index]


def open_logs(path: Path) -> LogFiles:
    """The log in a file, or those in a zip archive; by what the file holds, not by its name.

    Raises LogError on what is no regular file, cannot be read, is empty, not text, packed otherwise, or an archive
    that is damaged, unsafe (``archive_zip``) or without any log.
    """
    with opened(path) as file:
        state = state_of(file)
    stored: Stored = PlainFile(path, state)
    head = read_head(head_of(stored.blocks()))
    if head.what == ZIP:
        return _of_archive(path, *zip_members(path, state))
    name = path.as_posix()
    if head.what == GZIP:
        stored = GzipFile(path, state)
        head = read_head(head_of(stored.blocks()))
        name = name[: -len(_GZIP_SUFFIX)] if name.lower().endswith(_GZIP_SUFFIX) else name
    if head.what == EMPTY:
        raise LogError(f"log {path}", got=EMPTY, expected="at least one line")
    if not head.text:
        remedy = "Unpack it and give the log itself" if head.packed else None
        raise LogError(f"log {path}", got=head.what, expected=_A_LOG, remedy=remedy)
    return LogFiles([LogFile(str(path), name, stored, head.encoding)])


def _of_archive(path: Path, members: Sequence[tuple[ZipMember, Encoding]], skipped: Sequence[Skipped]) -> LogFiles:
    if not members:
        named = [f"{each.name} ({each.reason})" for each in skipped[:_NAMED]]
        more = [f"and {len(skipped) - _NAMED} more"] if len(skipped) > _NAMED else []
        raise LogError(f"zip archive {path}", got=", ".join([*named, *more]) or EMPTY, expected="a log in it")
    logs = [
        LogFile(member.source, f"{path.as_posix()}!{member.name}", member, encoding) for member, encoding in members
    ]
    return LogFiles(logs, skipped)
