"""Where nothing can be written (a full disk, a read-only one, another user's file) a history is read all the same."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.history import open_history
from helpers.trainers.contract.errors import HistoryError
from tests.faults.small_disk import SmallDisk, small_disk, why_no_mount
from tests.helpers.history.made import CASE, run

NO_MOUNT = why_no_mount()
# A number that no user of a machine has.
STRANGER = 61_234
# Making histories is what is tested here.
pytestmark = pytest.mark.usefixtures("histories_made")


@pytest.fixture
def disk(tmp_path: Path, made_file: Path) -> Iterator[SmallDisk]:
    """A disk with a history of one run."""
    if NO_MOUNT:
        pytest.skip(NO_MOUNT)
    with small_disk(tmp_path / "disk") as made:
        shutil.copy(made_file, made.folder / "history.sqlite")
        with open_history(f"sqlite:///{made.folder / 'history.sqlite'}") as history:
            history.add_result(run("first"))
        yield made


def read(path: Path) -> int:
    """The runs that are found, the same however the history is opened."""
    found = set()
    for writes in (True, False):
        with open_history(f"sqlite:///{path}", writes=writes) as history:
            found.add(len(history.results_of(case_id=CASE)))
    (number,) = found
    return number


def refused(path: Path) -> str:
    with open_history(f"sqlite:///{path}") as history, pytest.raises(HistoryError) as caught:
        history.add_result(run("first"))
    return str(caught.value)


@pytest.mark.parametrize("state", [SmallDisk.read_only, SmallDisk.fill])
def test_it_is_read_and_writing_is_refused_in_words(disk: SmallDisk, state: Callable[[SmallDisk], None]) -> None:
    path = disk.folder / "history.sqlite"
    state(disk)
    assert read(path) == 1
    assert "expected a writing that succeeds" in refused(path)
    disk.writable()


@pytest.mark.parametrize("state", [SmallDisk.read_only, SmallDisk.fill])
def test_what_a_killed_writer_left_beside_the_file_counts(disk: SmallDisk, state: Callable[[SmallDisk], None]) -> None:
    path = disk.folder / "history.sqlite"
    writer = multiprocessing.get_context("fork").Process(target=_write_and_die, args=(path,))
    writer.start()
    writer.join()
    assert path.with_name("history.sqlite-wal").stat().st_size
    state(disk)
    assert read(path) == 2
    disk.writable()


def _write_and_die(path: Path) -> None:
    history = open_history(f"sqlite:///{path}")
    history.add_result(run("second"))
    os._exit(0)


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (["CREATE TABLE bookmarks (x)"], "bookmarks"),
        (["CREATE TABLE results (x)", "CREATE TABLE history_version (version)"], "history_version, results"),
    ],
)
def test_another_program_s_file_is_refused_and_stays_as_it_is(
    tmp_path: Path, statements: list[str], told: str, writes: bool
) -> None:
    path = tmp_path / "places.sqlite"
    with sqlite3.connect(path) as connection:
        for each in statements:
            connection.execute(each)
    connection.close()
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(HistoryError, match=rf"another program \({told}\).*Name another"):
        open_history(f"sqlite:///{path}", writes=writes)
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]
