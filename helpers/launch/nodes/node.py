"""Another node of a case, as the first one sees it: the host's connect command runs the node's program (``share``); and
the shares of one job on all other nodes, as the supervisor sees them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from helpers.launch.failure import NODE_NOT_READY, RANK_LOST, Failure, exit_text
from helpers.launch.nodes.link import ALIVE_SECONDS, Link, Lost, Message
from helpers.machine.watch.contention import ContentionSample, ForeignProcess, worst
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError

PROGRAM = "helpers.launch.nodes.share"
_CLOSE_SECONDS = 5.0
_SHOWN_LINES = 3
# After the grace, a guard kills for at most 10 s.
_LATE_SECONDS = 12.0
# After a second interrupt: how long to wait for a node that does not answer. It ends its job by itself.
_AT_ONCE_SECONDS = 3.0


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


class OtherNodes:
    """All nodes of a job except the first; none for a job of one node. The properties are as of the last ``look``."""

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self._nodes = nodes

    def start(self) -> None:
        for node in self._nodes:
            if node.lost:
                raise node.refusal()
            node.started = True
            node.send("job", **node.order)

    def look(self) -> None:
        for node in self._nodes:
            node.look()

    @property
    def exit_code(self) -> int | None:
        """The first exit code of a node's launcher that is not 0; 0 if all have ended with 0; None while any runs."""
        codes = [over["code"] for _, over in self._ended()]
        bad = [code for code in codes if code]
        return bad[0] if bad else 0 if codes.count(0) == len(self._nodes) else None

    @property
    def over(self) -> bool:
        """Whether no process of the job runs on any of them."""
        return len(self._ended()) == len(self._nodes)

    @property
    def lost(self) -> tuple[Failure, str, int] | None:
        """Why a node cannot go on with the job, and its first rank; None if all can."""
        return next((node.loss for node in self._nodes if node.loss is not None), None)

    @property
    def gone(self) -> Collection[int]:
        return {rank for node in self._nodes for rank in node.gone}

    def ask_to_end(self) -> None:
        for node in self._nodes:
            if node.started and node.over is None:
                node.send("end")

    def wait_for_end(self, grace_seconds: float, at_once: Callable[[], bool] = lambda: False) -> str:
        """Wait for the nodes to end their shares. Returns in words what may still run and where; empty if nothing does.

        ``at_once`` is called repeatedly; when it returns True, the nodes have no more grace.
        """
        began, hurried = time.monotonic(), False
        waiting = [node for node in self._nodes if node.started]
        deadline = began + grace_seconds + _LATE_SECONDS
        while waiting and (now := time.monotonic()) < deadline:
            if not hurried and at_once():
                hurried, deadline = True, now + _AT_ONCE_SECONDS
                self.ask_to_end()
            for node in waiting:
                node.look(0.05)
            # Nobody says when the guard of a lost node is done: it takes no longer than the grace.
            lost_ones = 0.0 if hurried else began + grace_seconds + 1.0
            waiting = [
                node for node in waiting
                if node.over is None and not node.refused and (not node.lost or now < lost_ones)
            ]  # fmt: skip
            if all(node.lost for node in waiting):
                time.sleep(0.05)
        late = ", ".join(node.name for node in waiting)
        return f"node {late} may still run the job: it did not say that it ended it" if late else ""

    def contention(self, own: ContentionSample) -> ContentionSample:
        """The worst contention of this node (``own``) and the others, each by its own host's clock."""
        return worst([own, *(_contention(node.host.name, over["contention"]) for node, over in self._ended())])

    def unhealthy(self) -> tuple[str, ...]:
        return tuple(f"{node.host.name}: {reason}" for node, over in self._ended() for reason in over["unhealthy"])

    def facts(self) -> tuple[Mapping[str, str], ...]:
        """The facts of each node's own window, in node order; empty for a node whose share has not ended."""
        return tuple({} if node.over is None else node.over["facts"] for node in self._nodes)

    def oom_evidence(self, rank: int) -> tuple[bool, str] | None:
        """Whether the kernel ended processes for want of memory on the node of ``rank``, and a text about it; None if
        that is not one of these nodes, or its share has not ended."""
        return next((tuple(over["oom"]) for node, over in self._ended() if rank in node.ranks), None)

    def _ended(self) -> list[tuple[Node, Message]]:
        return [(node, node.over) for node in self._nodes if node.over is not None]


def _contention(host: str, record: Mapping[str, Any]) -> ContentionSample:
    """The contention of a node by its own clock, with its name."""
    top = (ForeignProcess(*each) for each in record["top"])
    named = tuple(each._replace(name=f"{each.name} on {host}") for each in top)
    return ContentionSample(**{**record, "top": named, "note": record["note"] and f"on {host}: {record['note']}"})
