"""The database behind the history: how it is found, opened, made and migrated, and what its errors mean."""

from __future__ import annotations

import errno
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)

from helpers.history.address import refuse_ambiguous, without_password
from helpers.history.migrating import make_ready, version
from helpers.history.server import HINDERED, LOCKED, Connections, engine_of
from helpers.history.tables import HEAD
from helpers.history.waiting import Waiting
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable, NoHistory

# How long a call waits for other writers before it is an error.
WAIT_SECONDS = 60
# How long a call to a server that was reached before is tried again.
PATIENCE_SECONDS = 2.5
# Messages of a call that waited too long: SQLite says locked or busy, PostgreSQL cancels the statement.
_WAITED = ("database is locked", "database table is locked", "lock timeout", "LockNotAvailable")
# Messages of a server that answers but lets nobody in until somebody mends it.
_LOCKED_OUT = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist")
# PostgreSQL's code of a row without a value that a newer suite's table wants, and SQLite's words for a name it lacks.
_NOT_NULL = "23502"
_UNKNOWN_NAMES = ("no such table", "no such column", "has no column named")
# The file system is full or read-only, or its server is gone. Any other error means a wrong path.
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT)
# A value that no result may hold raises these when it is written, and a damaged one when it is read.
_WRONG_VALUES = (ValueError, TypeError, OverflowError, RecursionError, struct.error, zlib.error)
_SQLITE = "sqlite"
_POSTGRESQL = "postgresql"
_HELD_FILE = "Another process holds the database: end it, or use PostgreSQL for many runners (--history URL)"
_HELD_SERVER = "Another process holds the database: find it in the server's view pg_stat_activity, or try again later"
_KNOWN = "sqlite:///FOLDER/history.sqlite or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True)
class Database:
    """One history's database, whose tables exist in this suite's version."""

    engine: sa.Engine
    # The URL without its password.
    shown: str
    # How long a call waits for other writers.
    wait_seconds: float = WAIT_SECONDS
    # How long a call is tried again while a server that was reached is away: a restart takes about a second.
    patience_seconds: float = 0.0

    @property
    def folder(self) -> Path | None:
        """Where SQLite's file is; None for a server, and for a file that is only read."""
        return _file(self.engine.url).parent if _is_sqlite(self.engine.url) and self.engine.url.database else None

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection for queries. Raises HistoryError for whatever the database refuses."""
        with self._explained("a reading"), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction: durable when the block ends, undone when it raises. Waits for other writers."""
        with self._explained("a writing"), self.engine.execution_options(writes=True).begin() as connection:
            yield connection

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            with explained(self.shown, _password(self.engine.url), what, self.wait_seconds):
                yield
        except HistoryError as error:
            if _other_tables(error) and (newer := self._newer()):
                raise newer from error
            raise

    def _newer(self) -> HistoryUnreachable | None:
        """The error if a newer suite migrated the tables since they were opened. The entry is not wrong: it can be kept
        on disk for the newer suite."""
        try:
            version(self.engine, self.shown)
        except HistoryError as error:
            return HistoryUnreachable(
                error.about, field=error.field, got=error.got, expected=error.expected, remedy=error.remedy
            )
        except SQLAlchemyError:
            pass
        return None

    def release(self) -> None:
        """Close the connections to a server, which has room for some hundred only; the next call opens one."""
        if not self.shown.startswith(_SQLITE):
            self.engine.dispose()


def open_database(
    url: str,
    wait_seconds: float = WAIT_SECONDS,
    on_wait: Callable[[str], None] | None = None,
    *,
    writes: bool = True,
    connections: Connections | None = None,
) -> Database:
    """Open the database at ``url``, and make or migrate it if necessary. Raises HistoryError.

    Without ``writes`` it is only read: one that does not exist raises NoHistory, and only one of an older suite is
    written, to migrate it. With ``writes`` it can be read but not written if the disk is full or read-only, or the file
    belongs to another user. ``on_wait`` is called, from a thread of its own, for every wait for another process that
    takes longer than a second. The connections to a server are added to ``connections``.
    """
    parsed = _parsed(url)
    shown = without_password(parsed.render_as_string(hide_password=False))
    waiting = Waiting(f"history {shown}", wait_seconds, on_wait)
    with explained(shown, _password(parsed), "opening it", wait_seconds):
        patience_seconds = 0.0 if _is_sqlite(parsed) else PATIENCE_SECONDS
        if not writes and (engine := _only_to_read(parsed, shown, wait_seconds, waiting)) is not None:
            return Database(engine, shown, wait_seconds, patience_seconds)
        if not _is_sqlite(parsed):
            engine = make_ready(engine_of(parsed, wait_seconds, waiting, connections), None, shown, waiting)
            return Database(engine, shown, wait_seconds, patience_seconds)
        path = _file(parsed)
        check_regular(path, shown)
        try:
            engine = make_ready(open_sqlite(path, wait_seconds, waiting), path, shown, waiting)
        except (OperationalError, OSError) as error:
            if not (path.exists() and refuses_writing(error)):
                raise
            to_read = open_to_read(path, wait_seconds, waiting)
            if to_read is None or version(to_read, shown) != HEAD:
                raise
            engine = to_read
    return Database(engine, shown, wait_seconds)


def _only_to_read(url: sa.URL, shown: str, wait_seconds: float, waiting: Waiting) -> sa.Engine | None:
    """An engine that writes nothing; None for an older suite's tables, and if a file cannot be opened in this way.
    Raises NoHistory."""
    if not _is_sqlite(url):
        return _if_current(engine_of(url, wait_seconds, waiting, writes=False), shown)
    path = _file(url)
    check_regular(path, shown)
    if not path.exists():
        raise _nothing_there(shown, "no such file")
    try:
        # Not as a file to be read only: what SQLite makes beside it would stay, and might keep its owner from writing.
        return _if_current(open_sqlite(path, wait_seconds, waiting, writes=False), shown)
    except (OperationalError, OSError) as error:
        if not refuses_writing(error):
            raise
        to_read = open_to_read(path, wait_seconds, waiting)
        return None if to_read is None else _if_current(to_read, shown)


def _if_current(engine: sa.Engine, shown: str) -> sa.Engine | None:
    """``engine``; None, and it is disposed of, for tables of an older suite. Raises NoHistory if there are none."""
    found = None
    try:
        found = version(engine, shown)
    finally:
        if found != HEAD:
            engine.dispose()
    if found is None:
        raise _nothing_there(shown, "no tables")
    return engine if found == HEAD else None


def _nothing_there(shown: str, got: str) -> NoHistory:
    return NoHistory(
        f"history {shown}",
        got=got,
        expected="what measuring leaves",
        remedy="Measure first (pytest perf_tests), name another with --history, or run perfgate reindex",
    )


@contextmanager
def explained(shown: str, password: str | None, what: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Turn the libraries' errors into HistoryError, without the password."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError, *_WRONG_VALUES) as error:
        raise _refusal(shown, password, what, error, wait_seconds) from error


def came_between(error: BaseException) -> bool:
    """Whether a transaction is to be repeated: another writer made the same row, or waited for ours."""
    cause = error.__cause__
    return isinstance(error, HistoryError) and (_sqlstate(cause) in HINDERED or isinstance(cause, IntegrityError))


def was_hindered(error: HistoryError) -> bool:
    """Whether a reading is to be repeated: it was in the way of what a replica had to take over."""
    return _sqlstate(error.__cause__) in HINDERED


def may_be_back_soon(error: HistoryError) -> bool:
    """Whether a server may answer the next attempt: it was restarted, it had no room, or a connection was cut."""
    away = isinstance(error, HistoryUnreachable) and isinstance(error.__cause__, (OperationalError, InterfaceError))
    return away and _sqlstate(error.__cause__) != LOCKED


def _sqlstate(cause: BaseException | None) -> str | None:
    return getattr(getattr(cause, "orig", None), "sqlstate", None)


def _other_tables(error: HistoryError) -> bool:
    """Whether a statement found tables that are not those of this suite."""
    cause = error.__cause__
    if isinstance(cause, IntegrityError):
        return _sqlstate(cause) == _NOT_NULL
    unknown = isinstance(cause, OperationalError) and any(sign in str(cause.orig) for sign in _UNKNOWN_NAMES)
    return unknown or isinstance(cause, ProgrammingError)


def _refusal(shown: str, password: str | None, what: str, error: Exception, wait_seconds: float) -> HistoryError:
    original = str(getattr(error, "orig", None) or error).strip()
    got = " ".join((original or type(error).__name__).split())
    if password:
        got = got.replace(password, "***")
    if any(sign in got or sign in type(getattr(error, "orig", error)).__name__ for sign in _WAITED):
        return HistoryUnreachable(
            f"history {shown}",
            got=got,
            expected=f"{what} within {wait_seconds:g} s",
            remedy=_HELD_FILE if shown.startswith(_SQLITE) else _HELD_SERVER,
        )
    if not isinstance(error, (SQLAlchemyError, sqlite3.Error, OSError)):
        return HistoryError(f"history {shown}", got=got, expected=f"{what} of plain values")
    if shown.startswith(_SQLITE):
        remedy = (
            "Free the disk or the rights on that folder; if the file is damaged, move it away and rebuild it "
            "from the run folders: perfgate reindex"
        )
    elif "read-only transaction" in got:
        remedy = (
            "This server only reads. Name the one that is written to (--history URL); a history of an older suite has "
            "to be opened there once, which migrates it"
        )
    elif "conflict with recovery" in got:
        remedy = (
            "This replica took over a change that the query was in the way of. Ask again, or let the administrator set "
            "hot_standby_feedback or a longer max_standby_streaming_delay there"
        )
    elif "too many c" in got or "connection slots" in got:
        remedy = "The server has no room for another connection: let its administrator raise max_connections"
    else:
        remedy = "Check that the server runs, and the URL's host, user, password and database (--history URL)"
    kind = HistoryUnreachable if _is_away(error, got) else HistoryError
    return kind(f"history {shown}", got=got, expected=f"{what} that succeeds", remedy=remedy)


def _is_away(error: Exception, got: str) -> bool:
    """Whether the database may answer later without a change of the suite or its options.

    Both drivers raise an OperationalError if a server cannot be reached, goes down or has no room, and if a file is
    locked, read-only or cannot be opened; a damaged file and a wrong statement are other classes.
    """
    if isinstance(error, (OperationalError, sqlite3.OperationalError)):
        return not any(sign in got for sign in _LOCKED_OUT) and "no such table" not in got
    lost = isinstance(error, InterfaceError) or getattr(error, "connection_invalidated", False)
    return bool(lost) or (isinstance(error, OSError) and error.errno in _PASSING)


# ---- where the database is


def _parsed(url: str) -> sa.URL:
    refuse_ambiguous(url)
    try:
        # A file's name may hold a question mark, at which a URL would be cut.
        file = url.removeprefix(f"{_SQLITE}:///")
        parsed = sa.make_url(url) if file == url else sa.URL.create(_SQLITE, database=file)
    except (ArgumentError, ValueError):
        raise HistoryError(
            "history URL", got=without_password(url), expected=_KNOWN, remedy="Set --history or perf.yaml's history"
        ) from None
    # Both spellings are common, but neither names the driver that is installed here.
    if parsed.drivername in ("postgres", _POSTGRESQL):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in (_SQLITE, "postgresql+psycopg"):
        raise HistoryError(
            "history URL", field="database", got=parsed.drivername, expected=_KNOWN, remedy="Set another --history"
        )
    if parsed.drivername == _SQLITE and parsed.database in (None, "", ":memory:"):
        raise HistoryError(
            "history URL", field="file", got=url, expected=_KNOWN, remedy="A history in memory would be lost"
        )
    return parsed


def _is_sqlite(url: sa.URL) -> bool:
    return url.get_backend_name() == _SQLITE


def _password(url: sa.URL) -> str | None:
    within = url.query.get("password")
    return url.password or (within if isinstance(within, str) else None)


def _file(url: sa.URL) -> Path:
    return Path(url.database or "")


# ---- a file of SQLite


# In WAL mode a reader writes, too: the readers are listed beside the file.
_REFUSALS = ("readonly database", "unable to open database file", "disk is full", "disk I/O error")
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)


def check_regular(path: Path, shown: str) -> None:
    """Raises HistoryError for a device and the like, from which SQLite would read without end."""
    if path.exists() and not path.is_file():
        raise HistoryError(
            f"history {shown}",
            field="file",
            got="not a regular file",
            expected="SQLite's file, or nothing yet",
            remedy="Name another file (--history URL)",
        )


def open_sqlite(path: Path, wait_seconds: float, waiting: Waiting, *, writes: bool = True) -> sa.Engine:
    """An engine that reads and, with ``writes``, writes; makes the file's folder. Raises OSError."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True)
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)), connect_args={"timeout": wait_seconds})
    _prepare(engine, waiting, writes=writes)
    return engine


def refuses_writing(error: Exception) -> bool:
    """Whether a file could not be opened only because nothing can be written in its folder."""
    if isinstance(error, OperationalError):
        return any(sign in str(error.orig) for sign in _REFUSALS)
    return isinstance(error, OSError) and error.errno in _REFUSED


def open_to_read(path: Path, wait_seconds: float, waiting: Waiting) -> sa.Engine | None:
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
        _prepare(engine, waiting)
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


def _prepare(engine: sa.Engine, waiting: Waiting, *, writes: bool = True) -> None:
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
        with waiting.during():
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
            # Only here does a reader wait for a process that holds the file for itself.
            connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1")
