"""The run folders are the source: a history is rebuilt from them, as often as one likes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.history.history import History
from helpers.history.run_folders import ResultStore, write_night
from helpers.history.stored import Reindexed
from tests.helpers.history.made import CASE, OTHER, moment, night, run

RUNS = [
    run("a", session="s1", replicate=0),
    run("b", session="s1", replicate=1, failure="killed"),
    run("c", session="s1", case_id=OTHER),
    run("d", session="s2"),
]
NIGHT = night(1, run("a").log_rate or 0, run_uuids=("a", "b"), created=moment(1))


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    for each in RUNS:
        store = ResultStore(root, each.session)
        store.new_run_folder(each.case_id, each.replicate)
        store.write(each)
    # Neither a result moved aside nor a half-made run is one.
    store.new_run_folder(CASE, 0)
    store.write(replace(RUNS[3]))
    (root / "s2" / CASE / "r1").mkdir()
    (root / ".locks").mkdir()
    write_night(root, NIGHT)
    return root


def test_a_rebuilt_history_has_each_run_once_and_a_second_time_changes_nothing(history: History, folders: Path) -> None:
    history.reindex(folders)
    found = [each.result for session in ("s1", "s2") for each in history.results_of(session)]
    assert sorted(found, key=lambda each: each.uuid) == RUNS
    assert [each.record for each in history.series(CASE)] == [NIGHT]
    history.exclude("a", "me", moment(2), "coffee")
    before = history.series(CASE), history.results_of("s1"), history.exclusions()
    assert history.reindex(folders) == Reindexed(sessions=2, results=4, nights=1)
    assert (history.series(CASE), history.results_of("s1"), history.exclusions()) == before
