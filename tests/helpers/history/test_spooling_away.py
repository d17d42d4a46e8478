"""A session whose real database goes away: PostgreSQL crashed at its start, between two runs, before the night, and a
full, locked or read-only SQLite. Everything is in afterwards, once."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import main
from helpers.history import default_url, open_history
from helpers.history.codec import utc
from helpers.history.decisions import DecisionFiles
from helpers.history.history import History
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.history.spool import Spool
from helpers.history.spooling import SpoolingMemory
from helpers.history.stored import SegmentStart
from helpers.judging.evidence import Build, Evidence, Stage
from helpers.judging.verdict import NeedRuns, Reason, Status, Verdict
from helpers.plan.case_plan import CasePlan
from helpers.plan.overrides import segment_of
from helpers.session.measure import CaseResult, measure_case
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable
from tests.helpers.conftest import ENVIRONMENT
from tests.helpers.history.made import moment
from tests.helpers.history.postgres import Server, running_server
from tests.helpers.session_double import STANDING, WHEN, FakeRunner

MakeRun = Callable[..., RunResult]
MakePlan = Callable[..., CasePlan]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One of this module's own, which it may crash."""
    with running_server() as found:
        yield found


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    server.start()
    yield server.new_database()
    server.start()


class Night:
    """A session of one case with two runs, whose verdict is the evidence's word on the past; ``at`` what happens at
    which moment: start, run 0, run 1, night, end."""

    def __init__(self, folder: Path, url: str, make_plan: MakePlan, make_run: MakeRun, session: str = "s") -> None:
        self.plan = make_plan(runs=2)
        self.store = ResultStore(folder / "runs", session)
        self.at: dict[str, Callable[[], object]] = {}
        self.seconds = 0.0
        self.spool = Spool.of(folder / "runs", url)
        self.decisions = DecisionFiles(folder / "runs")
        self.open = lambda: open_history(url, runs_folder=folder / "runs")
        self.memory = SpoolingMemory(self.open, self.spool, self.decisions, clock=lambda: self.seconds)
        self.unreachable = ""
        self.most_waiting = 0
        self.make_run = make_run

    def run(self) -> CaseResult:
        self._happens("start")
        self.memory.start()
        runner = FakeRunner(self.store, self._made)
        runner.before = lambda: self._happens(f"run {len(runner.asked)}")
        result = measure_case(self.plan, runner, self.store, self.memory, judge=self._judge, now=lambda: WHEN)
        self._happens("end")
        self.memory.start_segment(self.start)
        return result

    @property
    def start(self) -> SegmentStart:
        segment = segment_of(ENVIRONMENT.to_mapping(), {}, "test")
        return SegmentStart(self.plan.case.id, "cpu", segment, moment(3), "recorded anew", "abc")

    def _happens(self, moment: str) -> None:
        self.at.get(moment, lambda: None)()
        # Each attempt to reach the database is made as soon as it may be.
        self.seconds += 31

    def _made(self, plan: CasePlan, replicate: int, **values: Any) -> RunResult:
        return self.make_run(
            plan,
            replicate,
            uuid=f"{self.store.session}-{replicate}",
            session=self.store.session,
            # More than the free pages of a new SQLite file hold.
            log_tail="no space " * 20_000,
            **values,
        )

    def _judge(self, evidence: Evidence) -> Verdict | NeedRuns:
        self.unreachable = evidence.past.unreachable
        self.most_waiting = self.spool.waiting()
        if len(evidence.runs) < 2:
            return NeedRuns(Build.CANDIDATE, (Build.CANDIDATE,), 1, "another", Stage.SCREEN)
        self._happens("night")
        return Verdict(Status.PASS, Reason("steady", "no worse"), standing=STANDING)


@pytest.fixture
def make_night(
    tmp_path: Path, url: str, make_plan: MakePlan, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Night]:
    # How long each attempt waits for a server that refuses connections.
    monkeypatch.setattr("helpers.history.database.PATIENCE_SECONDS", 0.1)
    return lambda session="s": Night(tmp_path, url, make_plan, make_run, session)


def check_is_in_once(url: str, night: Night) -> None:
    with open_history(url) as history:
        found = history.results_of(session=night.store.session)
        # The verdict comes into the files at the end, and from there with reindex alone.
        on_disk = night.store.results(night.plan.case.id)
        whole = [[replace(run, verdict=None) for run in runs] for runs in ([each.result for each in found], on_disk)]
        assert whole[0] == whole[1]
        assert len(found) == 2
        (kept,) = history.series(night.plan.case.id)
        assert kept.record.run_uuids == tuple(each.result.uuid for each in found)
        assert history.segment_starts(night.plan.case.id) == (
            replace(night.start, created=utc(night.start.created, "test")),
        )
        with history._database.reading() as connection:
            for table, rows in (("results", 2), ("steps", 2), ("nights", 1), ("night_runs", 2), ("segment_starts", 1)):
                assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() == rows, table
    assert night.spool.waiting() == 0


@pytest.mark.slow
@pytest.mark.parametrize("when", ["start", "run 0", "run 1", "night", "end"])
def test_a_server_that_crashes_loses_nothing(
    server: Server, url: str, make_night: Callable[..., Night], when: str
) -> None:
    with open_history(url):
        pass
    night = make_night()
    night.at[when] = lambda: server.end(signal.SIGKILL)
    begun = time.monotonic()
    assert night.run().verdict.status is Status.PASS
    assert time.monotonic() - begun < 10
    waiting = {"start": 3, "run 0": 3, "run 1": 2, "night": 1, "end": 0}[when]
    assert night.spool.waiting() == waiting
    assert bool(night.unreachable) is (when in ("start", "run 0"))
    assert not waiting or f"{waiting} entr" in night.memory.finish()[-1]
    server.start()
    # Whatever is in already comes again: the process may have been killed between the database and the file.
    SpoolingMemory(night.open, night.spool, night.decisions).start()
    for run in night.store.results(night.plan.case.id):
        night.spool.put(replace(run, verdict=None))
    SpoolingMemory(night.open, night.spool, night.decisions).start()
    check_is_in_once(url, night)


@pytest.mark.slow
def test_a_server_that_comes_back_takes_the_rest_of_the_night_itself(
    server: Server, url: str, make_night: Callable[..., Night]
) -> None:
    night = make_night()
    night.at = {"run 0": lambda: server.end(signal.SIGKILL), "night": server.start}
    night.run()
    check_is_in_once(url, night)
    assert "1 entry" not in "".join(night.memory.finish())


@pytest.mark.slow
def test_reindex_takes_in_what_is_spooled(
    server: Server, url: str, make_night: Callable[..., Night], capsys: pytest.CaptureFixture[str]
) -> None:
    night = make_night()
    night.at["start"] = lambda: server.end(signal.SIGKILL)
    night.run()
    arguments = ["reindex", str(night.store.root), "--history", url]
    assert main(arguments) == 4
    assert night.spool.waiting() == 3
    server.start()
    assert main(arguments) == 0
    assert "3 spooled entries went in" in capsys.readouterr().out
    check_is_in_once(url, night)


@pytest.mark.slow
def test_what_is_spooled_outlives_the_session_s_folder(
    server: Server, url: str, make_night: Callable[..., Night], tmp_path: Path
) -> None:
    night = make_night()
    night.at["start"] = lambda: server.end(signal.SIGKILL)
    night.run()
    night.store.folder.rename(tmp_path / "gone")
    server.start()
    assert main(["reindex", str(night.store.root), "--history", url]) == 0
    (tmp_path / "gone").rename(night.store.folder)
    check_is_in_once(url, night)


@pytest.mark.slow
def test_a_stopped_server_does_not_hold_the_session(server: Server, url: str, make_night: Callable[..., Night]) -> None:
    open_history(url).close()
    night = make_night()
    night.memory._answer_seconds = 1.0
    stopped: list[int] = []

    def send(pid: int, number: signal.Signals) -> None:
        # One of the server's own workers may end at any time.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def stop() -> None:
        # The server and its children: they keep their connections and say nothing.
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        stopped.extend([server.pid, *map(int, children)])
        for pid in stopped:
            send(pid, signal.SIGSTOP)

    night.at["run 1"] = stop
    begun = time.monotonic()
    try:
        night.run()
        assert time.monotonic() - begun < 15
        assert night.spool.waiting() == 2
    finally:
        for pid in stopped:
            send(pid, signal.SIGCONT)
    night.seconds += 10_000
    night.memory.finish()
    check_is_in_once(url, night)


@pytest.mark.slow
def test_a_server_that_is_not_there_is_away_and_a_wrong_name_is_not(server: Server, url: str) -> None:
    with pytest.raises(HistoryUnreachable):
        open_history("postgresql://me@127.0.0.1:1/history")
    for wrong in (url.replace("perfgate@", "nobody@"), url.replace("history", "nowhere")):
        with pytest.raises(HistoryError) as caught:
            open_history(wrong)
        assert not isinstance(caught.value, HistoryUnreachable), caught.value


# ---- SQLite


@pytest.fixture
def file_night(tmp_path: Path, make_plan: MakePlan, make_run: MakeRun) -> Night:
    (tmp_path / "runs").mkdir()
    url = default_url(tmp_path / "runs")
    open_history(url).close()
    night = Night(tmp_path, url, make_plan, make_run)
    night.memory._open = lambda: History.open(url, wait_seconds=0.1)
    return night


def test_a_file_that_another_process_holds_loses_nothing(file_night: Night) -> None:
    path = file_night.store.root / "history.sqlite"
    holder = sqlite3.connect(path, isolation_level=None)
    file_night.at = {"run 0": lambda: holder.execute("BEGIN IMMEDIATE"), "end": holder.rollback}
    file_night.run()
    # Its last entry came when the file was free, and took the others with it.
    assert file_night.most_waiting == 2
    check_is_in_once(default_url(file_night.store.root), file_night)
    holder.close()


def test_a_file_that_became_read_only_loses_nothing(file_night: Night) -> None:
    def forbid(how: bool) -> None:
        opened = file_night.memory._history
        assert isinstance(opened, History)
        with opened._database.engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA query_only = {'ON' if how else 'OFF'}")

    file_night.at = {"run 0": lambda: forbid(True), "end": lambda: forbid(False)}
    file_night.run()
    assert file_night.most_waiting == 2
    check_is_in_once(default_url(file_night.store.root), file_night)


def test_a_file_that_may_not_grow_loses_nothing(file_night: Night) -> None:
    def limit(pages: str) -> None:
        opened = file_night.memory._history
        assert isinstance(opened, History)
        with opened._database.engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    # SQLite's own answer to a full disk: SQLITE_FULL, "database or disk is full".
    file_night.at = {"run 0": lambda: limit("1"), "end": lambda: limit("1000000")}
    file_night.run()
    assert file_night.most_waiting == 2
    check_is_in_once(default_url(file_night.store.root), file_night)


def test_a_damaged_file_is_refused_before_measuring(file_night: Night) -> None:
    (file_night.store.root / "history.sqlite").write_text("no database at all " * 100)
    with pytest.raises(HistoryError, match="perfgate reindex"):
        file_night.run()
    assert not file_night.store.folder.exists()


def test_no_thread_is_left(file_night: Night) -> None:
    file_night.run()
    assert [each.name for each in threading.enumerate() if each.name == "history"] == []
