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
from sqlalchemy.exc import ArgumentError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError

from helpers.history.address import refuse_ambiguous, without_password
from helpers.history.tables import HEAD
from helpers.history.waiting import Waiting, file_lock
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable, NoHistory

# How long a call waits for other writers before it is an error.
WAIT_SECONDS = 60
_CONNECT_SECONDS = 10
# Messages of a call that waited too long: SQLite says locked or busy, PostgreSQL cancels the statement.
_WAITED = ("database is locked", "database table is locked", "lock timeout", "LockNotAvailable")
# Messages of a server that answers but lets nobody in until somebody mends it.
_LOCKED_OUT = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist")
# A silent connection is cut after 10 s idle and three probes 5 s apart.
_PROBES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}
# The file system is full or read-only, or its server is gone. Any other error means a wrong path.
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT)
# PostgreSQL's codes: deadlock detected, could not serialise.
_DEADLOCKS = ("40P01", "40001")
# The number of PostgreSQL's advisory lock for making or migrating the tables; any number will do.
_MIGRATION_LOCK = 4_816_023_001
# A value that no result may hold raises these when it is written, and a damaged one when it is read.
_WRONG_VALUES = (ValueError, TypeError, OverflowError, RecursionError, struct.error, zlib.error)
_SQLITE = "sqlite"
_POSTGRESQL = "postgresql"
_KNOWN = "sqlite:///FOLDER/history.sqlite or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True)
class Database:
    """One history's database, whose tables exist in this suite's version."""

    engine: sa.Engine
    # The URL without its password.
    shown: str

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
        with explained(self.shown, _password(self.engine.url), what):
            yield


def open_database(
    url: str,
    wait_seconds: float = WAIT_SECONDS,
    on_wait: Callable[[str], None] | None = None,
    *,
    writes: bool = True,
) -> Database:
    """Open the database at ``url``, and make or migrate it if necessary. Raises HistoryError.

    Without ``writes`` it is only read: one that does not exist raises NoHistory, and only one of an older suite is
    written, to migrate it. With ``writes`` it can be read but not written if the disk is full or read-only, or the file
    belongs to another user. ``on_wait`` is called, from a thread of its own, for every wait for another process that
    takes longer than a second.
    """
    parsed = _parsed(url)
    shown = without_password(parsed.render_as_string(hide_password=False))
    waiting = Waiting(f"history {shown}", wait_seconds, on_wait)
    with explained(shown, _password(parsed), "opening it", wait_seconds):
        if not writes and (engine := _only_to_read(parsed, shown, wait_seconds, waiting)) is not None:
            return Database(engine, shown)
        if not _is_sqlite(parsed):
            return Database(_ready(_postgresql(parsed, wait_seconds, waiting), parsed, shown, waiting), shown)
        path = _file(parsed)
        check_regular(path, shown)
        try:
            engine = _ready(open_sqlite(path, wait_seconds, waiting), parsed, shown, waiting)
        except (OperationalError, OSError) as error:
            if not (path.exists() and refuses_writing(error)):
                raise
            to_read = open_to_read(path, wait_seconds, waiting)
            if to_read is None or _version(to_read, shown) != HEAD:
                raise
            engine = to_read
    return Database(engine, shown)


def _only_to_read(url: sa.URL, shown: str, wait_seconds: float, waiting: Waiting) -> sa.Engine | None:
    """An engine that writes nothing; None for an older suite's tables, and if a file cannot be opened in this way.
    Raises NoHistory."""
    if not _is_sqlite(url):
        return _if_current(_postgresql(url, wait_seconds, waiting, writes=False), shown)
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
    version = None
    try:
        version = _version(engine, shown)
    finally:
        if version != HEAD:
            engine.dispose()
    if version is None:
        raise _nothing_there(shown, "no tables")
    return engine if version == HEAD else None


def _nothing_there(shown: str, got: str) -> NoHistory:
    return NoHistory(
        f"history {shown}",
        got=got,
        expected="what measuring leaves",
        remedy="Measure first (pytest perf_tests), name another with --history, or run perfgate reindex",
    )


def _ready(engine: sa.Engine, url: sa.URL, shown: str, waiting: Waiting) -> sa.Engine:
    """``engine``, after its tables were made or migrated."""
    try:
        if _version(engine, shown) != HEAD:
            with _alone(engine, url, waiting), engine.execution_options(writes=True).begin() as connection:
                _migrate(connection, shown)
    except BaseException:
        engine.dispose()
        raise
    return engine


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
    again = getattr(getattr(cause, "orig", None), "sqlstate", None) in _DEADLOCKS
    return isinstance(error, HistoryError) and (again or isinstance(cause, IntegrityError))


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
            remedy="Another process holds the database: end it, or use PostgreSQL for many runners (--history URL)",
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


def _postgresql(url: sa.URL, wait_seconds: float, waiting: Waiting, *, writes: bool = True) -> sa.Engine:
    # A night is longer than many servers keep an idle connection.
    patience = {"connect_timeout": _CONNECT_SECONDS, **_PROBES}
    engine = sa.create_engine(url, pool_pre_ping=True, connect_args=patience)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = {round(1000 * wait_seconds)}")
        if not writes:
            cursor.execute("SET default_transaction_read_only = on")
        cursor.close()
        connection.commit()

    # Only the server knows which statement waits for another one's lock.
    sa.event.listen(engine, "before_cursor_execute", lambda *_: waiting.begin())
    sa.event.listen(engine, "after_cursor_execute", lambda *_: waiting.end())
    sa.event.listen(engine, "handle_error", lambda _: waiting.end())
    return engine


def _file(url: sa.URL) -> Path:
    return Path(url.database or "")


# ---- the version of its tables


def _version(engine: sa.Engine, shown: str) -> str | None:
    """The version of the tables; None if there are none. Raises HistoryError if a newer suite made them."""
    with engine.connect() as connection:
        return _version_in(connection, shown)


def _version_in(connection: sa.Connection, shown: str) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    # Versions are numbered in their order.
    if found is not None and str(found) > HEAD:
        raise HistoryError(
            f"history {shown}",
            field="version",
            got=str(found),
            expected=f"{HEAD} or older",
            remedy="A newer suite made it: update this one, or give this one a history of its own (--history URL)",
        )
    return None if found is None else str(found)


@contextmanager
def _alone(engine: sa.Engine, url: sa.URL, waiting: Waiting) -> Iterator[None]:
    """Until the block ends, nobody else sets this database up; a killed holder frees it."""
    if not _is_sqlite(url):
        # The migration takes the lock within its own transaction.
        yield
        return
    path = _file(url)
    with file_lock(path.with_name(f".{path.name}.lock"), waiting):
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            # This cannot be done within a transaction, and if two try it at once, SQLite refuses one without waiting.
            # On a disk without shared memory the old journal stays: it is slower with many writers, but as safe.
            if isinstance(driver, sqlite3.Connection):
                connection.exec_driver_sql("COMMIT")
                driver.execute("PRAGMA journal_mode = WAL")
                driver.execute("BEGIN")
        yield


def _migrate(connection: sa.Connection, shown: str) -> None:
    """Bring the tables to HEAD, in the caller's transaction."""
    # Only a process that migrates pays for the import.
    from alembic import command
    from alembic.config import Config

    if connection.dialect.name == _POSTGRESQL:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
    if _version_in(connection, shown) == HEAD:
        return
    config = Config()
    # The folder is given as a package's, because a percent sign in a path would be read as the start of a name.
    config.set_main_option("script_location", "helpers.history:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


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
