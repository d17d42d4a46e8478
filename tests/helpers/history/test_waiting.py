"""A history that another process holds: after a second it is said what is waited for, and until when."""

from __future__ import annotations

import datetime
import fcntl
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from helpers.history.history import History
from helpers.history.tables import metadata
from helpers.history.waiting import Waiting
from helpers.trainers.contract.errors import HistoryUnreachable
from tests.helpers.history.made import run

# Longer than the second after which a wait is told.
PATIENCE_SECONDS = 1.5
# Making histories is what is tested here.
pytestmark = pytest.mark.usefixtures("histories_made")


@contextmanager
def held(url: str) -> Iterator[None]:
    """Another connection writes, and does not come to an end."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.partition(":///")[2], isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
            connection.close()
        return
    with psycopg.connect(url) as other:
        for table in metadata.tables:
            other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        yield
        other.rollback()


@pytest.mark.slow
def test_a_writer_says_what_it_waits_for_and_gives_up(url: str) -> None:
    History.open(url).close()
    told: list[str] = []
    with (
        History.open(url, PATIENCE_SECONDS, told.append) as history,
        held(url),
        pytest.raises(HistoryUnreachable, match=r"Another process holds the database"),
    ):
        history.add_result(run("first"))
    (line,) = set(told)
    assert line.startswith("waiting for history ")
    assert "which another process holds, until " in line
    assert "(1.5 s)" in line


def timers() -> list[threading.Timer]:
    """Those that wait; one that was cancelled may take a moment to end."""
    return [each for each in threading.enumerate() if isinstance(each, threading.Timer) and not each.finished.is_set()]


def test_who_is_answered_at_once_says_nothing(url: str) -> None:
    before = timers()
    told: list[str] = []
    with History.open(url, PATIENCE_SECONDS, told.append) as history:
        history.add_result(run("first"))
    assert told == []
    assert timers() == before


@pytest.mark.slow
def test_a_setup_that_another_process_never_ends_is_told_and_given_up(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    told: list[str] = []
    with path.with_name(f".{path.name}.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(HistoryUnreachable, match=r"another process holds .*\.lock"):
            History.open(f"sqlite:///{path}", PATIENCE_SECONDS, told.append)
    assert len(told) == 1
    History.open(f"sqlite:///{path}").close()


def test_a_wait_is_told_once_with_its_end() -> None:
    said = threading.Event()
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line)
        said.set()

    noon = datetime.datetime(2026, 1, 1, 12, 0, 0)
    waiting = Waiting("a history", 60, say, after_seconds=0, now=lambda: noon)
    with waiting.during():
        assert said.wait(30)
    assert told == ["waiting for a history, which another process holds, until 12:01:00 (60 s)"]


def test_a_wait_that_ends_in_time_is_not_told() -> None:
    told: list[str] = []
    before = timers()
    waiting = Waiting("a history", 60, told.append, after_seconds=3600)
    waiting.begin()
    (timer,) = [each for each in timers() if each not in before]
    waiting.end()
    timer.join(30)
    assert not timer.is_alive()
    assert told == []
