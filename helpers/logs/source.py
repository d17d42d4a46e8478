"""Opens what a user names: a log, a log packed by gzip, a pipe, or ``-`` for standard input.

The log is copied once, unpacked, so that all that is read of it is of one state.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from helpers.common.files import named_by_user, open_regular
from helpers.logs.lines import LogLine, clean
from helpers.trainers.contract.errors import LogError

STANDARD_INPUT = Path("-")
MOST_BYTES = 2**30
_BLOCK_BYTES = 2**20
# A log of fewer bytes is kept in memory.
_IN_MEMORY = 2**24
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_TAR, _TAR_AT = b"ustar", 257
# Control characters that no program prints as text.
_CONTROL = bytes((*range(7), *range(14, 27), *range(28, 32)))
_MOST_CONTROL_SHARE = 0.02
# Enough to recognise a text.
_HEAD_BYTES = 2**16


class LogFile:
    """A copy of one log, unpacked, as it was when it was opened.

    ``source`` is its path, for messages. ``name`` is the same with ``/`` between folders and without ``.gz``;
    configuration is read from it.
    """

    def __init__(self, source: str, name: str, file: IO[bytes]) -> None:
        """Copies what ``file`` has. Raises LogError if it is more than a log has."""
        self.source, self.name = source, name
        self._copy = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="perfgate-log-")  # noqa: SIM115
        found, count = hashlib.sha256(), 0
        while block := file.read(_BLOCK_BYTES):
            count += len(block)
            if count > MOST_BYTES:
                expected = f"at most {MOST_BYTES >> 30} GiB, unpacked"
                raise LogError(f"log {source}", got="more bytes", expected=expected, remedy="Give a part of it")
            found.update(block)
            self._copy.write(block)
        self.sha256 = found.hexdigest()

    def file(self) -> IO[bytes]:
        """The bytes from the start."""
        self._copy.seek(0)
        return cast("IO[bytes]", self._copy)

    def lines(self) -> Iterator[LogLine]:
        return clean(self.file())


def open_log(path: Path) -> LogFile:
    """The log in a file; that it is packed by gzip is recognised by its content, not by its name.

    Raises LogError if it is neither a file nor a pipe, cannot be read, is damaged, empty or not text.
    """
    name = path.as_posix()
    try:
        with _opened(path) as file:
            log = LogFile(str(path), name, file)
        if log.file().read(len(_GZIP)) == _GZIP:
            with gzip.GzipFile(fileobj=log.file(), mode="rb") as unpacked:
                log = LogFile(str(path), name.removesuffix(".gz"), cast("IO[bytes]", unpacked))
    except (OSError, ValueError, EOFError, zlib.error) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise LogError(f"log {path}", got=text, expected="a file that can be read") from error
    head = log.file().read(_HEAD_BYTES)
    control = len(head) - len(head.translate(None, _CONTROL))
    archive = head.startswith(_ZIP) or head.startswith(_TAR, _TAR_AT)
    if not head or archive or control > _MOST_CONTROL_SHARE * len(head):
        got = "not text" if head else "empty"
        remedy = "Unpack an archive first, and save UTF-16 as UTF-8"
        raise LogError(f"log {path}", got=got, expected="a training log, plain or packed by gzip", remedy=remedy)
    return log


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """A file, a pipe or standard input for reading."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    if stat.S_ISFIFO(path.stat().st_mode):
        # Without O_NONBLOCK, a named pipe that nobody writes to would be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
            os.set_blocking(pipe.fileno(), True)
            yield pipe
        return
    with open_regular(named_by_user(path)) as file:
        yield file
