"""Many processes write at once and lose nothing; one that is killed loses at most what it was writing."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from helpers.history import open_history
from helpers.history.history import History
from tests.helpers.history.made import CASE, moment, night, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
WRITERS = 3
RUNS = 12
TOLD_BEFORE_THE_KILL = 10


def start(url: str, name: str, count: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.helpers.history.writer", url, name, str(count)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kept(history: History) -> set[str]:
    return {each.result.uuid for each in history.results_of(case_id=CASE)}


def check_whole(history: History) -> None:
    with history._database.reading() as connection:
        if connection.dialect.name == "sqlite":
            assert connection.execute(sa.text("PRAGMA integrity_check")).scalars().all() == ["ok"]
            assert connection.execute(sa.text("PRAGMA foreign_key_check")).all() == []
        counted = connection.execute(sa.text("SELECT count(DISTINCT digest), count(*) FROM documents")).one()
        assert counted[0] == counted[1]


def test_processes_that_make_a_history_and_write_it_at_once_lose_nothing(url: str) -> None:
    processes = [start(url, f"w{number}", RUNS) for number in range(WRITERS)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, "")
    with open_history(url) as history:
        assert kept(history) == {f"w{writer}-{number}" for writer in range(WRITERS) for number in range(RUNS)}
        nights = history.series(CASE)
        assert len(nights) == WRITERS * RUNS
        assert all(len(night.rates) == 1 for night in nights)
        check_whole(history)


def test_the_same_runs_and_nights_stored_by_several_at_once_are_stored_once(history: History) -> None:
    def write(_: int) -> None:
        with History.open(history.url) as own:
            for number in range(RUNS):
                own.add_result(run(f"u{number}", created=moment(number), system={"CPU": {"number": str(number)}}))
                own.add_night(night(number, run_uuids=(f"u{number}",)))

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    assert sorted(each.result.uuid for each in history.results_of("s0")) == sorted(f"u{n}" for n in range(RUNS))
    assert len(history.series(CASE)) == RUNS
    check_whole(history)


def test_a_writer_sends_no_pipeline(history: History) -> None:
    # PostgreSQL ends no transaction, however long it is idle, whose pipeline has no end yet.
    in_pipelines = []

    def sent(*given: object) -> None:
        *_, statement, _, _, executemany = given
        if executemany:
            in_pipelines.append(statement)

    sa.event.listen(history._database.engine, "before_cursor_execute", sent)
    try:
        history.add_results([run("a"), run("b"), run("c")])
        for _ in range(2):
            history.add_night(night(1, run_uuids=("a", "b", "c")))
    finally:
        sa.event.remove(history._database.engine, "before_cursor_execute", sent)
    assert in_pipelines == []
    (kept_night,) = history.series(CASE)
    assert kept_night.record.run_uuids == ("a", "b", "c")


def test_a_killed_writer_loses_at_most_what_it_was_writing(url: str) -> None:
    open_history(url).close()
    with start(url, "w", 1_000_000) as process:
        assert process.stdout is not None
        told = [process.stdout.readline().strip() for _ in range(TOLD_BEFORE_THE_KILL)]
        process.kill()
        told += process.stdout.read().split()
    with open_history(url) as history:
        more = kept(history) - set(told)
        assert set(told) <= kept(history)
        assert len(more) <= 1
        assert len(history.series(CASE)) in (len(told), len(told) + 1)
        check_whole(history)
        history.add_result(run("afterwards"))
        assert "afterwards" in kept(history)
