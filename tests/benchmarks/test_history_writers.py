"""The benchmark of many writers finds a lost, a doubled and a slow entry; its scenes are made with fewer runners."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from benchmarks import history_writers
from helpers.history import open_history
from tests.faults.postgres import Server, running_server
from tests.helpers.history.made import night, run


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("waits", "spooled", "said", "well"),
    [
        ([0.1], False, "2 runs and 1 nights of 1 runners\n  0 lost, 0 twice, 0 still on disk", True),
        ([0.1, 99.0], False, "99.0 s (worst), more than", False),
        ([0.1], True, "0 lost, 0 twice, 1 still on disk", False),
    ],
)
def test_who_waited_too_long_or_is_not_in_yet_is_told(
    server: Server, capsys: pytest.CaptureFixture[str], waits: list[float], spooled: bool, said: str, well: bool
) -> None:
    with history_writers.scene("a scene", server) as made:
        with open_history(server.url(made.database)) as history:
            for uuid in ("a", "b"):
                history.add_result(run(uuid))
            history.add_night(night(1, 4.5))
        if spooled:
            folder = made.folder / "r0" / ".history-spool" / "x"
            folder.mkdir(parents=True)
            (folder / "0-result-x.json").write_text('{"kind": "night"}')
        made.reports = [
            {"waits": waits, "uuids": ["a", "b"], "unknown": 0, "still_unknown": 0, "left": [], "trouble": ""}
        ]
        assert made.judged() is well
    assert said in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_lost_or_there_twice_is_told(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with history_writers.scene("a scene", server) as made:
        with open_history(server.url(made.database)) as history:
            history.add_result(run("a"))
            for day in (1, 2):
                history.add_night(night(day, 4.5))
        made.reports = [
            {"waits": [0.1], "uuids": ["a", "b"], "unknown": 0, "still_unknown": 0, "left": [], "trouble": ""}
        ]
        assert made.judged() is False
    assert "1 lost, 2 twice" in capsys.readouterr().out


@pytest.mark.slow
def test_runners_that_do_not_end_and_a_replica_that_stays_behind_end_the_benchmark(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_writers, "END_SECONDS", 0.05)
    monkeypatch.setattr(history_writers, "CATCH_UP_SECONDS", 0.2)
    with history_writers.scene("a scene", server) as made:
        made.processes.append(subprocess.Popen(["sleep", "100"], start_new_session=True))
        with pytest.raises(SystemExit, match="runners have not ended"):
            made.end()
        # The server itself stands for the replica: it has the tables and no run.
        monkeypatch.setattr(made, "count", lambda statement, asked=None: 0 if asked else 1)
        with pytest.raises(SystemExit, match="the replica lacks entries"):
            history_writers._caught_up(made, server)


@pytest.mark.slow
def test_sixteen_runners_lose_nothing_whatever_happens_to_their_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # How long they wait is the benchmark's: this machine may be busy with other tests.
    monkeypatch.setattr(history_writers, "MOST_SECONDS", 60.0)
    monkeypatch.setattr(history_writers, "PAUSE_SECONDS", 1.0)
    scenes = [part for name in ("killed", "frozen", "migrated") for part in ("--scene", name)]
    monkeypatch.setattr(sys, "argv", ["history_writers", "--runners", "16", "--seconds", "4", *scenes])
    assert history_writers.main() == 0, capsys.readouterr().out
