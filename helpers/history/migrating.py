"""The version of a history's tables, and how they are made and migrated while others write."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from helpers.history.server import HINDERED, LOCKED
from helpers.history.tables import HEAD
from helpers.history.waiting import Waiting, file_lock
from helpers.trainers.contract.errors import HistoryError

_POSTGRESQL = "postgresql"
# The number of PostgreSQL's advisory lock for making or migrating the tables; any number will do.
_MIGRATION_LOCK = 4_816_023_001
# A migration that waits for a table holds up everybody who wants that table after it. So it gives up soon, lets the
# others write, and begins again.
_TABLE_WAIT_SECONDS = 0.5
_PAUSE_SECONDS = 1.0


def make_ready(engine: sa.Engine, file: Path | None, shown: str, waiting: Waiting) -> sa.Engine:
    """``engine``, after its tables were made or migrated. ``file`` is SQLite's, None for a server."""
    try:
        if version(engine, shown) != HEAD:
            if file is None:
                # The migration takes the server's lock within its own transaction.
                _bring_to_head(engine, shown, waiting)
            else:
                with _alone(engine, file, waiting):
                    _bring_to_head(engine, shown, waiting)
    except BaseException:
        engine.dispose()
        raise
    return engine


def version(engine: sa.Engine, shown: str) -> str | None:
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
def _alone(engine: sa.Engine, file: Path, waiting: Waiting) -> Iterator[None]:
    """Until the block ends, nobody else sets this file up; a killed holder frees it."""
    with file_lock(file.with_name(f".{file.name}.lock"), waiting):
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            # This cannot be done within a transaction, and if two try it at once, SQLite refuses one without waiting.
            # On a disk without shared memory the old journal stays: it is slower with many writers, but as safe.
            if isinstance(driver, sqlite3.Connection):
                connection.exec_driver_sql("COMMIT")
                driver.execute("PRAGMA journal_mode = WAL")
                driver.execute("BEGIN")
        yield


def _bring_to_head(engine: sa.Engine, shown: str, waiting: Waiting) -> None:
    """Make or migrate the tables in one transaction, which is begun again while others hold a table."""
    deadline = time.monotonic() + waiting.limit_seconds
    while True:
        try:
            with engine.execution_options(writes=True).begin() as connection:
                _migrate(connection, shown)
            return
        except OperationalError as error:
            hindered = getattr(error.orig, "sqlstate", None) in (LOCKED, *HINDERED)
            if not hindered or time.monotonic() + _PAUSE_SECONDS >= deadline:
                raise
        with waiting.during():
            time.sleep(_PAUSE_SECONDS)


def _migrate(connection: sa.Connection, shown: str) -> None:
    """Bring the tables to HEAD, in the caller's transaction."""
    # Only a process that migrates pays for the import.
    from alembic import command
    from alembic.config import Config

    if connection.dialect.name == _POSTGRESQL:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(1000 * _TABLE_WAIT_SECONDS)}")
        # Reading the migrations' files takes time between two statements.
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 60000")
    if _version_in(connection, shown) == HEAD:
        return
    config = Config()
    # The folder is given as a package's, because a percent sign in a path would be read as the start of a name.
    config.set_main_option("script_location", "helpers.history:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
