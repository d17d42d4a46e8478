"""A history in SQLite's file: how it is made so that no other user can hold it, and opened."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from helpers.common.files import check_not_planted, lock_mode, make_folder, own_mode
from helpers.trainers.contract.errors import HistoryError

# In WAL mode a reader writes, too: the readers are listed beside the file.
_REFUSALS = ("readonly database", "unable to open database file", "disk is full", "disk I/O error")
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)


def check_regular(path: Path, shown: str) -> None:
    """Raises HistoryError for a device and the like, from which SQLite would read without end, and for a file or link
    that another user planted."""
    try:
        check_not_planted(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise HistoryError(
            f"history {shown}",
            field="file",
            got=str(error),
            expected="one of this user",
            remedy="Name a file in a folder of your own (--history URL)",
        ) from error
    if path.exists() and not path.is_file():
        raise HistoryError(
            f"history {shown}",
            field="file",
            got="not a regular file",
            expected="SQLite's file, or nothing yet",
            remedy="Name another file (--history URL)",
        )


def open_sqlite(path: Path, wait_seconds: float, *, writes: bool = True) -> sa.Engine:
    """An engine that reads and, with ``writes``, writes; makes the file and its folder for this user alone. Raises
    OSError."""
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)), connect_args={"timeout": wait_seconds})
    _prepare(engine, writes=writes)
    if writes:
        make_folder(path.parent)

        @sa.event.listens_for(engine, "do_connect")
        def make(*_: object) -> None:
            # Not opened: closing it again would end the locks of all other connections of this process. SQLite makes
            # the files beside it with the same mode.
            with contextlib.suppress(FileExistsError):
                os.mknod(path, stat.S_IFREG | own_mode(path.parent))

    return engine


def keep_private(path: Path) -> None:
    """Take the right to read this user's file, and those beside it, from those who may not write to them: they could
    hold them for ever."""
    for each in (path, *_beside(path)):
        with contextlib.suppress(OSError):
            state = each.stat()
            if state.st_uid == os.geteuid() and lock_mode(state.st_mode) != stat.S_IMODE(state.st_mode):
                each.chmod(lock_mode(state.st_mode))


def _beside(path: Path) -> tuple[Path, ...]:
    """The files that SQLite keeps beside its own while it is open, in which it locks too."""
    return tuple(path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))


def refuses_writing(error: Exception) -> bool:
    """Whether a file could not be opened only because nothing can be written in its folder."""
    if isinstance(error, OperationalError):
        return any(sign in str(error.orig) for sign in _REFUSALS)
    return isinstance(error, OSError) and error.errno in _REFUSED


def open_to_read(path: Path, wait_seconds: float) -> sa.Engine | None:
    """An engine that only reads; None if even that is impossible.

    Rows that a writer has not yet moved into the file itself are in another file beside it, and they count. Only if
    that one is empty is the file opened as one that never changes.
    """
    name = quote(str(path.absolute()))
    beside = path.with_name(f"{path.name}-wal")
    ways = ["mode=ro"] if beside.exists() and beside.stat().st_size else ["mode=ro", "immutable=1"]
    for way in ways:
        engine = sa.create_engine(
            "sqlite://", creator=_connect(f"file:{name}?{way}", wait_seconds), poolclass=sa.pool.QueuePool
        )
        _prepare(engine)
        try:
            with engine.connect():
                return engine
        except OperationalError as error:
            engine.dispose()
            # Whoever holds the file may be writing: it is not one that never changes.
            if not refuses_writing(error):
                raise
    return None


def _connect(uri: str, wait_seconds: float) -> Callable[[], sqlite3.Connection]:
    # The engine hands a connection from thread to thread, as SQLAlchemy does for every file.
    return lambda: sqlite3.connect(uri, uri=True, timeout=wait_seconds, check_same_thread=False)


def _prepare(engine: sa.Engine, *, writes: bool = True) -> None:
    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        # Transactions begin below: sqlite3 itself would begin them too late, and never for DDL.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # In WAL mode the default does not wait for the disk at each commit.
        connection.execute("PRAGMA synchronous = FULL")
        if not writes:
            connection.execute("PRAGMA query_only = ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A transaction that begins to write after another one wrote does not wait: SQLite refuses it.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
