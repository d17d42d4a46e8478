"""Starts a job's launcher under its guard (``guard``), hears how the launcher ended, and has the guard end the job."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO

from helpers.common.inherited import passed_on
from helpers.launch.failure import exit_text
from helpers.machine.watch.processes import GUARD_VARIABLE, JOB_VARIABLE, Processes
from helpers.trainers.contract.errors import LaunchError

GUARD = Path(__file__).with_name("guard.py")
# Without the site module (-S) a guard starts in half the time, and a broken environment cannot harm it.
_GUARD_WORDS = (sys.executable, "-I", "-S")
# A guard answers within tens of milliseconds; on a machine that begins to swap it takes much longer.
_ANSWER_SECONDS = 60.0
# No process has such a variable.
_NO_MARK = "-"
# A guard that does not say by then that it ends the job is stopped, or stuck.
_ENDING_SECONDS = 2.0
# How long a guard kills after the grace, and a moment more.
_KILL_SECONDS = 12.0


class GuardLostError(LaunchError):
    """The guard of a job ended before the job, so it is not known how the launcher ends."""


class GuardedProcess:
    """A launcher and its guard.

    The guard ends the job when it is told to, or as soon as this object, or the whole suite, is gone.
    """

    def __init__(self, guard: subprocess.Popen[bytes], link: socket.socket, job_id: str, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._guard = guard
        self._link = link
        self._job_id = job_id
        self._received = b""
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """The launcher's exit code, negative for a signal; None while it runs. Raises GuardLostError."""
        # If the launcher ends at once, its end is received together with its start.
        if self._exit_code is None and (self._received or select.select([self._link], [], [], 0)[0]):
            kind, value = self._line()
            if kind != "exited":
                raise self._lost(f"{kind} {value}")
            self._exit_code = int(value)
        return self._exit_code

    def end(
        self,
        at_once: Callable[[], bool] = lambda: False,
        known: Callable[[], Iterable[int]] = lambda: (),
    ) -> None:
        """Have the guard end what is left of the job, and itself. Raises LaunchError if a process is left.

        ``at_once`` is called repeatedly; when it returns True, the job has no more grace. If the guard was killed or
        hangs, another one ends the job's processes, and those whose ids are ``known``.
        """
        with self._link:
            self._say(b"e")
            began, hurried, ending = time.monotonic(), False, False
            while time.monotonic() < began + (self._grace_seconds + _KILL_SECONDS if ending else _ENDING_SECONDS):
                if select.select([self._link], [], [], 0.05)[0]:
                    if not self._read():
                        break
                    ending = b"ending" in self._received
                if not hurried and at_once():
                    hurried = True
                    self._say(b"k")
        self._guard.kill()
        if self._guard.wait() != 0:
            sweep(f"{JOB_VARIABLE}={self._job_id}", 0.0 if hurried else self._grace_seconds, known())

    def _say(self, word: bytes) -> None:
        # A guard that is gone ends nothing; its exit status shows that.
        with contextlib.suppress(OSError):
            self._link.send(word, socket.MSG_DONTWAIT)

    def wait_for_start(self) -> None:
        """Wait until the guard has started the launcher. Raises the same OSError as starting it here would, and
        GuardLostError if the guard does not answer."""
        if not select.select([self._link], [], [], _ANSWER_SECONDS)[0]:
            raise self._lost(f"no answer within {_ANSWER_SECONDS:g} s")
        kind, value = self._line()
        if kind == "failed":
            raise OSError(int(value), os.strerror(int(value)))

    def _line(self) -> tuple[str, str]:
        """Kind and value of the next line that the guard sends."""
        while b"\n" not in self._received:
            if not self._read():
                raise self._lost(self._how_it_ended())
        line, _, self._received = self._received.partition(b"\n")
        kind, _, value = line.decode().partition(" ")
        return kind, value

    def _read(self) -> bytes:
        """What the guard sends next; empty at its end."""
        try:
            data = self._link.recv(256)
        except ConnectionError:
            data = b""
        self._received += data
        return data

    def _how_it_ended(self) -> str:
        try:
            return exit_text(self._guard.wait(_ENDING_SECONDS))
        except subprocess.TimeoutExpired:
            return "it closed its connection"

    def _lost(self, got: str) -> GuardLostError:
        return GuardLostError(
            f"the guard of job {self._job_id}",
            got=got,
            expected="a guard as long as the job runs",
            remedy="See output.log of the run, and the kernel's log for who ended process "
            f"{self._guard.pid} (helpers/launch/guard.py)",
        )


def start_guarded(
    argv: tuple[str, ...], environment: Mapping[str, str], output: IO[bytes], folder: Path, grace_seconds: float
) -> GuardedProcess:
    """Start ``argv`` under a guard. Both run in ``folder``, the run's folder, because frameworks leave files where they
    are started (fleet: ``main_sharding_0``).

    Each has a session of its own, so that Ctrl-C reaches only the suite, which then ends the job in order. Raises
    OSError if the program cannot be started, and GuardLostError if the guard cannot.
    """
    job_id = environment.get(JOB_VARIABLE, "")
    # Marked as the job's guard, not as a process of the job, since it is ended after all of those.
    marked = {**environment, GUARD_VARIABLE: job_id}
    marked.pop(JOB_VARIABLE, None)
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            guard = subprocess.Popen(
                (*_GUARD_WORDS, str(GUARD), f"{JOB_VARIABLE}={job_id}", str(grace_seconds), str(folder), *argv),
                env=marked, cwd="/", stdin=theirs.fileno(), stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
    except BaseException:
        ours.close()
        raise
    started = GuardedProcess(guard, ours, job_id, grace_seconds)
    try:
        started.wait_for_start()
    except BaseException:
        # Whatever is left of it is an orphan of the next session; the reason is the error here.
        with contextlib.suppress(LaunchError):
            started.end()
        raise
    return started


def sweep(mark: str, grace_seconds: float, pids: Iterable[int] = ()) -> None:
    """Have a guard without a job end all processes with the mark (``NAME=VALUE``), those with these ids, and their
    descendants. Raises LaunchError if some are left."""
    # A guard with a job has a folder in place of ids.
    words = (*_GUARD_WORDS, str(GUARD), mark, str(grace_seconds), *map(str, (*pids, 0)))
    try:
        subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=True, cwd="/",
            timeout=grace_seconds + _KILL_SECONDS + _ANSWER_SECONDS, env=passed_on(), start_new_session=True,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        left = ", ".join(str(error.output or "").splitlines())
        raise LaunchError(
            f"processes with {mark}",
            got=f"{left} alive after SIGKILL" if left else str(error),
            expected="no process of the job left",
            remedy="Its cards are not free: look at the processes, or restart the machine",
        ) from error


def end_orphans(processes: Processes, grace_seconds: float) -> None:
    """End what a killed suite left on this machine whose guard was killed too, or hangs. Raises LaunchError if that
    fails."""
    # Guards are found only when nothing is left below them.
    for _ in range(2):
        if orphans := processes.orphans():
            sweep(_NO_MARK, grace_seconds, [process.pid for process in orphans])
