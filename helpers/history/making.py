"""The version of a history's tables, and how they are made while others do the same."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from helpers.common.files import lock_within, open_lock
from helpers.history.tables import TABLES_VERSION, history_version, metadata
from helpers.trainers.contract.errors import HistoryError

_POSTGRESQL = "postgresql"
# The number of PostgreSQL's advisory lock for making the tables; any number will do.
_MAKING_LOCK = 4_816_023_001
_MOST_NAMED = 3


def make_ready(engine: sa.Engine, file: Path | None, shown: str, wait_seconds: float) -> sa.Engine:
    """``engine``, after its tables were made. ``file`` is SQLite's, None for a server."""
    try:
        if not has_tables(engine, shown):
            if file is None:
                _make(engine, shown)
            else:
                with _alone(engine, file, wait_seconds):
                    _make(engine, shown)
    except BaseException:
        engine.dispose()
        raise
    return engine


def has_tables(engine: sa.Engine, shown: str) -> bool:
    """Whether there is a history. Raises HistoryError if another version of the suite made it, or another program."""
    with engine.connect() as connection:
        return _has_tables(connection, shown)


def _has_tables(connection: sa.Connection, shown: str) -> bool:
    there = set(sa.inspect(connection).get_table_names())
    if not there:
        return False
    if not there >= set(metadata.tables):
        # A server's database may be shared with another program.
        if connection.dialect.name == _POSTGRESQL and not there & set(metadata.tables):
            return False
        raise HistoryError(
            f"history {shown}",
            field="tables",
            got=f"those of another program ({', '.join(sorted(there)[:_MOST_NAMED])})",
            expected="a history, or a database without tables",
            remedy="Name another: --history URL, or history.url in perf.yaml",
        )
    found = connection.execute(sa.select(history_version.c.version)).scalar()
    if found != TABLES_VERSION:
        raise HistoryError(
            f"history {shown}",
            field="version",
            got=found,
            expected=str(TABLES_VERSION),
            remedy="Another version of the suite made it: use that one, or a history of its own (--history URL)",
        )
    return True


@contextmanager
def _alone(engine: sa.Engine, file: Path, wait_seconds: float) -> Iterator[None]:
    """Until the block ends, nobody else sets this file up; a killed holder frees it."""
    descriptor = open_lock(file.with_name(f".{file.name}.lock"))
    try:
        lock_within(wait_seconds, descriptor, fcntl.LOCK_EX)
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            # This cannot be done within a transaction, and if two try it at once, SQLite refuses one without waiting.
            # On a disk without shared memory the old journal stays: it is slower with many writers, but as safe.
            if isinstance(driver, sqlite3.Connection):
                connection.exec_driver_sql("COMMIT")
                driver.execute("PRAGMA journal_mode = WAL")
                driver.execute("BEGIN")
        yield
    finally:
        os.close(descriptor)


def _make(engine: sa.Engine, shown: str) -> None:
    with engine.execution_options(writes=True).begin() as connection:
        if connection.dialect.name == _POSTGRESQL:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MAKING_LOCK})")
        if not _has_tables(connection, shown):
            metadata.create_all(connection)
            connection.execute(sa.insert(history_version), {"version": TABLES_VERSION})
