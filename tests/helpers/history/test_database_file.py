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
from tests.helpers.strangers import reachable

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


def test_what_is_damaged_is_told_also_there(disk: SmallDisk) -> None:
    path = disk.folder / "history.sqlite"
    with path.open("r+b") as file:
        file.write(b"no database at all" * 100)
    disk.read_only()
    with pytest.raises(HistoryError, match="not a database"):
        read(path)
    disk.writable()


def test_an_old_history_that_cannot_be_migrated_is_refused(disk: SmallDisk) -> None:
    path = disk.folder / "history.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM alembic_version")
    connection.close()
    disk.read_only()
    with pytest.raises(HistoryError, match="unable to open"):
        read(path)
    disk.writable()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_s_history_is_read(tmp_path_factory: pytest.TempPathFactory, made_file: Path) -> None:
    folder = tmp_path_factory.mktemp("theirs")
    reachable(folder)
    path = folder / "history.sqlite"
    shutil.copy(made_file, path)
    with open_history(f"sqlite:///{path}") as history:
        history.add_result(run("first"))
    path.chmod(0o644)
    reader = multiprocessing.get_context("fork").Process(target=_read_as, args=(path, STRANGER))
    reader.start()
    reader.join()
    assert reader.exitcode == 0


def _read_as(path: Path, user: int) -> None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    os._exit(0 if read(path) == 1 and "readonly" in refused(path) else 1)
