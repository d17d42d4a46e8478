"""Starts a job's launcher under its guard (``guard``), and hears from it how the launcher ended."""

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

from helpers.errors import LaunchError
from helpers.launch.crash import exit_text
from helpers.launch.processes import GUARD_VARIABLE, JOB_VARIABLE

GUARD = Path(__file__).with_name("guard.py")
# A guard answers within tens of ms; but a machine that begins to swap takes its time.
_ANSWER_SECONDS = 60.0
_CLOSE_SECONDS = 2.0


class GuardLostError(LaunchError):
    """The guard of a job ended before the job did, so nobody knows how the launcher ends."""


class GuardedProcess:
    """A launcher and its guard. Implements supervisor.StartedProcess.

    The guard ends the job as soon as this object, or the whole suite, is gone.
    """

    def __init__(self, guard: subprocess.Popen[bytes], link: socket.socket, job_id: str) -> None:
        self.guard_pid = guard.pid
        self._guard = guard
        self._link = link
        self._job_id = job_id
        self._heard = b""
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """The launcher's exit code, negative for a signal; None while it runs. Raises GuardLostError."""
        # A launcher that ends at once is told of together with its start.
        if self._exit_code is None and (self._heard or select.select([self._link], [], [], 0)[0]):
            self._exit_code = int(self._word("exited"))
        return self._exit_code

    def close(self) -> None:
        """Let the guard go: it ends what may be left of the job, and itself; where it does not in time it is killed."""
        with self._link:
            # It is gone when its own end closes: waiting for a process with a limit means polling.
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + _CLOSE_SECONDS
            while self._hears(deadline - time.monotonic()):
                continue
        self._guard.kill()
        self._guard.wait()

    def _hears(self, seconds: float) -> bool:
        """Whether the guard says something within this time; False at its end."""
        try:
            return bool(select.select([self._link], [], [], max(0.0, seconds))[0] and self._link.recv(256))
        except ConnectionError:
            return False

    def give_order(self, data: bytes) -> None:
        """Have the launcher started. Raises OSError as starting it here would, GuardLostError without an answer."""
        # More than the socket holds waits for its reader, who may never come.
        self._link.settimeout(_ANSWER_SECONDS)
        try:
            self._link.sendall(data)
        except TimeoutError:
            raise self._lost(f"nothing read within {_ANSWER_SECONDS:g} s") from None
        except ConnectionError:
            # How it ended is told below.
            pass
        self._link.settimeout(None)
        if not select.select([self._link], [], [], _ANSWER_SECONDS)[0]:
            raise self._lost(f"no answer within {_ANSWER_SECONDS:g} s")
        kind, value = self._words()
        if kind == "failed":
            raise OSError(int(value), os.strerror(int(value)))

    def _word(self, kind: str) -> str:
        got, value = self._words()
        if got != kind:
            raise self._lost(f"{got} {value}")
        return value

    def _words(self) -> tuple[str, str]:
        while b"\n" not in self._heard:
            try:
                data = self._link.recv(256)
            except ConnectionError:
                data = b""
            if not data:
                raise self._lost(self._how_it_ended())
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
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
    """Start ``argv`` in ``folder``, the run's, because frameworks drop files where they are started (fleet:
    ``main_sharding_0``). In sessions of their own, so that Ctrl-C reaches the suite alone, which ends the job in order.

    Raises OSError where the program cannot be started, GuardLostError where the guard cannot.
    """
    job_id = environment.get(JOB_VARIABLE, "")
    # Marked as the job's guard instead of as the job's process: it is ended after all of them.
    marked = {**environment, GUARD_VARIABLE: job_id}
    marked.pop(JOB_VARIABLE, None)
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            # Without the site module: half the time to start, and nothing of an environment that may be broken.
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
    """What a guard is told: length, then folder, number of words, words and variables, a NUL between two."""
    variables = [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in environment.items()]
    words = [os.fsencode(word) for word in argv]
    body = b"\0".join([os.fsencode(folder), str(len(words)).encode(), *words, *variables])
    return len(body).to_bytes(4, "big") + body
