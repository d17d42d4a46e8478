"""The database: made on first use, whoever comes first; refused in words, without a password."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from helpers.history import default_url, open_history
from helpers.history.database import open_database
from helpers.history.tables import metadata
from helpers.trainers.contract.errors import HistoryError, NoHistory
from tests.faults.postgres import Server
from tests.helpers.history.made import CASE, run

ROOT = Path(__file__).parents[3]
# Making histories is what is tested here.
pytestmark = pytest.mark.usefixtures("histories_made")


def engine_of(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)


def tables(url: str) -> set[str]:
    return set(sa.inspect(engine_of(url)).get_table_names())


def refused(url: str) -> HistoryError:
    with pytest.raises(HistoryError) as caught:
        open_history(url)
    return caught.value


# --- made


def test_the_history_is_a_file_beside_the_runs_unless_another_is_named(tmp_path: Path) -> None:
    with open_history(default_url(tmp_path / "new" / "runs")) as history:
        history.add_result(run("u"))
    assert (tmp_path / "new" / "runs" / "history.sqlite").is_file()
    with open_history(f"sqlite:///{tmp_path}/new/runs/history.sqlite") as history:
        assert len(history.results_of(case_id=CASE)) == 1


def test_a_file_is_written_through_and_keeps_its_references(tmp_path: Path) -> None:
    database = open_database(default_url(tmp_path), 8.0, writes=True, answer_seconds=1.0)
    with database.reading() as connection:
        told = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    database.engine.dispose()
    # 2 is FULL: each commit waits for the disk.
    assert told == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 8000}


def test_a_file_is_set_up_by_one_process_at_a_time(tmp_path: Path) -> None:
    # To a second one SQLite refuses the change of journal without waiting, one time in many.
    with (tmp_path / ".history.sqlite.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        opening = threading.Thread(target=lambda: open_history(default_url(tmp_path)).close())
        opening.start()
        opening.join(0.3)
        assert opening.is_alive()
        assert tables(default_url(tmp_path)) == set()
    opening.join()
    assert "results" in tables(default_url(tmp_path))


def test_a_making_cut_short_leaves_nothing_and_is_done_by_the_next(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Callable[..., Any] = metadata.create_all

    def cut_short(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(metadata, "create_all", cut_short)
        with pytest.raises(KeyboardInterrupt):
            open_history(url)
    assert tables(url) == set()
    with open_history(url) as history:
        history.add_result(run("u"))


# --- opened to be read


def test_what_is_opened_to_be_read_cannot_be_written(url: str) -> None:
    with open_history(url) as history:
        history.add_result(run("u"))
    with open_history(url, writes=False) as history:
        assert len(history.results_of(case_id=CASE)) == 1
        with pytest.raises(HistoryError, match=r"readonly database|read-only transaction"):
            history.add_result(run("v"))


def test_what_does_not_exist_is_not_made_to_be_read(url: str, tmp_path: Path) -> None:
    with pytest.raises(NoHistory, match="Measure first"):
        open_history(url, writes=False)
    assert list(tmp_path.iterdir()) == []
    if not url.startswith("sqlite"):
        assert tables(url) == set()


def test_a_database_of_another_version_is_refused(url: str) -> None:
    open_history(url).close()
    with engine_of(url).begin() as connection:
        connection.exec_driver_sql("UPDATE history_version SET version = 9999")
    error = refused(url)
    assert (error.field, error.got) == ("version", 9999)


def test_a_server_s_database_may_be_shared_with_other_tables_but_not_of_the_same_name(postgres: Server) -> None:
    url = postgres.new_database()
    with engine_of(url).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE bookmarks (x integer)")
    with open_history(url) as history:
        history.add_result(run("u"))
    other = postgres.new_database()
    with engine_of(other).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE results (x integer)")
    assert refused(other).field == "tables"


# --- refused


@pytest.mark.parametrize(
    "url",
    [
        "",
        "history.sqlite",
        "mysql://me:secret@host/db",
        "oracle://me:secret@host/db",
        "postgresql+asyncpg://me:secret@host/db",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://me:secret@host:port/db",
        "://me:secret@host",
    ],
)
def test_what_is_no_history_is_refused_with_what_is(url: str) -> None:
    text = str(refused(url))
    assert "sqlite:///FOLDER/history.sqlite or postgresql://USER@HOST/DATABASE" in text
    assert "secret" not in text


def test_the_url_is_shown_without_its_password(postgres: Server) -> None:
    url = postgres.new_database().replace("perfgate@", "perfgate:secret@")
    with open_history(url) as history:
        assert history.url.startswith("postgresql+psycopg://perfgate:***@/")
        history.add_result(run("u"))
        with history._database.writing() as connection:
            connection.exec_driver_sql("DROP TABLE night_runs")
        with pytest.raises(HistoryError) as caught:
            history.add_result(run("v"))
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_an_error_with_the_way_back(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_text("no database at all " * 100)
    text = str(refused(default_url(tmp_path)))
    assert "file is not a database" in text
    assert "perfgate reindex" in text


# --- locked


@contextmanager
def held(url: str) -> Any:
    """Another writer's transaction, as long as the block lasts."""
    with engine_of(url).connect() as connection:
        if url.startswith("sqlite"):
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.isolation_level = None
            driver.execute("BEGIN IMMEDIATE")
            yield driver.rollback
            driver.rollback()
        else:
            connection.exec_driver_sql("LOCK TABLE results")
            yield connection.rollback


def test_one_that_stays_locked_is_an_error_and_can_be_used_afterwards(url: str) -> None:
    with open_history(url, wait_seconds=0.2) as history:
        with held(url), pytest.raises(HistoryError, match=r"Another process holds"):
            history.add_result(run("u"))
        history.add_result(run("u"))
        assert len(history.results_of(case_id=CASE)) == 1


def test_a_reader_hinders_no_writer_and_sees_no_half(url: str) -> None:
    with open_history(url, wait_seconds=0.2) as history, open_history(url) as other:
        with history._database.writing() as connection:
            connection.exec_driver_sql("INSERT INTO segments (digest, body) VALUES ('d', 'b')")
            assert other.cases() == ()
        with other._database.reading() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM segments").scalar_one()
            history.add_result(run("u"))


def test_a_file_may_have_a_question_mark_and_a_percent_sign_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a?b=c %41" / "history.sqlite"
    with open_history(f"sqlite:///{path}") as history:
        history.add_result(run("u"))
    assert path.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["a?b=c %41"]
