"""Starts a job's launcher under its guard (``guard``), and receives from the guard how the launcher ended."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from helpers.launch.failure import exit_text
from helpers.machine.watch.processes import GUARD_VARIABLE, JOB_VARIABLE
from helpers.trainers.contract.errors import LaunchError

GUARD = Path(__file__).with_name("guard.py")
# A guard answers within tens of milliseconds; on a machine that begins to swap it takes much longer.
_ANSWER_SECONDS = 60.0
_CLOSE_SECONDS = 2.0


class GuardLostError(LaunchError):
    """The guard of a job ended before the job, so it is not known how the launcher ends."""


class GuardedProcess:
    """A launcher and its guard. Implements supervisor.StartedProcess.

    The guard ends the job as soon as this object, or the whole suite, is gone.
    """

    def __init__(self, guard: subprocess.Popen[bytes], link: socket.socket, job_id: str) -> None:
        self.guard_pid = guard.pid
        self._guard = guard
        self._link = link
        self._job_id = job_id
        self._received = b""
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """The launcher's exit code, negative for a signal; None while it runs. Raises GuardLostError."""
        # If the launcher ends at once, its end is received together with its start.
        if self._exit_code is None and (self._received or select.select([self._link], [], [], 0)[0]):
            self._exit_code = int(self._value_of("exited"))
        return self._exit_code

    def close(self) -> None:
        """Close the connection. The guard then ends what is left of the job, and itself; one that does not end in time
        is killed."""
        with self._link:
            # The connection ends with the guard; to wait for the process with a time limit would need polling.
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + _CLOSE_SECONDS
            while self._receives(deadline - time.monotonic()):
                continue
        self._guard.kill()
        self._guard.wait()

    def _receives(self, seconds: float) -> bool:
        """Whether the guard sends anything within this time; False once it has ended."""
        try:
            return bool(select.select([self._link], [], [], max(0.0, seconds))[0] and self._link.recv(256))
        except ConnectionError:
            return False

    def give_order(self, data: bytes) -> None:
        """Have the guard start the launcher. Raises the same OSError as starting it here would, and GuardLostError if
        the guard does not answer."""
        # An order larger than the socket's buffer is sent only when the guard reads it, which may never happen.
        self._link.settimeout(_ANSWER_SECONDS)
        try:
            self._link.sendall(data)
        except TimeoutError:
            raise self._lost(f"nothing read within {_ANSWER_SECONDS:g} s") from None
        except ConnectionError:
            # The receive below finds out how the guard ended.
            pass
        self._link.settimeout(None)
        if not select.select([self._link], [], [], _ANSWER_SECONDS)[0]:
            raise self._lost(f"no answer within {_ANSWER_SECONDS:g} s")
        kind, value = self._line()
        if kind == "failed":
            raise OSError(int(value), os.strerror(int(value)))

    def _value_of(self, kind: str) -> str:
        got, value = self._line()
        if got != kind:
            raise self._lost(f"{got} {value}")
        return value

    def _line(self) -> tuple[str, str]:
        """Kind and value of the next line that the guard sends."""
        while b"\n" not in self._received:
            try:
                data = self._link.recv(256)
            except ConnectionError:
                data = b""
            if not data:
                raise self._lost(self._how_it_ended())
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        kind, _, value = line.decode().partition(" ")
        return kind, value

    def _how_it_ended(self) -> str:
        try:
            return exit_text(self._guard.wait(_CLOSE_SECONDS))
        except subprocess.TimeoutExpired:
            return "it closed its connection"

    def _lost(self, got: str) -> GuardLostError:
        return GuardLostError(
            f"the guard of job {self._job_id}",
            got=got,
            expected="a guard as long as the job runs",
            remedy="See output.log of the run, and the kernel's log for who ended process "
            f"{self.guard_pid} (helpers/launch/guard.py)",
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
            # Without the site module (-S) the guard starts in half the time, and a broken environment cannot harm it.
            guard = subprocess.Popen(
                (sys.executable, "-I", "-S", str(GUARD), f"{JOB_VARIABLE}={job_id}", str(grace_seconds)),
                env=marked, cwd="/", stdin=theirs.fileno(), stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
    except BaseException:
        ours.close()
        raise
    started = GuardedProcess(guard, ours, job_id)
    try:
        started.give_order(order(argv, environment, folder))
    except BaseException:
        started.close()
        raise
    return started


def order(argv: tuple[str, ...], environment: Mapping[str, str], folder: Path) -> bytes:
    """The order for a guard: its length, then folder, number of words, words and variables, with NUL between them."""
    variables = [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in environment.items()]
    words = [os.fsencode(word) for word in argv]
    body = b"\0".join([os.fsencode(folder), str(len(words)).encode(), *words, *variables])
    return len(body).to_bytes(4, "big") + body
