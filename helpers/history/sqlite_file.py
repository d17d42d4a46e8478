"""Opens a history in a file of SQLite: for writing, or only for reading where nothing can be written."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from helpers.history.waiting import Waiting
from helpers.trainers.contract.errors import HistoryError

# In WAL mode a reader writes, too: the readers are listed beside the file.
_REFUSALS = ("readonly database", "unable to open database file", "disk is full", "disk I/O error")
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)


def check_regular(path: Path, shown: str) -> None:
    """Raise HistoryError on a device and the like, from which SQLite would read without end."""
    if path.exists() and not path.is_file():
        raise HistoryError(
            f"history {shown}",
            field="file",
            got="not a regular file",
            expected="SQLite's file, or nothing yet",
            remedy="Name another file (--history URL)",
        )


def open_sqlite(path: Path, wait_seconds: float, waiting: Waiting) -> sa.Engine:
    """An engine that reads and writes; makes the file's folder. Raises OSError."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True)
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)), connect_args={"timeout": wait_seconds})
    _prepare(engine, waiting)
    return engine


def refuses_writing(error: Exception) -> bool:
    """Whether a file could not be opened for the only reason that nothing can be written where it lies."""
    if isinstance(error, OperationalError):
        return any(sign in str(error.orig) for sign in _REFUSALS)
    return isinstance(error, OSError) and error.errno in _REFUSED


def open_to_read(path: Path, wait_seconds: float, waiting: Waiting) -> sa.Engine | None:
    """An engine that only reads; None where that is impossible too.

    What a writer has not yet put into the file itself stands in another beside it, and counts. Only where that is empty
    is the file opened as one that never changes.
    """
    name = quote(str(path.absolute()))
    beside = path.with_name(f"{path.name}-wal")
    ways = ["mode=ro"] if beside.exists() and beside.stat().st_size else ["mode=ro", "immutable=1"]
    for way in ways:
        engine = sa.create_engine(
            "sqlite://", creator=_connect(f"file:{name}?{way}", wait_seconds), poolclass=sa.pool.QueuePool
        )
        _prepare(engine, waiting)
        try:
            with engine.connect():
                return engine
        except OperationalError:
            engine.dispose()
    return None


def _connect(uri: str, wait_seconds: float) -> Callable[[], sqlite3.Connection]:
    # The engine hands a connection from thread to thread, as SQLAlchemy does for every file.
    return lambda: sqlite3.connect(uri, uri=True, timeout=wait_seconds, check_same_thread=False)


def _prepare(engine: sa.Engine, waiting: Waiting) -> None:
    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        # Transactions begin below: sqlite3 itself would begin them too late, and never for DDL.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # In WAL mode the default does not wait for the disk at each commit.
        connection.execute("PRAGMA synchronous = FULL")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # SQLite does not make a transaction wait that turns from reading to writing after another wrote: it refuses it.
        writes = connection.get_execution_options().get("writes", False)
        with waiting.during():
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
            # Here, and nowhere later, a reader waits for a process that holds the file for itself.
            connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1")
