"""The connection to the agent of one node: a command, such as ssh or srun, starts it, and frames go both ways. A lost
agent's job is ended by another agent."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from helpers.judging.failure_class import FailureClass
from helpers.launch.failure import exit_text
from helpers.launch.nodes.stream import ALIVE_SECONDS, FrameStream, Hangup
from helpers.launch.nodes.wire import AGENT_MODULE, Frame, suite_digest
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError

# The time after the grace for a node to kill the remaining processes, check twice, and answer.
END_SECONDS = 15.0
_CLOSE_SECONDS = 5.0
_SHOWN_LINES = 3
T = TypeVar("T")


class NodeLink:
    """The link to one running agent. No method blocks for longer than its caller allows.

    ``hello`` is the agent's first frame. ``lost`` says why the agent no longer answers; a lost link stays lost.
    """

    def __init__(
        self, host: HostConfig, node: int, argv: tuple[str, ...], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.host = host
        self.node = node
        self.name = f"{host.name} ({host.address})"
        self.argv = argv
        self.hello: Frame = {}
        self.lost: str | None = None
        self._clock = clock
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the link
        try:
            # In a session of its own, so that Ctrl-C reaches only the suite, which then ends the job in order.
            self._process = subprocess.Popen(
                argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise LaunchError(
                f"node {self.name}",
                field="connect",
                got=f"{argv[0]} ({error})",
                expected="a program that starts",
                remedy="Correct the host's connect command in perf.yaml",
            ) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._stream = FrameStream("its agent", self._stdout.fileno(), self._stdin.fileno(), clock)

    def send(self, kind: str, **values: Any) -> None:
        """Send a frame. If the agent does not read it in time, the link is lost."""
        self._try(lambda: self._stream.send(kind, **values))

    def show_life(self) -> None:
        """Send a sign of life if it is time."""
        self._try(self._stream.show_life)

    def expect_frames(self) -> None:
        """From now on the agent must send frames; before, it had nothing to report."""
        self._stream.expect_frames()

    def keep_in_touch(self) -> None:
        """While a job runs: send a sign of life if it is time, and check when the agent's last one came."""
        self.show_life()
        self._try(self._stream.check_silence)

    def receive(self, timeout_seconds: float = 0.0) -> list[Frame]:
        """The frames that have arrived, or that arrive within the time."""
        return self._try(lambda: self._stream.all(timeout_seconds)) or []

    def _try(self, act: Callable[[], T]) -> T | None:
        """Do this, unless the link is lost; an error makes it so."""
        if self.lost is None:
            try:
                return act()
            except Hangup as hangup:
                self.lost = self._how_it_ended() if hangup.closed else str(hangup)
            except LaunchError as error:
                self.lost = str(error)
        return None

    def wait_for(
        self,
        kind: str,
        seconds: float,
        on_wait: Callable[[str], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Frame:
        """The next frame of this kind. Raises LaunchError when the node refuses, is lost, or does not answer in time.

        ``on_wait`` is called with a text on what the node waits for. ``meanwhile`` is called repeatedly (default:
        ``show_life``).
        """
        deadline = self._clock() + seconds
        while True:
            rest = min(ALIVE_SECONDS, max(0.0, deadline - self._clock()))
            frame = self._try(partial(self._stream.next, rest))
            if frame is not None and frame["kind"] == kind:
                return frame
            if frame is not None and frame["kind"] == "error":
                raise LaunchError(f"node {self.name}: {frame['text']}")
            if frame is not None and frame["kind"] == "waiting" and on_wait is not None:
                on_wait(f"{self.host.name}: {frame['obstacle']}")
            if self.lost is None and self._clock() >= deadline:
                self.lost = f"no {kind} within {seconds:.3g} s{self._last_output()}"
            if self.lost is not None:
                raise self.refusal()
            (meanwhile or self.show_life)()

    def greet(self, seconds: float) -> None:
        """Wait for the agent's first frame; raises LaunchError if it runs another checkout."""
        self.hello = self.wait_for("hello", seconds)
        if self.hello["suite"] != (here := suite_digest()):
            raise LaunchError(
                f"node {self.name}",
                field="suite",
                got=f"version {self.hello['suite']}",
                expected=f"{here}, as on this machine",
                remedy=f"Bring {self.host.root or ROOT} there to the same commit",
            )

    def refusal(self) -> LaunchError:
        """The error of a link that is lost."""
        return LaunchError(
            f"node {self.name}",
            got=self.lost,
            expected="its agent to answer",
            remedy=f"Try it: {shlex.join(self.argv)} </dev/null",
        )

    def close(self) -> None:
        """Close the connection, which ends the agent; then end the ``connect`` command."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            # A lost agent is not waited for: if it still runs, it ends when its connection is cut.
            self._process.wait(0 if self.lost is not None else _CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            # The whole session is killed: a connect command may be a script that waits for another program.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._stdout.close()
        self._errors.close()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return f"its agent closed the connection{self._last_output()}"
        # ssh's own failure is 255, which does not stand for a signal.
        how = exit_text(code) if code < 0 else f"exited with {code}"
        return f"its agent {how}{self._last_output()}"

    def _last_output(self) -> str:
        """The last lines that came instead of frames, to be appended to an error's text."""
        self._errors.seek(0)
        lines = [*self._stream.reader.chatter, *self._errors.read().decode(errors="replace").splitlines()]
        shown = [" ".join(line.split()) for line in lines if line.strip()][-_SHOWN_LINES:]
        text = "".join(char if char.isprintable() else " " for char in " | ".join(shown))
        return f": {text}" if text else ""


@dataclass(frozen=True)
class Starter:
    """Starts agents. Without other ``words`` it reaches a host by its ``connect`` command, usually ssh."""

    # The words before a command that run it on the host.
    words: Callable[[HostConfig], tuple[str, ...]] = lambda host: host.connect
    # Ends what is left on the host of the command that started a lost agent; raises LaunchError if that fails.
    cut: Callable[[NodeLink], None] = lambda link: None
    # What else is known of a lost agent's end: its class, if that is known, and a text.
    explain: Callable[[NodeLink], tuple[FailureClass | None, str]] = lambda link: (None, "")

    def start(self, host: HostConfig, node: int, interpreter: str) -> NodeLink:
        """Start the host's agent as node ``node``; ``interpreter`` is this node's Python."""
        return NodeLink(host, node, (*self.words(host), *agent_words(host, interpreter)))

    def end(self, link: NodeLink, job_id: str, grace_seconds: float) -> None:
        """Have a new agent end the processes of a job that a lost one left on its node, and remove its files there.

        Raises LaunchError if the processes may still run.
        """
        self.cut(link)
        other = NodeLink(link.host, link.node, link.argv)
        try:
            other.greet(END_SECONDS)
            other.send("sweep", job_id=job_id, node=other.node, grace_seconds=grace_seconds)
            other.wait_for("swept", grace_seconds + END_SECONDS)
        finally:
            other.close()


def agent_words(host: HostConfig, interpreter: str) -> tuple[str, ...]:
    """The command that runs the agent on the host itself.

    Each word must mean the same with and without a shell. All other values are sent through the pipe.
    """
    words = ("env", f"PYTHONPATH={host.root or ROOT}", host.interpreter or interpreter, "-u", "-m", AGENT_MODULE)
    for word in words:
        if shlex.quote(word) != word:
            raise LaunchError(
                f"node {host.name}",
                got=word,
                expected="paths of letters, digits and /._-+=@%:,",
                remedy=f"Set root and interpreter of host {host.name} in perf.yaml",
            )
    return words
