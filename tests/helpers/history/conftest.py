"""Each test of the history runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.history import open_history
from helpers.history.history import History
from helpers.history.tables import history_version, metadata
from tests.faults.postgres import Server, running_server

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database that does not exist yet, or is empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'history.sqlite'}"
    server: Server = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture(scope="session")
def made_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new history on SQLite, to be copied: making one waits for the disk at each table."""
    path = tmp_path_factory.mktemp("made") / "history.sqlite"
    open_history(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def opened_file(made_file: Path) -> Iterator[History]:
    """A history on SQLite, to be emptied after use: an open one has composed its statements already."""
    path = made_file.with_name("opened.sqlite")
    shutil.copy(made_file, path)
    with open_history(f"sqlite:///{path}") as opened:
        yield opened


@pytest.fixture(scope="session")
def opened_database(postgres: Server) -> Iterator[History]:
    """A history on PostgreSQL, to be emptied after use."""
    with open_history(postgres.new_database()) as opened:
        yield opened


@pytest.fixture(params=KINDS)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    """An open history without any row."""
    opened: History = request.getfixturevalue("opened_file" if request.param == "sqlite" else "opened_database")
    yield History(opened._database, tmp_path / "decided")
    with opened._database.writing() as connection:
        for table in reversed(metadata.sorted_tables):
            if table is not history_version:
                connection.execute(table.delete())
