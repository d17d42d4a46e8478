"""A real PostgreSQL whose network is cut: nothing is kept twice, and nobody waits for longer than some seconds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from helpers.history import open_history
from helpers.history.history import History
from helpers.history.stored import SegmentStart
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable
from tests.faults.postgres import Server
from tests.faults.postgres_network import Network, network_to
from tests.helpers.history.made import CASE, SEGMENT, moment, run

pytestmark = pytest.mark.slow
START = SegmentStart(CASE, "cpu", SEGMENT, moment(3), "recorded anew", "abc")


@pytest.fixture
def network(postgres: Server) -> Iterator[Network]:
    with network_to(postgres.folder) as found:
        yield found


@pytest.fixture
def database(postgres: Server) -> str:
    """The name of an empty database."""
    return str(sa.make_url(postgres.new_database()).database)


def counted(server: Server, database: str, table: str) -> int:
    with psycopg.connect(server.url(database)) as connection:
        (found,) = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() or (-1,)
    return int(found)


def test_a_frozen_connection_is_given_up_and_the_next_call_has_another(
    postgres: Server, database: str, network: Network
) -> None:
    open_history(postgres.url(database)).close()
    with open_history(network.url(database), answer_seconds=0.5) as history:
        sa.event.listen(history._database.engine, "before_cursor_execute", lambda *_: network.freeze(), once=True)
        begun = time.monotonic()
        with pytest.raises(HistoryUnreachable):
            history.add_result(run("a"))
        assert time.monotonic() - begun < 10
        network.drop()
        network.thaw()
        history.add_result(run("a"))
        deadline = time.monotonic() + 10
        while network.open_links and time.monotonic() < deadline:
            time.sleep(0.001)
        assert network.open_links == 0
    assert counted(postgres, database, "results") == 1


def test_an_entry_whose_answer_got_lost_is_kept_once(
    postgres: Server, database: str, network: Network, tmp_path: Path
) -> None:
    """The server makes the transaction, and the runner does not hear of it: somebody makes it again."""
    with open_history(network.url(database), runs_folder=tmp_path, answer_seconds=2.0) as history:
        history.add_result(run("a"))
        writes: list[Callable[[], object]] = [
            lambda: history.add_result(run("b")),
            lambda: history.start_segment(START),
            lambda: history.exclude("a", "me", moment(1), "fan failure"),
            lambda: history.restore("a", "me", moment(2), "not the fan"),
        ]
        for write in writes:
            _lose_the_answer_to(write, history, network)
            write()
    assert [counted(postgres, database, table) for table in ("results", "decisions")] == [2, 3]


def _lose_the_answer_to(write: Callable[[], object], history: History, network: Network) -> None:
    whole = history._database.engine.dialect.do_commit

    def commit(connection: object) -> None:
        network.freeze(answers_only=True)
        cut = threading.Timer(0.05, network.drop)
        cut.start()
        try:
            whole(connection)  # type: ignore[arg-type]
        finally:
            cut.join()
            network.thaw()

    history._database.engine.dialect.do_commit = commit  # type: ignore[assignment,method-assign]
    try:
        with pytest.raises(HistoryUnreachable):
            write()
    finally:
        del history._database.engine.dialect.do_commit


def test_a_runner_whose_network_froze_in_a_transaction_does_not_hold_the_others(
    postgres: Server, database: str, network: Network
) -> None:
    with contextlib.ExitStack() as open_ones:
        other = open_ones.enter_context(open_history(postgres.url(database)))
        gone = open_ones.enter_context(open_history(network.url(database)))
        open_ones.enter_context(contextlib.suppress(HistoryError))
        connection = open_ones.enter_context(gone._database.writing())
        assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one() == "3s"
        connection.exec_driver_sql("SET idle_in_transaction_session_timeout = 300")
        connection.exec_driver_sql("LOCK TABLE results")
        network.freeze()
        begun = time.monotonic()
        other.add_result(run("a"))
        assert time.monotonic() - begun < 4
        network.drop()
