"""A real PostgreSQL whose network is cut, which is restarted, has no room, or is migrated while others write: nothing
is lost, nothing is kept twice, and nobody waits for longer than some seconds."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from helpers.history import open_history
from helpers.history.decisions import DecisionFiles
from helpers.history.history import History
from helpers.history.server import Connections
from helpers.history.spool import Spool
from helpers.history.spooling import SpoolingMemory
from helpers.history.stored import Acknowledgement, SegmentStart
from helpers.history.tables import HEAD
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable
from tests.faults.postgres_network import Network, network_to
from tests.helpers.history.made import CASE, SEGMENT, moment, night, run
from tests.helpers.history.postgres import Server, running_replica, running_server

# How long a session of these tests waits for an answer; a real one waits SERVER_WAITS.
ANSWER_SECONDS = 0.5
PATIENT_SECONDS = 60.0
START = SegmentStart(CASE, "cpu", SEGMENT, moment(3), "recorded anew", "abc")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two attempts of one call."""
    monkeypatch.setattr("helpers.history.history._PAUSE_SECONDS", 0.02)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One of this module's own, which it may restart."""
    with running_server() as found:
        yield found


@pytest.fixture
def network(server: Server) -> Iterator[Network]:
    server.start()
    with network_to(server.folder) as found:
        yield found


@pytest.fixture
def database(server: Server) -> str:
    """The name of an empty database."""
    server.start()
    return str(sa.make_url(server.new_database()).database)


class Session:
    """A session's history over the network, with a clock of its own for the pauses between two attempts."""

    def __init__(self, url: str, folder: Path) -> None:
        self.seconds = 0.0
        self.spool = Spool.of(folder, url)
        connections = Connections()
        self.memory = SpoolingMemory(
            lambda: open_history(url, wait_seconds=0.4, connections=connections, runs_folder=folder),
            self.spool,
            DecisionFiles(folder),
            cut=connections.cut,
            clock=lambda: self.seconds,
            answer_seconds=ANSWER_SECONDS,
        )

    def later(self) -> None:
        """The next attempt may be made."""
        self.seconds += 100_000


@pytest.fixture
def session(network: Network, database: str, tmp_path: Path) -> Session:
    made = Session(network.url(database), tmp_path / "runs")
    with answers(made, PATIENT_SECONDS):
        made.memory.start()
    return made


@contextlib.contextmanager
def answers(session: Session, within_seconds: float) -> Iterator[None]:
    """Nothing is cut here, and a busy machine needs longer than ANSWER_SECONDS."""
    session.memory._answer_seconds = within_seconds
    yield
    session.memory._answer_seconds = ANSWER_SECONDS


def counted(server: Server, database: str, table: str) -> int:
    with psycopg.connect(server.url(database)) as connection:
        (found,) = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() or (-1,)
    return int(found)


# ---- the network


@pytest.mark.slow
def test_a_connection_is_watched_from_both_ends(server: Server, database: str, network: Network) -> None:
    with open_history(network.url(database)) as history, history._database.reading() as connection:
        with socket.socket(fileno=socket.dup(connection.connection.driver_connection.fileno())) as end:  # type: ignore[union-attr]
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 3
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 6_000
        # Of the server's own only what a socket in a folder has, too.
        shown = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()
    assert shown == "3s"


@pytest.mark.slow
def test_a_frozen_connection_is_given_up_and_a_new_one_is_used(
    server: Server, database: str, network: Network, session: Session
) -> None:
    with answers(session, PATIENT_SECONDS):
        session.memory.add_result(run("a"))
    history = session.memory._history
    assert isinstance(history, History)

    def freeze_it(*_: object) -> None:
        network.freeze()
        network.carry_new()

    def cut(whole: Callable[[], None] = session.memory._cut) -> None:
        session.memory._answer_seconds = PATIENT_SECONDS
        whole()

    session.memory._cut = cut  # type: ignore[method-assign]
    sa.event.listen(history._database.engine, "before_cursor_execute", freeze_it, once=True)
    begun = time.monotonic()
    session.memory.add_result(run("b"))
    assert ANSWER_SECONDS < time.monotonic() - begun < PATIENT_SECONDS
    assert session.spool.waiting() == 0
    assert counted(server, database, "results") == 2


@pytest.mark.slow
def test_a_first_connection_that_freezes_is_given_up_too(
    server: Server, network: Network, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy asks the server some things on the first connection, before anybody has it."""
    open_history(server.url(database)).close()
    session = Session(network.url(database), tmp_path / "runs")
    whole, frozen = PGDialect_psycopg.initialize, list[bool]()

    def initialize(dialect: PGDialect_psycopg, connection: sa.Connection) -> None:
        if not frozen:
            frozen.append(True)
            network.freeze()
            network.carry_new()
        whole(dialect, connection)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(PGDialect_psycopg, "initialize", initialize)
    session.memory.add_result(run("a"))
    assert frozen and session.spool.waiting() == 1
    # On a busy machine a connection alone may take as long as these sessions wait.
    assert any(session.memory.answers() for _ in range(10))
    assert session.spool.waiting() == 0


@pytest.mark.slow
def test_a_history_that_is_back_answers_at_once_when_it_is_asked_for_that(network: Network, session: Session) -> None:
    network.freeze()
    assert session.memory.past(CASE, "cpu", SEGMENT, 2, "s").unreachable
    assert not session.memory.answers()
    network.thaw()
    # Otherwise the pause after a failure would still last.
    assert session.memory.past(CASE, "cpu", SEGMENT, 2, "s").unreachable
    # On a busy machine a connection alone may take as long as these sessions wait.
    assert any(
        session.memory.answers() and not session.memory.past(CASE, "cpu", SEGMENT, 2, "s").unreachable
        for _ in range(10)
    )


@pytest.mark.slow
def test_a_network_that_swallows_everything_holds_a_session_for_some_seconds_only(
    server: Server, database: str, network: Network, session: Session
) -> None:
    network.freeze()
    begun = time.monotonic()
    session.memory.add_result(run("a"))
    session.memory.add_night(night(1, 4.5))
    assert session.memory.past(CASE, "cpu", SEGMENT, 2, "s").unreachable
    assert time.monotonic() - begun < PATIENT_SECONDS
    assert session.spool.waiting() == 2
    network.thaw()
    session.later()
    with answers(session, PATIENT_SECONDS):
        session.memory.start_segment(START)
    assert session.spool.waiting() == 0
    tables = ("results", "steps", "nights", "segment_starts")
    assert {table: counted(server, database, table) for table in tables} == dict.fromkeys(tables, 1)


@pytest.mark.slow
def test_an_entry_whose_answer_got_lost_is_kept_once(
    server: Server, database: str, network: Network, tmp_path: Path
) -> None:
    """The server makes the transaction, and the runner does not hear of it: it makes it again."""
    connections = Connections()
    with open_history(network.url(database), connections=connections, runs_folder=tmp_path) as history:
        remark = Acknowledgement(CASE, "2024-01-01", "", "abc", "new cuDNN", "me", f"{moment(1)[:19]}.000000+00:00")
        history.add_result(run("a"))
        writes: list[Callable[[], object]] = [
            lambda: history.add_result(run("b")),
            lambda: history.start_segment(START),
            lambda: history.acknowledge(remark),
            lambda: history.exclude("a", "me", moment(1), "fan failure"),
            lambda: history.restore("a", "me", moment(2), "not the fan"),
            lambda: history.take_back(remark, "me", moment(2), "not cuDNN"),
        ]
        for write in writes:
            _lose_the_answer_to(write, history, network, connections)
    tables = ("results", "segment_starts", "acknowledgements", "exclusions")
    kept = {table: counted(server, database, table) for table in tables}
    assert kept == {"results": 2, "segment_starts": 1, "acknowledgements": 1, "exclusions": 1}


def _lose_the_answer_to(
    write: Callable[[], object], history: History, network: Network, connections: Connections
) -> None:
    whole = history._database.engine.dialect.do_commit
    commits: list[int] = []

    def commit(connection: object) -> None:
        commits.append(1)
        if len(commits) > 1:
            whole(connection)  # type: ignore[arg-type]
            return
        network.freeze(answers_only=True)
        cut = threading.Timer(0.05, connections.cut)
        cut.start()
        try:
            whole(connection)  # type: ignore[arg-type]
        finally:
            cut.join()

    history._database.engine.dialect.do_commit = commit  # type: ignore[assignment,method-assign]
    try:
        write()
    finally:
        del history._database.engine.dialect.do_commit
    assert len(commits) == 2


@pytest.mark.slow
def test_a_runner_whose_network_froze_in_a_transaction_does_not_hold_the_others(
    server: Server, database: str, network: Network
) -> None:
    with contextlib.ExitStack() as open_ones:
        other = open_ones.enter_context(open_history(server.url(database), wait_seconds=8))
        gone = open_ones.enter_context(open_history(network.url(database)))
        open_ones.enter_context(contextlib.suppress(HistoryError))
        connection = open_ones.enter_context(gone._database.writing())
        connection.exec_driver_sql("SET idle_in_transaction_session_timeout = 300")
        connection.exec_driver_sql("LOCK TABLE results")
        network.freeze()
        begun = time.monotonic()
        other.add_result(run("a"))
        assert time.monotonic() - begun < 4
        network.drop()


def test_connections_that_are_reset_are_opened_again(session: Session, network: Network, database: str) -> None:
    with open_history(network.url(database)) as history:
        history.add_result(run("a"))
        network.drop()
        history.add_result(run("b"))
        assert len(history.results_of(case_id=CASE)) == 2


# ---- the server


@pytest.mark.slow
def test_a_server_that_is_restarted_is_waited_for(server: Server, database: str) -> None:
    with open_history(server.url(database)) as history:
        history.add_result(run("a"))
        server.end(signal.SIGINT)
        starting = threading.Timer(0.1, server.start)
        starting.start()
        history.add_result(run("b"))
        starting.join()
        assert len(history.results_of(case_id=CASE)) == 2


def test_a_session_holds_no_connection_between_its_calls(network: Network, session: Session) -> None:
    for number in range(3):
        with answers(session, PATIENT_SECONDS):
            session.memory.add_result(run(str(number)))
        deadline = time.monotonic() + 10
        while network.open_links and time.monotonic() < deadline:
            time.sleep(0.001)
        assert network.open_links == 0


@pytest.mark.slow
def test_a_server_without_room_says_so_and_is_tried_again(server: Server, database: str) -> None:
    with open_history(server.url(database)) as history, contextlib.ExitStack() as held:
        history.release()
        with pytest.raises(psycopg.OperationalError, match=r"too many clients|connection slots"):
            while True:
                held.enter_context(psycopg.connect(server.url("postgres")))
        impatient = History(replace(history._database, patience_seconds=0.0))
        with pytest.raises(HistoryUnreachable, match="max_connections"):
            impatient.add_result(run("a"))
        freeing = threading.Timer(0.1, held.close)
        freeing.start()
        history.add_result(run("a"))
        freeing.join()


@pytest.mark.slow
def test_a_report_that_its_replica_ended_is_begun_again(server: Server, database: str) -> None:
    with open_history(server.url(database)) as history:
        history.add_result(run("a"))
    with running_replica(server, "max_standby_streaming_delay=0") as replica:
        with open_history(replica.url(database), writes=False) as opened:
            report = History(replace(opened._database, patience_seconds=0.0))
            asked: list[int] = []

            def question(connection: sa.Connection) -> int:
                asked.append(1)
                if len(asked) > 1:
                    return int(connection.exec_driver_sql("SELECT count(*) FROM results").scalar_one())
                change = threading.Timer(0.2, _change_a_table, [server.url(database)])
                change.start()
                connection.exec_driver_sql("SELECT pg_sleep(30) FROM results")
                raise AssertionError("the replica did not end it")

            def once() -> int:
                with report._database.reading() as connection:
                    return question(connection)

            assert report._patiently(once) == 1
        with pytest.raises(HistoryError, match="This server only reads"):
            History(report._database).add_result(run("b"))


def _change_a_table(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE results ADD COLUMN later TEXT")


# ---- two versions


@pytest.mark.slow
def test_a_migration_that_waits_for_a_reader_lets_the_writers_write(
    server: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helpers.history.migrating._TABLE_WAIT_SECONDS", 0.1)
    monkeypatch.setattr("helpers.history.migrating._PAUSE_SECONDS", 0.1)
    with open_history(server.url(database)) as writer:
        with psycopg.connect(server.url(database), autocommit=True) as connection:
            connection.execute("ALTER TABLE nights DROP COLUMN compared, DROP COLUMN date")
            connection.execute("UPDATE alembic_version SET version_num = '0001'")
            connection.execute("DROP TABLE pins")
            for name in ("taken_back", "taken_back_by", "taken_back_reason"):
                connection.execute(f"ALTER TABLE acknowledgements DROP COLUMN {name}".encode())
        report = psycopg.connect(server.url(database))
        report.execute("SELECT count(*) FROM nights")
        newer = threading.Thread(target=lambda: open_history(server.url(database)).close())
        newer.start()
        slowest = 0.0
        for number in range(10):
            begun = time.monotonic()
            # It reads the table that the migration waits for.
            with writer._database.reading() as connection:
                connection.exec_driver_sql("SELECT count(*) FROM nights")
            writer.add_result(run(str(number)))
            slowest = max(slowest, time.monotonic() - begun)
        assert newer.is_alive()
        report.close()
        newer.join(10)
        assert not newer.is_alive()
        assert slowest < 2
        with psycopg.connect(server.url(database)) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (HEAD,)


@pytest.mark.slow
def test_a_session_whose_tables_a_newer_suite_changed_keeps_its_entries_for_it(
    server: Server, database: str, session: Session
) -> None:
    with psycopg.connect(server.url(database), autocommit=True) as connection:
        connection.execute("ALTER TABLE results RENAME COLUMN role TO part")
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with answers(session, PATIENT_SECONDS):
        session.memory.add_result(run("a"))
        assert session.spool.waiting() == 1
        assert "9999" in session.memory.finish()[-1]
    with pytest.raises(HistoryError, match="update this one"):
        open_history(server.url(database))
