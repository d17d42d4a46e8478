"""Another node of a case, as the first one sees it: the host's connect command runs the node's program (``share``)."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from helpers.launch.failure import NODE_NOT_READY, RANK_LOST, Failure, exit_text
from helpers.launch.nodes.link import ALIVE_SECONDS, Link, Lost, Message
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError

PROGRAM = "helpers.launch.nodes.share"
_CLOSE_SECONDS = 5.0
_SHOWN_LINES = 3


class Node:
    """The connection to one node, and its share of the job that runs. ``lost`` says why it no longer answers; a lost
    node stays lost."""

    def __init__(self, host: HostConfig, number: int, words: tuple[str, ...]) -> None:
        """``words`` run, on that host, what is appended to them."""
        self.host = host
        self.number = number
        self.name = f"{host.name} ({host.address})"
        self.boot_id = ""
        self.lost = ""
        self._argv = (*words, *program_words(host))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the connection
        try:
            # In a session of its own, so that Ctrl-C reaches only the suite, which then ends the job in order.
            self._process = subprocess.Popen(
                self._argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise LaunchError(
                f"node {self.name}",
                field="connect",
                got=f"{self._argv[0]} ({error})",
                expected="a program that starts",
                remedy="Correct the host's connect command in perf.yaml",
            ) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._link = Link(self._stdout.fileno(), self._stdin.fileno())

    def assign(self, ranks: range, order: Mapping[str, Any]) -> None:
        """Give it its share of a new job; ``order`` is what its program needs to start it."""
        self.ranks = ranks
        self.order = order
        self.started = False
        # Why it cannot run the share, by its own words.
        self.refused = ""
        # The message with which the share ended.
        self.over: Message | None = None
        # Ranks whose process ended before its log had a footer.
        self.gone: set[int] = set()

    def look(self, seconds: float = 0.0) -> None:
        """Hear, for so long, what becomes of the share."""
        for message in self.receive(seconds):
            if message["kind"] == "gone":
                self.gone.add(message["rank"])
            elif message["kind"] == "over":
                self.over = message
            elif message["kind"] == "error":
                self.refused = message["text"]

    @property
    def loss(self) -> tuple[Failure, str, int] | None:
        """Why the job cannot go on, and the first rank of the share; None if it can."""
        if self.refused:
            return NODE_NOT_READY, f"node {self.name}: {self.refused}", self.ranks[0]
        if self.over is None and self.lost:
            return RANK_LOST, f"node {self.name} was lost: {self.lost}", self.ranks[0]
        return None

    def send(self, kind: str, **values: Any) -> None:
        if not self.lost:
            try:
                self._link.send(kind, **values)
            except Lost as loss:
                self._lose(loss)

    def receive(self, seconds: float) -> list[Message]:
        """What arrives in time; a lost node says nothing."""
        if not self.lost:
            try:
                return self._link.receive(seconds)
            except Lost as loss:
                self._lose(loss)
        return []

    def wait_for(self, kind: str, seconds: float, on_wait: Callable[[str], None]) -> Message:
        """The next message of this kind. Raises LaunchError if the node refuses, is lost or does not answer in time."""
        deadline = time.monotonic() + seconds
        while True:
            for message in self.receive(min(ALIVE_SECONDS, max(0.0, deadline - time.monotonic()))):
                if message["kind"] == kind:
                    return message
                if message["kind"] == "error":
                    raise LaunchError(f"node {self.name}: {message['text']}")
                if message["kind"] == "waiting":
                    on_wait(f"{self.host.name}: {message['obstacle']}")
            if not self.lost and time.monotonic() >= deadline:
                self.lost = f"no {kind} within {seconds:.3g} s{self._last_output()}"
            if self.lost:
                raise self.refusal()

    def refusal(self) -> LaunchError:
        """The error of a node that is lost."""
        return LaunchError(
            f"node {self.name}",
            got=self.lost,
            expected="its program to answer",
            remedy=f"Try it: {shlex.join(self._argv)} </dev/null",
        )

    def close(self) -> None:
        """Close the connection, which ends the node's program and its job; then end the connect command."""
        self._link.close()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                # The whole session: a connect command may be a script that waits for another program.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5 if self.lost else _CLOSE_SECONDS)
                break
        self._stdout.close()
        self._errors.close()

    def _lose(self, loss: Lost) -> None:
        how = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(1.0)
            # ssh's own failure is 255, which stands for no signal.
            how = f", it {exit_text(code)}" if code < 0 else f", it exited with {code}"
        self.lost = f"{loss}{how}{self._last_output()}"

    def _last_output(self) -> str:
        """The last lines that came beside the messages, to be appended to an error's text."""
        self._errors.seek(0)
        lines = [*self._link.chatter, *self._errors.read().decode(errors="replace").splitlines()]
        shown = [" ".join(line.split()) for line in lines if line.strip()][-_SHOWN_LINES:]
        text = "".join(char if char.isprintable() else " " for char in " | ".join(shown))
        return f": {text}" if text else ""


def program_words(host: HostConfig) -> tuple[str, ...]:
    """The command of the node's program: of this checkout and this Python, which the host has at the same places. Each
    word must mean the same with and without a shell; all else travels through the pipe."""
    words = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-u", "-m", PROGRAM)
    for word in words:
        if shlex.quote(word) != word:
            raise LaunchError(
                f"node {host.name}",
                got=word,
                expected="a path of letters, digits and /._-+=@%:,",
                remedy="Move the checkout to such a path",
            )
    return words
