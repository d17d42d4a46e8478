"""A session whose history goes away and comes back: a clock of its own, and a database that does what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from helpers.history import default_url
from helpers.history.decisions import DecisionFiles
from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore, sessions, write_night
from helpers.history.session_memory import SessionMemory
from helpers.history.stored import SegmentStart
from helpers.history.unwritten import JudgedCase, Unwritten
from helpers.judging.case.evidence import Past
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable
from tests.helpers.history.made import CASE, SEGMENT, moment, night, run
from tests.helpers.memory_double import MemoryDouble

URL = "postgresql://me:secret@db/perf"
KNOWN = Past(siblings=((4.5,),))
START = SegmentStart(CASE, "cpu", SEGMENT, moment(3), "recorded anew", "abc")
GONE = HistoryUnreachable("history", got="connection refused", expected="an answer")
LOCKED_OUT = HistoryError("history", got="password authentication failed", expected="a password")


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
        super()._check(call)


@dataclass
class World:
    folder: Path
    database: Database = field(default_factory=lambda: Database(known=KNOWN))

    @property
    def unwritten(self) -> Unwritten:
        return Unwritten.of(self.folder, URL)

    def memory(self) -> SessionMemory:
        files = DecisionFiles(self.folder)
        return SessionMemory(self.database.open, self.unwritten, files, clock=lambda: self.database.seconds)

    def judged(self, day: int, uuid: str, *rates: float) -> tuple[list[RunResult], NightRecord]:
        """A case whose files are in the run folder."""
        made = run(uuid, session=f"s{day}")
        store = ResultStore(self.folder, f"s{day}")
        store.new_run_folder(CASE, 0)
        store.write(made)
        record = night(day, *(rates or (4.5,)), run_uuids=(uuid,))
        write_night(self.folder, record)
        return [made], record

    def wait(self, seconds: float) -> None:
        self.database.seconds += seconds


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "runs")


def past_of(memory: SessionMemory) -> Past:
    return memory.past(CASE, "cpu", SEGMENT, 2, "s")


def test_while_the_database_answers_nothing_waits(world: World) -> None:
    memory = world.memory()
    assert memory.start() == ""
    memory.add_case(*world.judged(1, "u"))
    memory.start_segment(START)
    assert past_of(memory) == KNOWN
    assert (len(world.database.results), len(world.database.nights), world.database.starts) == (1, 1, [START])
    assert (memory.finish(), world.unwritten.cases(), memory.lacking("s1")) == ((), (), 0)


def test_away_from_the_start_a_case_waits_and_the_past_is_unknown(world: World) -> None:
    world.database.away = GONE
    memory = world.memory()
    assert memory.start() == str(GONE)
    memory.add_case(*world.judged(1, "u"))
    memory.start_segment(START)
    assert world.unwritten.cases() == (JudgedCase("s1", CASE),)
    assert (memory.lacking("s1"), memory.lacking("s2")) == (1, 0)
    assert DecisionFiles(world.folder).path(START).is_file()
    unreachable = past_of(memory).unreachable
    assert "postgresql://me:***@db/perf" in unreachable and "connection refused" in unreachable
    assert memory.nights_so_far(CASE, "cpu", "s", 9).unknown == unreachable
    (note,) = memory.finish()
    assert "1 case" in note and "perfgate reindex" in note and "secret" not in note
    # No file of it is a session.
    assert sessions(world.folder) == ("s1",)


def test_what_waits_is_written_once_with_the_next_call(world: World) -> None:
    memory = world.memory()
    memory.start()
    world.database.away = GONE
    memory.add_case(*world.judged(1, "u"))
    memory.start_segment(START)
    world.database.away = None
    world.wait(31)
    memory.add_case(*world.judged(2, "v"))
    assert [each.session for each in world.database.nights] == ["s1", "s2"]
    assert [each.uuid for each in world.database.results] == ["u", "v"]
    assert memory.finish() == ()
    assert len(world.database.nights) == 2


@pytest.mark.parametrize("killed", [True, False])
def test_the_next_session_writes_what_the_last_one_left(
    world: World, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    first = world.memory()
    first.start()
    case = world.judged(1, "u")
    if killed:
        monkeypatch.setattr(world.database, "add_case", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            first.add_case(*case)
        monkeypatch.undo()
    else:
        world.database.away = GONE
        first.add_case(*case)
        first.finish()
    world.database.away = None
    for _ in range(2):
        world.memory().start()
    assert [each.uuid for each in world.database.results] == ["u"]


def test_a_database_that_is_away_is_not_asked_at_every_call(world: World) -> None:
    world.database.away, world.database.takes = GONE, 10.0
    memory = world.memory()
    memory.start()
    for pause in (1, 198):
        world.wait(pause)
        past_of(memory)
        assert world.database.attempts == 1
    world.wait(2)
    past_of(memory)
    assert world.database.attempts == 2
    world.database.away = None
    world.wait(201)
    assert past_of(memory) == KNOWN


def test_one_that_lets_nobody_in_any_more_loses_nothing(world: World) -> None:
    world.database.away = GONE
    memory = world.memory()
    memory.start()
    world.database.away = LOCKED_OUT
    world.wait(31)
    memory.add_case(*world.judged(1, "u"))
    assert memory.lacking("s1") == 1


@pytest.mark.parametrize("how", ["a file", "a link"])
def test_a_session_that_could_keep_nothing_does_not_begin(world: World, tmp_path: Path, how: str) -> None:
    if how == "a file":
        world.folder.write_text("a file where a folder is wanted")
    else:
        (tmp_path / "elsewhere").mkdir()
        world.folder.mkdir()
        (world.folder / ".not-in-history").symlink_to(tmp_path / "elsewhere")
    world.database.away = GONE
    with pytest.raises(HistoryError, match="not-in-history"):
        world.memory().start()
    assert how == "a file" or list((tmp_path / "elsewhere").iterdir()) == []


def test_a_case_that_the_database_refuses_is_an_error_and_named_at_the_end(world: World) -> None:
    memory = world.memory()
    memory.start()
    world.database.fails = ("add_case",)
    with pytest.raises(HistoryError, match="disk full"):
        memory.add_case(*world.judged(1, "u"))
    assert past_of(memory) == KNOWN
    told = memory.finish()
    assert any(CASE in each and "disk full" in each for each in told) and "1 case" in told[-1]
    world.database.fails = ()
    world.memory().start()
    assert len(world.database.nights) == 1


@pytest.mark.parametrize("damage", ["night", "result", "gone", "name"])
def test_files_that_cannot_be_read_are_named_and_the_rest_is_written(world: World, damage: str) -> None:
    world.judged(1, "a")
    world.judged(2, "b")
    for day in (1, 2):
        world.unwritten.add(JudgedCase(f"s{day}", CASE))
    folder = world.folder / "s1" / CASE
    if damage == "gone":
        folder.rename(world.folder / "elsewhere")
    elif damage == "name":
        world.unwritten.remove(JudgedCase("s1", CASE))
        (world.unwritten.folder / f".. {CASE}").touch()
        (world.unwritten.folder / f"-x {CASE}").touch()
        (world.folder / "-x" / CASE).mkdir(parents=True)
    else:
        (folder / {"night": "night.json", "result": "r0/result.json"}[damage]).write_text("{")
    memory = world.memory()
    memory.start()
    told = "\n".join(memory.finish())
    assert CASE in told and ("-x" if damage == "name" else "s1") in told
    assert [each.session for each in world.database.nights] == ["s2"]
    # What is gone is told once.
    assert len(world.unwritten.cases()) == (0 if damage == "gone" else 1)


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
    memory.add_case(*world.judged(1, "u"))
    assert len(world.database.results) == 1
    (note,) = memory.finish()
    assert str(told[0] if isinstance(told, tuple) else told) in note


@pytest.mark.parametrize("later", ["call", "end"])
def test_a_start_that_the_database_did_not_get_goes_in_later(
    world: World, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(world.database, "take_in_decisions", lambda: taken.append(1) or ())
    memory = world.memory()
    memory.start()
    world.database.away = GONE
    memory.start_segment(START)
    assert len(taken) == 1
    world.database.away = None
    if later == "call":
        world.wait(31)
        past_of(memory)
    memory.finish()
    assert len(taken) == 2


def test_each_history_has_its_own_and_the_file_beside_the_runs_moves_with_them(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    urls = [URL, "postgresql://me:secret@other/perf", f"sqlite:///{tmp_path}/x.sqlite", default_url(runs)]
    lacking = [Unwritten.of(runs, url) for url in urls]
    assert len({each.folder for each in lacking}) == 4
    assert Unwritten.of(runs, "postgres://me:changed@db/perf").folder == lacking[0].folder
    for each in lacking:
        each.add(JudgedCase("s", CASE))
        assert "secret" not in f"{each.folder}{each.shown}"
    runs.rename(tmp_path / "moved")
    assert Unwritten.of(tmp_path / "moved", default_url(tmp_path / "moved")).cases() == (JudgedCase("s", CASE),)


def test_the_newest_night_of_a_case_is_written(world: World) -> None:
    world.database.away = GONE
    memory = world.memory()
    memory.start()
    runs, record = world.judged(1, "u")
    memory.add_case(runs, record)
    again = replace(record, status="REGRESSION")
    write_night(world.folder, again)
    memory.add_case(runs, again)
    world.database.away = None
    memory.finish()
    assert [each.status for each in world.database.nights] == ["REGRESSION"]
