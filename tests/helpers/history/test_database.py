"""The database: made and migrated on first use, whoever comes first; refused in words, without a password."""

from __future__ import annotations

import fcntl
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from helpers.history import default_url, open_history
from helpers.history.database import open_database
from helpers.history.history import History
from helpers.history.stored import Acknowledgement
from helpers.history.tables import HEAD, metadata
from helpers.trainers.contract.errors import HistoryError, NoHistory
from tests.helpers.history.made import CASE, SEGMENT, moment, night, run
from tests.helpers.history.postgres import Server, running_server

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


# --- made and migrated


def test_the_history_is_a_file_beside_the_runs_unless_another_is_named(tmp_path: Path) -> None:
    with open_history(default_url(tmp_path / "new" / "runs")) as history:
        history.add_result(run("u"))
    assert (tmp_path / "new" / "runs" / "history.sqlite").is_file()
    with open_history(f"sqlite:///{tmp_path}/new/runs/history.sqlite") as history:
        assert len(history.results_of(case_id=CASE)) == 1


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    with open_history(default_url(tmp_path / "100% ü # &")) as history:
        history.add_result(run("u"))
    assert (tmp_path / "100% ü # &" / "history.sqlite").is_file()


def test_a_file_is_written_through_and_keeps_its_references(tmp_path: Path) -> None:
    database = open_database(default_url(tmp_path))
    with database.reading() as connection:
        told = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    database.engine.dispose()
    # 2 is FULL: each commit waits for the disk.
    assert told == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 60_000}


def test_the_migrations_make_exactly_the_tables_of_the_schema(url: str) -> None:
    open_history(url).close()
    with engine_of(url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    assert tables(url) == {*metadata.tables, "alembic_version"}


def test_the_schema_knows_the_newest_migration() -> None:
    scripts = ScriptDirectory(str(ROOT / "helpers" / "history" / "migrations"))
    assert scripts.get_current_head() == HEAD


def test_a_migration_only_adds_so_that_an_older_suite_goes_on_writing(tmp_path: Path) -> None:
    """Every column of a version is there in the next one, and a row without the new columns can be written."""
    versions = [each.stem.split("_")[0][1:] for each in (ROOT / "helpers/history/migrations/versions").glob("v*.py")]
    config = Config()
    config.set_main_option("script_location", "helpers.history:migrations")
    before: dict[str, dict[str, Any]] = {}
    with engine_of(default_url(tmp_path)).begin() as connection:
        config.attributes["connection"] = connection
        for version in sorted(versions):
            command.upgrade(config, version)
            tables = sa.inspect(connection)
            now = {name: {each["name"]: each for each in tables.get_columns(name)} for name in tables.get_table_names()}
            for table, columns in before.items():
                kept = {name: str(each["type"]) for name, each in columns.items()}
                assert {name: str(now[table][name]["type"]) for name in kept} == kept, version
                new = [each for name, each in now[table].items() if name not in columns]
                assert all(each["nullable"] or each["default"] is not None for each in new), version
            before = now
    assert sorted(versions)[-1] == HEAD


# test_writers makes one so too, and writes it.
@pytest.mark.slow
def test_processes_that_open_a_new_history_at_once_make_it_once(url: str) -> None:
    program = "import sys; from helpers.history import open_history; open_history(sys.argv[1]).cases()"
    argv = [sys.executable, "-c", program, url]
    processes = [subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, "")
    with engine_of(url).connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all() == [HEAD]


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


def test_a_migration_cut_short_leaves_nothing_and_is_made_by_the_next(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Callable[..., Any] = command.upgrade

    def cut_short(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", cut_short)
        with pytest.raises(KeyboardInterrupt):
            open_history(url)
    assert tables(url) == set()
    with open_history(url) as history:
        history.add_result(run("u"))


def test_an_older_database_is_migrated(url: str) -> None:
    open_history(url).close()
    with engine_of(url).begin() as connection:
        metadata.drop_all(connection)
        connection.exec_driver_sql("DELETE FROM alembic_version")
    with open_history(url) as history:
        assert history.cases() == ()


def test_nights_of_an_older_database_are_read_and_told_to_have_no_pairs(url: str) -> None:
    open_history(url).close()
    engine = engine_of(url)
    with open_history(url) as history:
        history.add_night(night(1, 4.5))
    body = sa.text("UPDATE nights SET body = :body")
    with engine.begin() as connection:
        record = json.loads(connection.exec_driver_sql("SELECT body FROM nights").scalar_one())
        for name in ("compared", "schema_version", "date"):
            del record[name]
        for name in ("level", "level_error", "good_shift", "teaches_level", "teaches_good"):
            del record["standing"][name]
        connection.execute(body, {"body": json.dumps(record)})
        connection.exec_driver_sql("ALTER TABLE nights DROP COLUMN compared")
        connection.exec_driver_sql("DROP TABLE pins")
        _as_before_0004(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    with open_history(url) as history:
        found = history.past(CASE, "cpu", SEGMENT, 2, "tonight")
        (told,) = history.nights_of(moment(1)[:10])
    assert ([each.log_rates for each in found.nights], found.compared) == ([(4.5,)], ())
    assert told.record.date == moment(1)[:10]


def _as_before_0004(connection: sa.Connection) -> None:
    """Make the tables of acknowledgements and nights as they were before version 0004."""
    connection.exec_driver_sql("DROP INDEX ix_nights_date")
    connection.exec_driver_sql("ALTER TABLE nights DROP COLUMN date")
    for name in ("taken_back", "taken_back_by", "taken_back_reason"):
        connection.exec_driver_sql(f"ALTER TABLE acknowledgements DROP COLUMN {name}")


@pytest.mark.parametrize("writes", [True, False])
def test_acknowledgements_of_an_older_database_hold_also_where_it_is_opened_to_be_read(
    url: str, tmp_path: Path, writes: bool
) -> None:
    made = Acknowledgement(CASE, "2024-01-01", "", "abc", "new cuDNN", "me", f"{moment(1)[:19]}.000000+00:00")
    with open_history(url, runs_folder=tmp_path) as history:
        history.acknowledge(made)
    with engine_of(url).begin() as connection:
        _as_before_0004(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0003'")
    with open_history(url, writes=writes) as history:
        assert history.acknowledgements() == (made,)


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


def test_reading_a_file_leaves_nothing_beside_it(tmp_path: Path) -> None:
    with open_history(default_url(tmp_path)) as history:
        history.add_result(run("u"))
    before = sorted(tmp_path.iterdir())
    with open_history(default_url(tmp_path), writes=False) as history:
        assert len(history.results_of(case_id=CASE)) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_reader_sees_what_a_writer_keeps_meanwhile(url: str) -> None:
    with open_history(url) as writer, open_history(url, writes=False) as reader:
        writer.add_result(run("u"))
        assert len(reader.results_of(case_id=CASE)) == 1


@pytest.mark.slow
def test_a_replica_is_read_and_says_that_it_only_reads() -> None:
    with running_server() as server:
        url = server.new_database()
        with open_history(url) as history:
            history.add_result(run("u"))
        server.end(signal.SIGINT)
        # With this file a server follows another one, and until that one sends something it is as it was.
        (server.folder / "data" / "standby.signal").touch(0o644)
        server.start()
        with open_history(url, writes=False) as history:
            assert len(history.results_of(case_id=CASE)) == 1
        with open_history(url) as history, pytest.raises(HistoryError, match="This server only reads"):
            history.add_result(run("v"))


def test_a_newer_database_is_refused_with_what_to_do(url: str) -> None:
    open_history(url).close()
    with engine_of(url).begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    error = refused(url)
    assert (error.field, error.got) == ("version", "9999")
    assert "update this one" in str(error)


def test_one_that_got_newer_while_waiting_to_migrate_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_history(url).close()
    monkeypatch.setattr("helpers.history.migrating.version", lambda *_: None)
    monkeypatch.setattr("helpers.history.migrating.HEAD", "0000")
    assert refused(url).field == "version"


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


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@127.0.0.1:1/db",
        "postgres://me:secret@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=me&password=secret",
    ],
)
def test_a_server_that_is_not_there_is_an_error_without_the_password(url: str) -> None:
    text = str(refused(url))
    assert "Check that the server runs" in text
    assert "***" in text
    assert "secret" not in text


def test_the_url_is_shown_without_its_password(postgres: Server) -> None:
    url = postgres.new_database().replace("perfgate@", "perfgate:secret@")
    with open_history(url) as history:
        assert history.url.startswith("postgresql+psycopg://perfgate:***@/")
        history.add_result(run("u"))
        with history._database.writing() as connection:
            connection.exec_driver_sql("DROP TABLE steps")
        with pytest.raises(HistoryError) as caught:
            history.add_result(run("v"))
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_an_error_with_the_way_back(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_text("no database at all " * 100)
    text = str(refused(default_url(tmp_path)))
    assert "file is not a database" in text
    assert "perfgate reindex" in text


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "Not a directory" in str(refused(default_url(tmp_path / "file" / "runs")))


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


def test_a_locked_history_is_waited_for(url: str) -> None:
    with History.open(url) as history, held(url) as release:
        # The lock is released by another thread, as another process would.
        timer = threading.Timer(0.3, release)
        timer.start()
        history.add_result(run("u"))
        timer.join()
        assert len(history.results_of(case_id=CASE)) == 1


def test_one_that_stays_locked_is_an_error_and_can_be_used_afterwards(url: str) -> None:
    with History.open(url, wait_seconds=0.2) as history:
        with held(url), pytest.raises(HistoryError, match="Another process holds the database"):
            history.add_result(run("u"))
        history.add_result(run("u"))
        assert len(history.results_of(case_id=CASE)) == 1


def test_a_reader_hinders_no_writer_and_sees_no_half(url: str) -> None:
    with History.open(url, wait_seconds=0.2) as history, History.open(url) as other:
        with history._database.writing() as connection:
            connection.exec_driver_sql("INSERT INTO documents (digest, body) VALUES ('d', 'b')")
            assert other.cases() == ()
        with other._database.reading() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM documents").scalar_one()
            history.add_result(run("u"))


def test_a_server_that_dropped_its_connections_is_asked_again(postgres: Server) -> None:
    with open_history(postgres.new_database()) as history:
        history.add_result(run("u"))
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        history.add_result(run("v"))
        assert len(history.results_of(case_id=CASE)) == 2


def test_a_file_may_have_a_question_mark_and_a_percent_sign_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a?b=c %41" / "history.sqlite"
    with open_history(f"sqlite:///{path}") as history:
        history.add_result(run("u"))
    assert path.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["a?b=c %41"]


def test_a_user_of_postgresql_who_may_only_read_reads(postgres: Server) -> None:
    url = postgres.new_database()
    with open_history(url) as history:
        history.add_result(run("u"))
        with history._database.writing() as connection:
            connection.exec_driver_sql("CREATE ROLE reader LOGIN")
            connection.exec_driver_sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    try:
        with open_history(sa.make_url(url).set(username="reader").render_as_string(hide_password=False)) as history:
            assert len(history.results_of(case_id=CASE)) == 1
            with pytest.raises(HistoryError, match="permission denied"):
                history.add_result(run("v"))
    finally:
        with open_history(url) as history, history._database.writing() as connection:
            connection.exec_driver_sql("DROP OWNED BY reader")
            connection.exec_driver_sql("DROP ROLE reader")
