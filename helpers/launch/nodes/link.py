"""The connection to the agent of one node: the host's ``connect`` command starts the agent, frames go both ways."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

from helpers.launch.failure import exit_text
from helpers.launch.nodes.wire import (
    AGENT_MODULE,
    ALIVE_SECONDS,
    PROTOCOL_VERSION,
    SILENCE_SECONDS,
    Frame,
    FrameReader,
    encode,
    suite_digest,
)
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError

_CLOSE_SECONDS = 5.0
# The most that is read at one look: the caller has other nodes and limits to look at, however fast an agent writes.
_MOST_BYTES = 4 * 1024 * 1024
_SHOWN_LINES = 3


def agent_argv(host: HostConfig, interpreter: str) -> tuple[str, ...]:
    """The host's ``connect`` command and the agent that it runs.

    Each word must mean the same with a shell and without one. Everything else is sent through the pipe.
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
    return (*host.connect, *words)


class NodeLink:
    """One running agent. No method blocks for longer than its caller allows.

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
        self._reader = FrameReader(f"node {self.name}")
        self._frames: list[Frame] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the link
        self._last_received = self._last_sent = clock()
        try:
            # In a session of its own, so that Ctrl-C reaches the suite alone, which then ends the job in order.
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
        os.set_blocking(self._stdin.fileno(), False)

    def send(self, kind: str, **values: Any) -> None:
        """Send a frame; an agent that does not read it is lost."""
        if self.lost is not None:
            return
        self._last_sent = self._clock()
        data = encode(kind, **values)
        try:
            while data:
                if not select.select([], [self._stdin], [], SILENCE_SECONDS)[1]:
                    self.lost = f"its agent reads nothing for {SILENCE_SECONDS:g} s"
                    return
                data = data[os.write(self._stdin.fileno(), data) :]
        except BrokenPipeError:
            self.lost = self._how_it_ended()

    def show_life(self) -> None:
        """Send a sign of life where one is due."""
        if self._clock() - self._last_sent >= ALIVE_SECONDS:
            self.send("alive")

    def expect_frames(self) -> None:
        """From now on the agent must send frames; before, it had nothing to report."""
        self._last_received = self._clock()

    def keep_in_touch(self) -> None:
        """While a job runs: send a sign of life where one is due, and check when the agent's last one came."""
        self.show_life()
        if self.lost is None and self._clock() - self._last_received > SILENCE_SECONDS:
            self.lost = f"no word from its agent for {SILENCE_SECONDS:g} s"

    def receive(self, timeout_seconds: float = 0.0) -> list[Frame]:
        """The frames that have come, or that come within the time."""
        frames, self._frames = self._frames, []
        if frames or self.lost is not None:
            return frames
        taken = 0
        while taken < _MOST_BYTES and select.select([self._stdout], [], [], 0 if taken else timeout_seconds)[0]:
            data = self._stdout.read(65536)
            if not data:
                self.lost = self._how_it_ended()
                break
            taken += len(data)
            self._last_received = self._clock()
            try:
                frames += self._reader.feed(data)
            except LaunchError as error:
                self.lost = f"its agent's words make no sense: {error}"
                break
        return frames

    def wait_for(
        self,
        kind: str,
        seconds: float,
        on_wait: Callable[[str], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Frame:
        """The next frame of this kind. Raises LaunchError when the node refuses, is lost, or does not answer in time.

        ``on_wait`` is called with what the node waits for. ``meanwhile`` is called again and again (default:
        ``show_life``).
        """
        deadline = self._clock() + seconds
        while True:
            rest = min(ALIVE_SECONDS, max(0.0, deadline - self._clock()))
            for number, frame in enumerate(frames := self.receive(rest)):
                if frame["kind"] == kind:
                    self._frames = frames[number + 1 :]
                    return frame
                if frame["kind"] == "error":
                    raise LaunchError(f"node {self.name}: {frame['text']}")
                if frame["kind"] == "waiting" and on_wait is not None:
                    on_wait(f"{self.host.name}: {frame['obstacle']}")
            if self.lost is None and self._clock() >= deadline:
                self.lost = f"no {kind} within {seconds:.3g} s{self._last_output()}"
            if self.lost is not None:
                raise self.refusal()
            (meanwhile or self.show_life)()

    def greet(self, seconds: float) -> None:
        """Wait for the agent's first frame; raises LaunchError where it runs another checkout."""
        self.hello = self.wait_for("hello", seconds)
        here = {"protocol": PROTOCOL_VERSION, "suite": suite_digest()}
        there = {name: self.hello.get(name) for name in here}
        if here != there:
            raise LaunchError(
                f"node {self.name}",
                field="suite",
                got=f"version {there['suite']}",
                expected=f"{here['suite']}, as on this machine",
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
        """Close the connection, on which the agent ends; then end the ``connect`` command."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            # Nobody waits for a lost agent: where it still lives, it ends when its connection is cut.
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
        # ssh's own failure is 255, which is no shell's way to name a signal.
        how = exit_text(code) if code < 0 else f"exited with {code}"
        return f"its agent {how}{self._last_output()}"

    def _last_output(self) -> str:
        """The last lines that came instead of frames, to stand behind an error's text."""
        self._errors.seek(0)
        lines = [*self._reader.chatter, *self._errors.read().decode(errors="replace").splitlines()]
        shown = [" ".join(line.split()) for line in lines if line.strip()][-_SHOWN_LINES:]
        text = "".join(char if char.isprintable() else " " for char in " | ".join(shown))
        return f": {text}" if text else ""
