"""No process of a job outlives it, whoever is killed: suite, guard, launcher. All of it with real processes."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO

import pytest

from helpers.launch import guard, guarded
from helpers.launch.guarded import GuardedProcess, GuardLostError, start_guarded
from helpers.launch.outcome import OutcomeKind
from helpers.launch.supervisor import run_job
from helpers.launch.tail import Progress
from helpers.machine.watch.processes import JOB_VARIABLE, Process, Processes
from helpers.trainers.contract import ROOT
from tests.helpers.launch.test_supervisor import LIMITS, PATIENT, QuietMeter, command, job
from tests.job_processes import is_alive, processes_of_job

pytestmark = pytest.mark.slow

SUITE = Path(__file__).with_name("lone_suite.py")
SUPERVISOR = f"TEST_SUPERVISOR_{os.getpid()}"
END_SECONDS = 10.0


@pytest.fixture
def job_id(monkeypatch: pytest.MonkeyPatch) -> Generator[str, None, None]:
    """A job nothing of which may live after the test, its guard included."""
    made = uuid.uuid4().hex
    yield made
    left = processes_of_job(made)
    monkeypatch.undo()
    guarded.sweep(f"{JOB_VARIABLE}={made}", 0.0, [each.pid for each in Processes().marked(made)[1]])
    assert left == []


class Suite:
    """A real suite that runs a job of stand-ins, in its own process."""

    def __init__(self, folder: Path, job_id: str, *behaviours: str, variable: str = SUPERVISOR) -> None:
        self.job_id = job_id
        self.run_folder = folder / "run"
        words = [sys.executable, str(SUITE), str(self.run_folder), job_id, variable, *behaviours]
        self.process = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.said: IO[bytes] = self.process.stdout

    def wait_for_step(self, step: int) -> None:
        for line in self.said:
            if line.split() == [b"LOOK", str(step).encode()]:
                return
        raise AssertionError("the suite ended")

    def end(self, number: int = signal.SIGKILL) -> float:
        """When it was killed, in monotonic seconds."""
        self.process.send_signal(number)
        self.process.wait()
        self.said.close()
        return time.monotonic()


@pytest.fixture
def suite(tmp_path: Path, job_id: str) -> Generator[Callable[..., Suite], None, None]:
    started: list[Suite] = []

    def start(*behaviours: str, variable: str = SUPERVISOR) -> Suite:
        started.append(Suite(tmp_path, job_id, *behaviours, variable=variable))
        return started[0]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end()


def until(holds: Callable[[], bool], seconds: float = END_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def guard_of(job_id: str) -> Process:
    (found,) = Processes().marked(job_id)[1]
    return found


def daemon_of(suite: Suite) -> int:
    path = suite.run_folder / "daemon"
    assert until(path.exists)
    return int(path.read_text())


# ---- whoever is killed


def test_a_killed_suite_leaves_nothing_not_even_what_hides_and_takes_nothing_of_others(
    suite: Callable[..., Suite], job_id: str
) -> None:
    running = suite("hangs", "stubborn", "launcher=hides")
    running.wait_for_step(3)
    hidden = daemon_of(running)
    assert len(processes_of_job(job_id)) == 4 and is_alive(hidden)
    rank, memory = Processes().marked(job_id)[0][-1], Path("/dev/shm")
    its = [memory / f"paddle_{rank.pid}_0_{os.getpid()}", memory / f"torch_{rank.pid}_{os.getpid()}"]
    others = [memory / f"paddle_{os.getpid()}_0_{rank.pid}", memory / f"other_{rank.pid}_{os.getpid()}"]
    try:
        for segment in (*its, *others):
            segment.touch()
        killed_at = running.end()
        assert until(lambda: not processes_of_job(job_id))
        assert time.monotonic() - killed_at < END_SECONDS
        assert not is_alive(hidden)
        assert not any(segment.exists() for segment in its) and all(segment.exists() for segment in others)
    finally:
        for segment in (*its, *others):
            segment.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        *((name, True) for name in ("paddle_{}_0_553796051", "torch_{}_1703908341_12")),
        *((name, False) for name in ("xpaddle_{}_0_1", "paddle_{}", "paddle_{}_0_1.x", "paddle_1_0_{}")),
    ],
)
def test_only_segments_that_a_dead_process_surely_made_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, goes: bool
) -> None:
    monkeypatch.setattr(guard, "_SHARED_MEMORY", str(tmp_path))
    dead = 2**22 + 7
    for pid in (dead, os.getpid()):
        (tmp_path / name.format(pid)).touch()
    guard._free_segments({dead, os.getpid()})
    assert (tmp_path / name.format(dead)).exists() is not goes
    assert (tmp_path / name.format(os.getpid())).exists()


def test_a_killed_guard_ends_the_job_and_is_named(tmp_path: Path) -> None:
    spec = job(tmp_path, 2)

    def kill(progress: Progress) -> None:
        if progress.step == 3:
            os.kill(guard_of(spec.job_id).pid, signal.SIGKILL)

    outcome = run_job(spec, command(spec, "hangs", "stubborn"), LIMITS, QuietMeter(), on_progress=kill)
    assert outcome.what == "launcher died"
    assert f"the guard of job {spec.job_id}: got 'ended by SIGKILL" in outcome.reason
    assert processes_of_job(spec.job_id) == []


def test_what_a_killed_suite_and_a_killed_guard_leave_the_next_session_ends(
    suite: Callable[..., Suite], job_id: str
) -> None:
    running = suite("hangs", "stubborn")
    running.wait_for_step(3)
    killed = guard_of(job_id).pid
    os.kill(killed, signal.SIGKILL)
    running.end()
    assert until(lambda: not is_alive(killed))
    processes = Processes(supervisor_variable=SUPERVISOR)
    assert {process.pid for process in processes.orphans()} == {process.pid for process in processes_of_job(job_id)}
    guarded.end_orphans(processes, 0.2)
    assert processes_of_job(job_id) == []


def test_a_guard_that_hangs_keeps_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "_ENDING_SECONDS", 0.3)
    spec = job(tmp_path)

    def stop(progress: Progress) -> None:
        if progress.step == 7:
            os.kill(guard_of(spec.job_id).pid, signal.SIGSTOP)

    outcome = run_job(spec, command(spec, "hangs-at-exit"), LIMITS, QuietMeter(), on_progress=stop)
    assert outcome.what == "hung"
    assert processes_of_job(spec.job_id) == []


def test_no_signal_but_sigkill_drives_a_guard_away(tmp_path: Path) -> None:
    spec, sent = job(tmp_path), []

    def send(progress: Progress) -> None:
        if progress.step and not sent:
            sent.append(guard_of(spec.job_id).pid)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(sent[0], number)

    outcome = run_job(spec, command(spec, "trains"), PATIENT, QuietMeter(), on_progress=send)
    assert outcome.kind is OutcomeKind.COMPLETE and sent


# ---- its launcher


def start(tmp_path: Path, job_id: str, *argv: str, **variables: str) -> GuardedProcess:
    with (tmp_path / "output.log").open("wb") as output:
        return start_guarded(argv, {JOB_VARIABLE: job_id, **variables}, output, tmp_path, 0.2)


def exit_code(process: GuardedProcess) -> int:
    codes: list[int | None] = []

    def ended() -> bool:
        codes.append(process.poll())
        return codes[-1] is not None

    until(ended)
    process.end()
    code = codes[-1]
    assert code is not None
    return code


def test_an_end_that_is_told_together_with_the_start_is_heard(tmp_path: Path, job_id: str) -> None:
    def wait_for_both(self: GuardedProcess) -> None:
        told = b""
        while told.count(b"\n") < 2:
            told = self._link.recv(256, socket.MSG_PEEK)
        wait_for_start(self)

    wait_for_start = GuardedProcess.wait_for_start
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(GuardedProcess, "wait_for_start", wait_for_both)
        assert exit_code(start(tmp_path, job_id, "/bin/sh", "-c", "exit 7")) == 7


def test_a_launcher_gets_its_own_variables_folder_and_signals_and_nothing_else(tmp_path: Path, job_id: str) -> None:
    script = """cat; pwd; tr "\\0" "\\n" < /proc/$$/environ; grep SigIgn /proc/self/status; ls -l /proc/self/fd | wc -l
    [ "$(cut -d " " -f 6 /proc/$$/stat)" = $$ ] && echo leads its session"""
    started = start(tmp_path, job_id, "/bin/sh", "-c", script, ODD="a=b\nc \udcff", PATH=os.environ["PATH"])
    assert exit_code(started) == 0
    told = (tmp_path / "output.log").read_bytes().decode(errors="surrogateescape")
    variables = f"{JOB_VARIABLE}={job_id}\nODD=a=b\nc \udcff\nPATH={os.environ['PATH']}\n"
    # Of what whoever started us ignores, a signal of libc's own say, nothing that the guard or Python ignores is left.
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    ignored = int(status["SigIgn"], 16) & ~sum(1 << (number - 1) for number in guard._RESTORED)
    # ls: a line of its own, its three streams, and the folder it reads.
    assert told == f"{tmp_path}\n{variables}SigIgn:\t{ignored:016x}\n5\nleads its session\n"


@pytest.mark.parametrize(
    ("word", "folder", "error"),
    [
        ("/no/such/program", ".", FileNotFoundError),
        ("/bin/true", "gone", FileNotFoundError),
        ("/etc/passwd", ".", PermissionError),
    ],
)
def test_a_launcher_that_cannot_start_is_an_error_here(
    tmp_path: Path, job_id: str, word: str, folder: str, error: type[OSError]
) -> None:
    with (tmp_path / "output.log").open("wb") as output, pytest.raises(error):
        start_guarded((word,), {JOB_VARIABLE: job_id}, output, tmp_path / folder, 0.2)


def test_a_guard_that_never_answers_is_an_error(tmp_path: Path, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = tmp_path / "deaf.py"
    deaf.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(guarded, "GUARD", deaf)
    monkeypatch.setattr(guarded, "_ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(guarded, "_ENDING_SECONDS", 0.1)
    monkeypatch.setattr(guarded, "_KILL_SECONDS", 0.1)
    with pytest.raises(GuardLostError, match=r"no answer within 0.3 s"):
        start(tmp_path, job_id, "/bin/true")


def test_an_interrupt_while_it_starts_leaves_nothing(
    tmp_path: Path, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: GuardedProcess) -> None:
        select.select([self._link], [], [])
        raise KeyboardInterrupt

    monkeypatch.setattr(GuardedProcess, "wait_for_start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, job_id, "/bin/sleep", "60")
    assert processes_of_job(job_id) == []
