"""Two users on one machine, one of them hostile and there first: what the other's session does is not up to them."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.history import default_url, open_history
from helpers.history.address import refuse_in_open_file
from helpers.history.spool import Spool
from helpers.launch.supervisor import free_segments
from helpers.machine.files import make_private_folder, open_lock
from helpers.machine.leases import Leases, default_folder
from helpers.report.unforeseen import unforeseen
from helpers.trainers.contract.errors import DeviceError, HistoryError
from tests.helpers.history.made import run
from tests.helpers.strangers import reachable

# Numbers that no user of a machine has.
OURS, STRANGER = 61_233, 61_234

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become two other users")


def as_user(user: int, act: Callable[[], object]) -> None:
    """Do ``act`` in a process of that user; its failure is the test's."""
    child = multiprocessing.get_context("fork").Process(target=_become, args=(user, act))
    child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    assert not alive, "it hangs"
    assert child.exitcode == 0


def _become(user: int, act: Callable[[], object]) -> None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    act()


class Card:
    id = "cpu:0"


def lease(folder: Path) -> None:
    with Leases(folder).lease([Card()], 1, "case", timeout_seconds=5):
        pass


def refused(folder: Path, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        lease(folder)


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place as /tmp is: everybody may write to it, nobody may take away what is another's."""
    place = tmp_path_factory.mktemp("shared")
    reachable(place)
    place.chmod(0o1777)
    return place


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_folder_that_a_stranger_made_first_holds_no_locks(shared: Path, depth: int) -> None:
    folder = default_folder("host", {"XDG_CACHE_HOME": str(shared)})
    theirs = [folder, *folder.parents][depth]

    def plant() -> None:
        os.umask(0)
        theirs.mkdir(parents=True)
        if theirs == folder:
            descriptor = os.open(folder / "machine.lock", os.O_CREAT | os.O_RDWR, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX)

    as_user(STRANGER, plant)
    as_user(OURS, lambda: refused(folder, f"a folder of user {STRANGER}"))


@pytest.mark.parametrize("kind", ["link", "fifo", "file"])
def test_a_thing_that_a_stranger_put_in_its_place_is_told(shared: Path, kind: str) -> None:
    folder = shared / "leases"
    if kind == "link":
        as_user(STRANGER, lambda: folder.symlink_to("/etc"))
    elif kind == "fifo":
        as_user(STRANGER, lambda: os.mkfifo(folder))
    else:
        as_user(STRANGER, folder.touch)
    as_user(OURS, lambda: refused(folder, "expected a folder for locks that only this user can write to"))


def test_a_folder_of_one_s_own_that_others_may_write_to_is_refused(shared: Path) -> None:
    folder = shared / "leases"

    def make() -> None:
        folder.mkdir()
        folder.chmod(0o777)

    as_user(OURS, make)
    as_user(OURS, lambda: refused(folder, "other users may write to"))


def test_one_s_own_locks_can_be_neither_held_nor_seen_by_others(shared: Path) -> None:
    folder = shared / "leases"
    as_user(OURS, lambda: lease(folder))

    def hold() -> None:
        with pytest.raises(PermissionError):
            list(folder.iterdir())
        with pytest.raises(PermissionError):
            os.open(folder / "machine.lock", os.O_RDONLY)

    as_user(STRANGER, hold)
    as_user(OURS, lambda: lease(folder))


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o600), (0o002, 0o660), (0o077, 0o600), (0o000, 0o666)])
def test_who_may_not_write_to_a_lock_may_not_read_it_and_so_cannot_hold_it(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        os.close(open_lock(tmp_path / "lock", 0o666))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == mode


@pytest.mark.usefixtures("histories_made")
def test_no_lock_beside_the_runs_can_be_held_by_a_stranger(shared: Path) -> None:
    runs = shared / "runs"
    runs.mkdir()
    # Here, as a user without a right to Python's own folder could import nothing more.
    open_history(default_url(runs)).close()
    for path in (runs, runs / "history.sqlite"):
        os.chown(path, OURS, OURS)

    def measure() -> None:
        Spool.of(runs, "sqlite:////elsewhere").put(run("first"))
        with open_history(default_url(runs)) as history:
            Spool.of(runs, "sqlite:////elsewhere").empty_into(history)

    as_user(OURS, measure)
    locks = [path for path in runs.rglob("*.lock") if path.is_file()]
    assert len(locks) == 2
    assert {path.stat().st_uid for path in locks} == {0, OURS}

    def hold() -> None:
        for path in locks:
            with pytest.raises(PermissionError):
                os.open(path, os.O_RDONLY)

    as_user(STRANGER, hold)


def test_a_traceback_is_read_by_its_user_alone(accidents: Path) -> None:
    unforeseen(ValueError("x"), ["perfgate"], {})
    (kept,) = accidents.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_password_in_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "perf.yaml"
    path.touch()
    path.chmod(mode)
    with pytest.raises(HistoryError, match=r"history\.url.*other users may read.*chmod 600") as caught:
        refuse_in_open_file("postgresql://me:s3cret@db/perf", path)
    assert "s3cret" not in str(caught.value)
    refuse_in_open_file("postgresql://me@db/perf", path)
    path.chmod(0o600)
    refuse_in_open_file("postgresql://me:s3cret@db/perf", path)


def test_another_user_s_shared_memory_stays_also_for_root(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "paddle_99_1", tmp_path / "torch_99_2"
    for path in (ours, theirs):
        path.touch()
    os.chown(theirs, STRANGER, STRANGER)
    assert free_segments([99], lambda pid: False, tmp_path) == 1
    assert (ours.exists(), theirs.exists()) == (False, True)


def test_a_private_folder_is_made_and_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        make_private_folder(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
