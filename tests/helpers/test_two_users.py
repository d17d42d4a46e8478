"""Two users on one machine, one of them hostile and there first: what the other's session does is not up to them."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import stat
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.junitxml import LogXML

from fixtures.junit import written_aside
from helpers.common.files import check_replaceable, make_folder, open_lock, write_whole
from helpers.history import default_url, open_history
from helpers.history.address import refuse_in_open_file
from helpers.history.run_folders import ResultStore, write_night
from helpers.history.unwritten import Unwritten
from helpers.launch.guarded import start_guarded
from helpers.machine.leases import Leases, default_folder
from helpers.machine.watch.processes import GUARD_VARIABLE, JOB_VARIABLE, Processes
from helpers.plan.perf_yaml import load_config
from helpers.report.unforeseen import unforeseen
from helpers.session import SuiteOptions
from helpers.session.suite_history import memory_of
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import DeviceError, HistoryError
from tests.helpers.history.made import CASE, night, run
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


@contextmanager
def marked_by_stranger(variables: Mapping[str, str]) -> Iterator[int]:
    """A stranger's process with these variables; its id. It is alive until the block ends, or until it is killed."""
    stranger = subprocess.Popen(
        ["sleep", "1000"], env={**os.environ, **variables}, user=STRANGER, group=STRANGER, extra_groups=[]
    )
    try:
        yield stranger.pid
        assert stranger.poll() is None, "it was ended"
    finally:
        stranger.kill()
        stranger.wait()


def test_marks_that_a_stranger_forged_are_not_believed() -> None:
    processes, job = Processes(supervisor_variable="TEST_SUPERVISOR"), uuid.uuid4().hex
    mine = processes.marks(job)
    where, _, started = mine["TEST_SUPERVISOR"].rsplit("/", 2)
    forged = {**mine, "TEST_SUPERVISOR": f"{where}/{2**22 + 5}/{started}"}
    with marked_by_stranger(forged) as pid, marked_by_stranger({GUARD_VARIABLE: job}) as guard:
        assert processes.marked(job) == ([], [])
        assert not {pid, guard} & {each.pid for each in processes.orphans()}
        # Root can read the environment, and nothing of root's has these marks.
        assert f"{JOB_VARIABLE}={job}".encode() in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_guard_ends_no_stranger_s_process(tmp_path: Path) -> None:
    job = uuid.uuid4().hex
    with (
        marked_by_stranger({JOB_VARIABLE: job}),
        (tmp_path / "output").open("wb") as output,
    ):
        started = start_guarded(("sleep", "1000"), {JOB_VARIABLE: job}, output, tmp_path, 0.1)
        started.end()


@pytest.mark.parametrize(
    ("folder", "umask", "mode"),
    [(0o2770, 0o022, 0o600), (0o2770, 0o002, 0o660), (0o2777, 0o000, 0o600), (0o775, 0o002, 0o600), (0o700, 0, 0o600)],
)
def test_who_may_not_write_to_a_lock_may_not_read_it_and_so_cannot_hold_it(
    tmp_path: Path, folder: int, umask: int, mode: int
) -> None:
    tmp_path.chmod(folder)
    before = os.umask(umask)
    try:
        os.close(open_lock(tmp_path / "lock"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == mode


@pytest.mark.usefixtures("histories_made")
@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_no_stranger_can_open_a_history_and_so_hold_it(shared: Path, umask: int) -> None:
    path = shared / "runs" / "history.sqlite"
    before = os.umask(umask)
    try:
        with open_history(default_url(path.parent)) as history:
            history.add_result(run("first"))
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    assert {f"history.sqlite{end}" for end in ("", "-wal", "-shm")} <= set(modes)


@pytest.mark.usefixtures("histories_made")
def test_a_folder_that_was_opened_to_its_group_on_purpose_stays_open(shared: Path) -> None:
    runs = shared / "runs"
    runs.mkdir()
    runs.chmod(0o2770)
    before = os.umask(0o002)
    try:
        open_history(default_url(runs)).close()
        Unwritten.of(runs, default_url(runs)).make_folder()
    finally:
        os.umask(before)
    assert stat.S_IMODE(runs.stat().st_mode) == 0o2770
    assert stat.S_IMODE((runs / "history.sqlite").stat().st_mode) == 0o660
    assert stat.S_IMODE((runs / ".not-in-history").stat().st_mode) == 0o2770


@pytest.mark.usefixtures("histories_made")
@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_history_that_a_stranger_planted_is_refused(shared: Path, kind: str) -> None:
    path, victim = shared / "history.sqlite", shared / "victim"

    def plant() -> None:
        if kind == "link":
            path.symlink_to(victim)
        else:
            path.touch(0o666)

    as_user(STRANGER, plant)
    with pytest.raises(HistoryError, match=f"that user {STRANGER} put into a folder of everybody.*folder of your own"):
        open_history(f"sqlite:///{path}")
    assert not victim.exists()
    assert kind == "link" or not path.stat().st_size


@pytest.mark.slow
@pytest.mark.usefixtures("histories_made")
def test_a_session_that_cannot_write_its_history_says_so_and_the_next_one_takes_its_results_in(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helpers.session.suite_history.FILE_WAIT_SECONDS", 0.1)
    options = SuiteOptions(ROOT / "helpers/plan/defaults.yaml", shared / "baselines", shared / "runs", "s1")
    config = load_config(options.config_path)
    beside = shared / "runs" / "history.sqlite-shm"
    # While it is open there is something to lock; a killed session leaves the same.
    with open_history(default_url(beside.parent)) as history:
        for path in (beside.parent, beside):
            path.chmod(0o755)
        with locked_by_stranger(beside):
            memory = memory_of(options, config)
            store = ResultStore(shared / "runs", "s1")
            store.new_run_folder(CASE, 0)
            store.write(run("first", session="s1"))
            judged = night(1, 4.5, run_uuids=("first",))
            write_night(shared / "runs", judged)
            memory.add_case([run("first", session="s1")], judged)
            (note,) = memory.finish()
            assert "lacks 1 case" in note and "next session" in note
        assert history.results_of(case_id=CASE) == ()
        assert memory_of(options, config).start() == ""
        assert len(history.results_of(case_id=CASE)) == 1


@contextmanager
def locked_by_stranger(path: Path) -> Iterator[int]:
    """A reader that locks all bytes of the file, as any reader may, so that nobody can write; its process id."""
    locked, told = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(STRANGER)
        with path.open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH)
            os.write(locked[1], b"x")
            os.read(told[0], 1)
        os._exit(0)
    try:
        os.read(locked[0], 1)
        yield child
    finally:
        os.write(told[1], b"x")
        os.waitpid(child, 0)
        for each in (*locked, *told):
            os.close(each)


def plant_links(folder: Path, victim: Path) -> None:
    for name in ("junit.xml", "results.json", "night.html"):
        (folder / name).symlink_to(victim)


def test_no_report_is_written_through_a_link_that_a_stranger_planted(shared: Path) -> None:
    victim, folder = shared / "victim", shared / "gate"
    victim.write_text("root's own")
    folder.mkdir()
    folder.chmod(0o777)
    as_user(STRANGER, lambda: plant_links(folder, victim))
    junit = LogXML(str(folder / "junit.xml"), None)
    junit.pytest_sessionstart()
    written_aside(junit)()
    write_whole(folder / "night.html", b"a page")
    assert victim.read_text() == "root's own"
    assert "<testsuite " in (folder / "junit.xml").read_text()
    assert not any((folder / name).is_symlink() for name in ("junit.xml", "night.html"))
    assert sorted(path.name for path in folder.iterdir()) == ["junit.xml", "night.html", "results.json"]
    with pytest.raises(OSError, match=f"a symbolic link that user {STRANGER} put into a folder of everybody"):
        check_replaceable(folder / "results.json")


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
def test_nobody_else_can_plant_anything_in_a_run_folder(tmp_path: Path, umask: int) -> None:
    run_folder = tmp_path / "runs" / "s1" / "case" / "r0"
    before = os.umask(umask)
    try:
        make_folder(run_folder)
        write_whole(run_folder / "result.json", b"{}")
    finally:
        os.umask(before)
    for folder in (run_folder, *run_folder.parents[:3]):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not (run_folder / "result.json").stat().st_mode & stat.S_IWOTH


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
