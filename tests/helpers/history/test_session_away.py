"""A session whose real database goes away: PostgreSQL crashed before the night, or stopped, and a locked
SQLite. Everything is in afterwards, once."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
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
from helpers.history.session_memory import SessionMemory
from helpers.history.stored import SegmentStart
from helpers.history.unwritten import Unwritten
from helpers.judging.case.evidence import Build, Evidence
from helpers.judging.case.verdict import NeedRuns, Reason, Status, Verdict
from helpers.plan.case_plan import CasePlan
from helpers.plan.overrides import segment_of
from helpers.session.measuring.case_loop import CaseResult, MeasureRequest, measure_case
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable
from tests.faults.postgres import Server, running_server
from tests.helpers.conftest import ENVIRONMENT
from tests.helpers.history.made import moment
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
    which moment: run 0, run 1, night, end."""

    def __init__(self, folder: Path, url: str, make_plan: MakePlan, make_run: MakeRun) -> None:
        self.plan = make_plan(runs=2)
        self.store = ResultStore(folder / "runs", "s")
        self.at: dict[str, Callable[[], object]] = {}
        self.seconds = 0.0
        self.unwritten = Unwritten.of(folder / "runs", url)
        self.open: Callable[[], History] = lambda: open_history(url, answer_seconds=1.5, runs_folder=folder / "runs")
        decisions = DecisionFiles(self.store.root)
        self.memory = SessionMemory(lambda: self.open(), self.unwritten, decisions, clock=lambda: self.seconds)
        self.make_run = make_run

    def run(self) -> CaseResult:
        self.memory.start()
        runner = FakeRunner(self.store, self._made)
        runner.before = lambda: self._happens(f"run {len(runner.asked)}")
        result = measure_case(
            self.plan, runner, self.store, self.memory, MeasureRequest(by=self._judge), now=lambda: WHEN
        )
        self._happens("end")
        self.memory.start_segment(self.start)
        return result

    @property
    def start(self) -> SegmentStart:
        segment = segment_of(ENVIRONMENT.to_mapping(), {}, "test")
        return SegmentStart(self.plan.case.id, "cpu", segment, moment(3), "recorded anew", "abc")

    @property
    def waits(self) -> int:
        return len(self.unwritten.cases())

    def _happens(self, moment: str) -> None:
        self.at.get(moment, lambda: None)()
        # Each attempt to reach the database is made as soon as it may be.
        self.seconds += 1000

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
        if len(evidence.runs) < 2:
            return NeedRuns((Build.CANDIDATE,), "another")
        self._happens("night")
        return Verdict(Status.PASS, Reason("steady", "no worse"), standing=STANDING)


@pytest.fixture
def night(tmp_path: Path, url: str, make_plan: MakePlan, make_run: MakeRun) -> Night:
    return Night(tmp_path, url, make_plan, make_run)


def check_is_in_once(url: str, night: Night) -> None:
    with open_history(url) as history:
        found = [each.result for each in history.results_of(session=night.store.session)]
        assert [replace(run, verdict=None) for run in found] == [
            replace(run, verdict=None) for run in night.store.results(night.plan.case.id)
        ]
        (kept,) = history.series(night.plan.case.id)
        assert kept.record.run_uuids == tuple(each.uuid for each in found)
        assert history.segment_starts(night.plan.case.id) == (
            replace(night.start, created=utc(night.start.created, "test")),
        )
        with history._database.reading() as connection:
            for table, rows in (("results", 2), ("nights", 1), ("night_runs", 2), ("decisions", 1)):
                assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() == rows, table
    assert night.waits == 0


@pytest.mark.slow
def test_a_server_that_crashes_before_the_night_loses_nothing(server: Server, url: str, night: Night) -> None:
    open_history(url).close()
    night.at["night"] = lambda: server.end(signal.SIGKILL)
    begun = time.monotonic()
    assert night.run().verdict.status is Status.PASS
    assert time.monotonic() - begun < 10
    assert night.waits == night.memory.lacking("s") == 1
    assert "1 case" in night.memory.finish()[-1]
    arguments = ["reindex", str(night.store.root), "--history", url]
    assert main(arguments) == 4
    server.start()
    for _ in range(2):
        assert main(arguments) == 0
    check_is_in_once(url, night)


@pytest.mark.slow
def test_a_stopped_server_does_not_hold_the_session(server: Server, url: str, night: Night) -> None:
    open_history(url).close()
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

    night.at["night"] = stop
    begun = time.monotonic()
    try:
        night.run()
        assert time.monotonic() - begun < 15
        assert night.waits == 1
    finally:
        for pid in stopped:
            send(pid, signal.SIGCONT)
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
    opened = open_history(url, wait_seconds=0.1)
    night.open = lambda: opened
    return night


def test_a_file_that_another_process_holds_loses_nothing(file_night: Night) -> None:
    path = file_night.store.root / "history.sqlite"
    holder = sqlite3.connect(path, isolation_level=None)
    waited: list[int] = []

    def let_go() -> None:
        waited.append(file_night.waits)
        holder.rollback()

    file_night.at = {"run 0": lambda: holder.execute("BEGIN IMMEDIATE"), "end": let_go}
    file_night.run()
    # The start of the segment came when the file was free, and took the case with it.
    assert waited == [1]
    check_is_in_once(default_url(file_night.store.root), file_night)
    holder.close()
