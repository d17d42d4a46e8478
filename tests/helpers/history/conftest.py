"""Each test of the history runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.history import open_history
from helpers.history.history import History
from helpers.history.tables import metadata
from tests.helpers.history.postgres import Server, running_server

KINDS = ["sqlite", "postgresql"]


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
def made_database(postgres: Server) -> str:
    """The URL of a new history on PostgreSQL, to be emptied after use."""
    url = postgres.new_database()
    open_history(url).close()
    return url


@pytest.fixture(params=KINDS)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    """An open history without any row."""
    if request.param == "sqlite":
        path = tmp_path / "history.sqlite"
        shutil.copy(request.getfixturevalue("made_file"), path)
        with open_history(f"sqlite:///{path}") as opened:
            yield opened
        return
    with open_history(request.getfixturevalue("made_database")) as opened:
        yield opened
        with opened._database.writing() as connection:
            connection.exec_driver_sql(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
