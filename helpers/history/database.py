"""The database behind the history: how it is found, opened and made, and what its errors mean."""

from __future__ import annotations

import errno
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError

from helpers.common.masking import without_password
from helpers.history.address import refuse_ambiguous
from helpers.history.making import has_tables, make_ready
from helpers.history.server import engine_of
from helpers.history.sqlite_file import check_regular, keep_private, open_sqlite, open_to_read, refuses_writing
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable, NoHistory

# Messages of a call that waited too long: SQLite says locked or busy, PostgreSQL cancels the statement.
_WAITED = ("another process holds it", "is locked", "lock timeout", "LockNotAvailable")
# Messages of a server that answers but lets nobody in until somebody mends it.
_LOCKED_OUT = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist")
# PostgreSQL's codes of a transaction that others hindered: it could not be serialised, or there was a deadlock.
_HINDERED = ("40001", "40P01")
# The file system is full or read-only, or its server is gone. Any other error means a wrong path.
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT)
# A value that no result may hold raises these when it is written, and a damaged one when it is read.
_WRONG_VALUES = (ValueError, TypeError, OverflowError, RecursionError, struct.error, zlib.error)
_SQLITE = "sqlite"
_POSTGRESQL = "postgresql"
_HELD_FILE = "Another process holds the file: find it with fuser, and let nobody else read it (chmod 600). {kept}"
_HELD_SERVER = "Another process holds the database: find it in the server's view pg_stat_activity. {kept}"
_KEPT = "Results stay in the run folder. The next session or perfgate reindex writes them"
_KNOWN = "sqlite:///FOLDER/history.sqlite or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True)
class Database:
    """One history's database, whose tables exist in this suite's version."""

    engine: sa.Engine
    # The URL without its password.
    shown: str
    # How long a call waits for other writers.
    wait_seconds: float

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
        with explained(self.shown, _password(self.engine.url), what, self.wait_seconds):
            yield


def open_database(url: str, wait_seconds: float, *, writes: bool, answer_seconds: float) -> Database:
    """Open the database at ``url``, and make it if necessary. Raises HistoryError.

    Without ``writes`` it is only read, and one that does not exist raises NoHistory. With ``writes`` it can be read but
    not written if the disk is full or read-only, or the file belongs to another user. A call to a server ends after
    ``answer_seconds``.
    """
    parsed = _parsed(url)
    shown = without_password(parsed.render_as_string(hide_password=False))
    with explained(shown, _password(parsed), "opening it", wait_seconds):
        if _is_sqlite(parsed):
            path = _file(parsed)
            check_regular(path, shown)
            opened = _file_to_write if writes else _file_to_read
            return Database(opened(path, shown, wait_seconds), shown, wait_seconds)
        engine = engine_of(parsed, wait_seconds, answer_seconds, writes=writes)
        engine = make_ready(engine, None, shown, wait_seconds) if writes else _if_there(engine, shown)
        return Database(engine, shown, wait_seconds)


def _file_to_write(path: Path, shown: str, wait_seconds: float) -> sa.Engine:
    try:
        engine = make_ready(open_sqlite(path, wait_seconds), path, shown, wait_seconds)
        keep_private(path)
    except (OperationalError, OSError) as error:
        if not (path.exists() and refuses_writing(error)):
            raise
        to_read = open_to_read(path, wait_seconds)
        if to_read is None or not has_tables(to_read, shown):
            raise
        return to_read
    return engine


def _file_to_read(path: Path, shown: str, wait_seconds: float) -> sa.Engine:
    if not path.exists():
        raise _nothing_there(shown, "no such file")
    try:
        # Not as a file to be read only: what SQLite makes beside it would stay, and might keep its owner from writing.
        return _if_there(open_sqlite(path, wait_seconds, writes=False), shown)
    except (OperationalError, OSError) as error:
        to_read = open_to_read(path, wait_seconds) if refuses_writing(error) else None
        if to_read is None:
            raise
        return _if_there(to_read, shown)


def _if_there(engine: sa.Engine, shown: str) -> sa.Engine:
    """``engine``. Raises NoHistory if it has no tables."""
    found = False
    try:
        found = has_tables(engine, shown)
    finally:
        if not found:
            engine.dispose()
    if not found:
        raise _nothing_there(shown, "no tables")
    return engine


def _nothing_there(shown: str, got: str) -> NoHistory:
    return NoHistory(
        f"history {shown}",
        got=got,
        expected="what measuring leaves",
        remedy="Measure first (pytest perf_tests), name another with --history, or run perfgate reindex",
    )


@contextmanager
def explained(shown: str, password: str | None, what: str, wait_seconds: float) -> Iterator[None]:
    """Turn the libraries' errors into HistoryError, without the password."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError, *_WRONG_VALUES) as error:
        raise _refusal(shown, password, what, error, wait_seconds) from error


def came_between(error: BaseException) -> bool:
    """Whether a transaction is to be repeated: another writer made the same row, or waited for ours."""
    cause = error.__cause__
    return isinstance(error, HistoryError) and (_sqlstate(cause) in _HINDERED or isinstance(cause, IntegrityError))


def _sqlstate(cause: BaseException | None) -> str | None:
    return getattr(getattr(cause, "orig", None), "sqlstate", None)


def _refusal(shown: str, password: str | None, what: str, error: Exception, wait_seconds: float) -> HistoryError:
    original = str(getattr(error, "orig", None) or error).strip()
    got = " ".join((original or type(error).__name__).split())
    if password:
        got = got.replace(password, "***")
    if any(sign in got or sign in type(getattr(error, "orig", error)).__name__ for sign in _WAITED):
        in_file = shown.startswith(_SQLITE)
        return HistoryUnreachable(
            f"history {shown}",
            got=got,
            expected=f"{what} within {wait_seconds:g} s",
            remedy=(_HELD_FILE if in_file else _HELD_SERVER).format(kept=_KEPT),
        )
    if not isinstance(error, (SQLAlchemyError, sqlite3.Error, OSError)):
        return HistoryError(f"history {shown}", got=got, expected=f"{what} of plain values")
    if shown.startswith(_SQLITE):
        remedy = (
            "Free the disk or the rights on that folder; if the file is damaged, move it away and rebuild it "
            "from the run folders: perfgate reindex"
        )
    elif "read-only transaction" in got:
        remedy = "This server only reads. Name the one that is written to (--history URL)"
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
