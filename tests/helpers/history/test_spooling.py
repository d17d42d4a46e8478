"""A session whose history goes away and comes back: a clock of its own, and a database that does what it is told."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.history.decisions import DecisionFiles
from helpers.history.spool import Spool
from helpers.history.spooling import SpoolingMemory
from helpers.history.stored import SegmentStart
from helpers.judging.evidence import Past
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable
from tests.helpers.history.made import CASE, SEGMENT, moment, night, run
from tests.helpers.memory_double import MemoryDouble

KNOWN = Past(siblings=((4.5,),))
START = SegmentStart(CASE, "cpu", SEGMENT, moment(3), "recorded anew", "abc")


@dataclass
class Database(MemoryDouble):
    """``away``: what every call raises; an attempt takes ``takes`` seconds of ``world``'s clock."""

    away: HistoryError | None = None
    takes: float = 0.0
    attempts: int = 0
    seconds: float = 0.0

    def open(self) -> Database:
        self._check("open")
        return self

    def _check(self, call: str) -> None:
        self.attempts += 1
        if self.away is not None:
            self.seconds += self.takes
            raise self.away


GONE = HistoryUnreachable("history", got="connection refused", expected="an answer")
LOCKED_OUT = HistoryError("history", got="password authentication failed", expected="a password")


@dataclass
class World:
    folder: Path
    database: Database = field(default_factory=lambda: Database(known=KNOWN))

    def now(self) -> datetime.datetime:
        start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        return start + datetime.timedelta(seconds=self.database.seconds)

    def memory(self, **values: float) -> SpoolingMemory:
        spool = Spool.of(self.folder, "postgresql://me:secret@db/perf")
        files = DecisionFiles(self.folder)
        return SpoolingMemory(
            self.database.open, spool, files, clock=lambda: self.database.seconds, now=self.now, **values
        )

    def wait(self, seconds: float) -> None:
        self.database.seconds += seconds

    @property
    def waiting(self) -> int:
        return Spool.of(self.folder, "postgresql://me:secret@db/perf").waiting()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield World(tmp_path / "runs")
    assert not [thread for thread in threading.enumerate() if thread.name == "history"]


def past_of(memory: SpoolingMemory) -> Past:
    return memory.past(CASE, "cpu", SEGMENT, 2, "s")


def test_while_the_database_answers_nothing_is_spooled(world: World) -> None:
    memory = world.memory()
    memory.start()
    memory.add_result(run("u"))
    memory.add_night(night(1, 4.5))
    memory.start_segment(START)
    assert past_of(memory) == KNOWN
    assert (len(world.database.results), len(world.database.nights), world.database.starts) == (1, 1, [START])
    assert memory.finish() == ()
    assert not (world.folder / ".history-spool").exists()


def test_away_from_the_start_everything_is_spooled_and_the_past_unknown(world: World) -> None:
    world.database.away = GONE
    memory = world.memory()
    memory.start()
    memory.add_result(run("u"))
    memory.add_night(night(1, 4.5))
    memory.start_segment(START)
    assert world.waiting == 2
    assert DecisionFiles(world.folder).path(START).is_file()
    assert past_of(memory).unreachable == (
        "history postgresql://me:***@db/perf unreachable since 2026-01-01 00:00:00 UTC (connection refused)"
    )
    (note,) = memory.finish()
    assert "2 entries (runs, nights) spooled in" in note
    assert "next session or perfgate reindex" in note and "since 2026-01-01 00:00:00 UTC" in note


@pytest.mark.parametrize("told", [("decision a.json: no JSON",), HistoryError("history", got="a damaged row")])
def test_a_decision_that_cannot_be_read_stops_no_session_and_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, told: tuple[str, ...] | HistoryError
) -> None:
    def take_in() -> tuple[str, ...]:
        if isinstance(told, HistoryError):
            raise told
        return told

    monkeypatch.setattr(world.database, "take_in_decisions", take_in)
    memory = world.memory()
    memory.start()
    memory.add_result(run("u"))
    assert len(world.database.results) == 1
    (note,) = memory.finish()
    assert (
        note.startswith("decision that is not in the history: ")
        and str(told[0] if isinstance(told, tuple) else told) in note
    )


def test_a_start_that_the_database_did_not_get_goes_in_with_the_next_contact(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(world.database, "take_in_decisions", lambda: taken.append(1) or ())
    memory = world.memory()
    memory.start()
    world.database.away = GONE
    memory.start_segment(START)
    assert (len(taken), world.waiting) == (1, 0)
    world.database.away = None
    world.wait(31)
    memory.add_result(run("u"))
    memory.add_result(run("v"))
    assert len(taken) == 2


def test_a_page_is_told_why_the_nights_are_unknown(world: World) -> None:
    memory = world.memory()
    assert memory.nights_so_far(CASE, "cpu", "s", 9).unknown == "a double keeps no nights"
    world.database.away = GONE
    unknown = memory.nights_so_far(CASE, "cpu", "s", 9).unknown
    assert unknown.startswith("history postgresql://me:***@db/perf unreachable since 2026-01-01")


def test_what_was_spooled_goes_in_at_the_next_contact_before_anything_newer(world: World) -> None:
    memory = world.memory()
    memory.start()
    world.database.away = GONE
    memory.add_night(night(1, 4.5))
    memory.add_result(run("u"))
    world.database.away = None
    world.wait(31)
    memory.add_night(night(1, 4.6, code="confirmed"))
    assert [each.code for each in world.database.nights] == ["steady", "confirmed"]
    assert (len(world.database.results), world.waiting) == (1, 0)
    (note,) = memory.finish()
    assert "was unreachable from 2026-01-01 00:00:00 UTC to 2026-01-01 00:00:31 UTC: 2 entries" in note


def test_a_database_that_is_away_is_not_asked_at_every_call(world: World) -> None:
    world.database.away, world.database.takes = GONE, 10.0
    memory = world.memory()
    memory.start()
    for number in range(50):
        memory.add_result(run(f"u{number}"))
        past_of(memory)
    # The first wait for a connection alone: the next attempt is due after as long a pause, then after longer ones.
    assert (world.database.attempts, world.database.seconds) == (1, 10.0)
    for failed, pause in enumerate((10, 20, 40, 80, 160, 200, 200), start=1):
        world.wait(pause - 1)
        past_of(memory)
        assert world.database.attempts == failed
        world.wait(2)
        past_of(memory)
        assert world.database.attempts == failed + 1


@pytest.mark.slow
def test_over_a_night_the_attempts_take_a_twentieth_of_the_time(world: World) -> None:
    world.database.away, world.database.takes = GONE, 10.0
    memory = world.memory()
    memory.start()
    while world.database.seconds < 8 * 3600:
        past_of(memory)
        world.wait(60)
    assert world.database.attempts * 10.0 < 8 * 3600 / 20


def test_another_process_s_entries_go_in_at_the_end(world: World) -> None:
    controller, worker = world.memory(), world.memory()
    controller.start()
    world.database.away = GONE
    worker.add_result(run("u"))
    world.database.away = None
    assert controller.finish() == ()
    assert [each.uuid for each in world.database.results] == ["u"]


def test_the_next_session_takes_in_what_the_last_one_left(world: World) -> None:
    world.database.away = GONE
    first = world.memory()
    first.start()
    first.add_result(run("u"))
    first.finish()
    world.database.away = None
    world.memory().start()
    assert [each.uuid for each in world.database.results] == ["u"]
    world.memory().start()
    assert len(world.database.results) == 1


def test_a_history_that_lets_nobody_in_is_refused_before_measuring(world: World) -> None:
    world.database.away = LOCKED_OUT
    with pytest.raises(HistoryError, match="password authentication failed"):
        world.memory().start()


def test_one_that_lets_nobody_in_any_more_loses_nothing(world: World) -> None:
    world.database.away = GONE
    memory = world.memory()
    memory.start()
    world.database.away = LOCKED_OUT
    world.wait(31)
    memory.add_result(run("u"))
    assert world.waiting == 1


def test_a_session_that_could_keep_nothing_does_not_begin(world: World) -> None:
    world.folder.write_text("a file where a folder is wanted")
    world.database.away = GONE
    with pytest.raises(HistoryError, match="history spool"):
        world.memory().start()


def test_where_the_disk_refuses_too_it_is_an_error(world: World) -> None:
    world.database.away = GONE
    memory = world.memory()
    memory.start()
    spool = world.folder / ".history-spool"
    for folder in (*spool.iterdir(), spool):
        folder.rmdir()
    spool.write_text("no folder")
    with pytest.raises(HistoryError, match="history spool"):
        memory.add_result(run("u"))


def test_a_wrong_entry_is_an_error_and_not_spooled(world: World) -> None:
    memory = world.memory()
    memory.start()
    world.database.fails = ("add_result",)
    world.database.away = HistoryError("history", got="NaN", expected="plain values")
    with pytest.raises(HistoryError, match="plain values"):
        memory.add_result(run("u"))
    assert world.waiting == 0


def test_a_damaged_file_is_told_once_and_hinders_nothing(world: World) -> None:
    spool = Spool.of(world.folder, "postgresql://me:secret@db/perf")
    spool.put(run("a")).write_text("{")
    memory = world.memory()
    memory.start()
    memory.add_result(run("b"))
    (note,) = memory.finish()
    assert "damaged spooled file, kept" in note
    (again,) = world.memory().finish()
    assert str(spool.damaged()[0]) in again
    assert [each.uuid for each in world.database.results] == ["b"]


def test_a_database_that_never_answers_is_left_alone_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helpers.history.spooling._CUT_SECONDS", 0.1)
    silent = threading.Event()

    class Stopped(Database):
        def add_result(self, result: object) -> None:
            silent.wait(60)

    world.database = Stopped(known=KNOWN)
    memory = world.memory(answer_seconds=0.2)
    memory.start()
    memory.add_result(run("u"))
    assert world.waiting == 1
    world.wait(31)
    # The call of before may still write: nothing newer is handed over beside it.
    memory.add_night(night(1, 4.5))
    assert (world.waiting, world.database.nights) == (2, [])
    silent.set()
    world.wait(31)
    memory.add_night(night(2, 4.5))
    assert [each.session for each in world.database.nights] == ["s1", "s2"]
    assert world.waiting == 0


def test_what_a_call_raises_reaches_its_caller(world: World) -> None:
    class Broken(Database):
        def add_result(self, result: object) -> None:
            raise KeyboardInterrupt

    world.database = Broken()
    with pytest.raises(KeyboardInterrupt):
        world.memory().add_result(run("u"))
