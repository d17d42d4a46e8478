"""Many processes write at once and lose nothing; one that is killed loses at most what it was writing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from helpers.history import open_history
from helpers.history.history import History
from tests.helpers.history.made import CASE, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
WRITERS = 2
RUNS = 4
TOLD_BEFORE_THE_KILL = 3


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
        counted = connection.execute(sa.text("SELECT count(DISTINCT digest), count(*) FROM segments")).one()
        assert counted[0] == counted[1]


def test_processes_that_make_a_history_and_write_it_at_once_lose_nothing(url: str) -> None:
    processes = [start(url, f"w{number}", RUNS) for number in range(WRITERS)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, "")
    with open_history(url) as history:
        assert kept(history) == {f"w{writer}-{number}" for writer in range(WRITERS) for number in range(RUNS)}
        assert len(history.series(CASE)) == WRITERS * RUNS
        check_whole(history)


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
