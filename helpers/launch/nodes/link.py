"""The connection to the agent of one node (the host's ``connect`` command starts the agent, frames go both ways), and
the shares of a job that other nodes run over these connections."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.launch.failure import exit_text
from helpers.launch.launchers.launcher import Place
from helpers.launch.nodes import Lost
from helpers.launch.nodes.job import contention_from, node_ranks
from helpers.launch.nodes.wire import (
    ALIVE_SECONDS,
    PROTOCOL_VERSION,
    SILENCE_SECONDS,
    Frame,
    FrameReader,
    bytes_of,
    encode,
    suite_digest,
)
from helpers.machine.watch.contention import ContentionSample
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec

_CLOSE_SECONDS = 5.0
# The most bytes that are read at once, however fast an agent writes: the caller must also look at other nodes and at
# its limits.
_MOST_BYTES = 4 * 1024 * 1024
_SHOWN_LINES = 3
# An agent that is so much later than the grace may hang, so another agent is started to end its job.
_LATE_SECONDS = 2.0
# After a second interrupt: how long to wait for a node that does not answer. It ends its job by itself.
_AT_ONCE_SECONDS = 3.0
_MOST_NAMED = 3


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
        self._reader = FrameReader(f"node {self.name}")
        self._frames: list[Frame] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the link
        self._last_received = self._last_sent = clock()
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
        os.set_blocking(self._stdin.fileno(), False)

    def send(self, kind: str, **values: Any) -> None:
        """Send a frame. If the agent does not read it in time, the link is lost."""
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
        """Send a sign of life if it is time."""
        if self._clock() - self._last_sent >= ALIVE_SECONDS:
            self.send("alive")

    def expect_frames(self) -> None:
        """From now on the agent must send frames; before, it had nothing to report."""
        self._last_received = self._clock()

    def keep_in_touch(self) -> None:
        """While a job runs: send a sign of life if it is time, and check when the agent's last one came."""
        self.show_life()
        if self.lost is None and self._clock() - self._last_received > SILENCE_SECONDS:
            self.lost = f"no sign of life from its agent for {SILENCE_SECONDS:g} s"

    def receive(self, timeout_seconds: float = 0.0) -> list[Frame]:
        """The frames that have arrived, or that arrive within the time."""
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
                self.lost = f"its agent sent something invalid: {error}"
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

        ``on_wait`` is called with a text on what the node waits for. ``meanwhile`` is called repeatedly (default:
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
        """Wait for the agent's first frame; raises LaunchError if it runs another checkout."""
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
        lines = [*self._reader.chatter, *self._errors.read().decode(errors="replace").splitlines()]
        shown = [" ".join(line.split()) for line in lines if line.strip()][-_SHOWN_LINES:]
        text = "".join(char if char.isprintable() else " " for char in " | ".join(shown))
        return f": {text}" if text else ""


# Ends what a lost agent left of a job: the link, the job's id, the grace in seconds (starter.NodeStarter.end).
EndLost = Callable[[NodeLink, str, float], None]


@dataclass
class _Share:
    """One node's share of the job."""

    link: NodeLink
    place: Place
    # The files that the node may write on this node, by the names that it sends.
    files: Mapping[str, Path]
    started: bool = False
    # Why the share cannot go on, according to its agent or this node's disk.
    refused: str = ""
    # The frame with which the share ended.
    over: Frame | None = None
    contention: ContentionSample | None = None
    # Ranks whose process ended before its log had a footer.
    gone: set[int] = field(default_factory=set)

    @property
    def settled(self) -> bool:
        return not self.started or bool(self.refused) or self.over is not None or self.link.lost is not None


class LinkedNodes:
    """Implements OtherNodes for one job, over the links of its connected nodes."""

    def __init__(
        self, spec: JobSpec, links: Sequence[NodeLink], places: Sequence[Place], files: Sequence[Mapping[str, Path]],
        grace_seconds: float, end_lost: EndLost,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._end_lost = end_lost
        self._grace_seconds = grace_seconds
        self._shares = [_Share(*each) for each in zip(links, places, files, strict=True)]
        self._codes: list[int] = []

    def start(self) -> None:
        for share in self._shares:
            if share.link.lost is not None:
                raise share.link.refusal()
            for path in share.files.values():
                path.parent.mkdir(parents=True, exist_ok=True)
            share.started = True
            share.link.expect_frames()
            share.link.send(
                "job", spec=self._spec.to_json(), place=asdict(share.place), grace_seconds=self._grace_seconds
            )

    def look(self) -> None:
        for share in self._shares:
            self._receive(share, 0.0)
            if share.over is None:
                share.link.keep_in_touch()

    @property
    def exit_code(self) -> int | None:
        bad = [code for code in self._codes if code != 0]
        if bad:
            return bad[0]
        return 0 if len(self._codes) == len(self._shares) else None

    @property
    def over(self) -> bool:
        return all(share.over is not None and not share.refused for share in self._shares)

    @property
    def lost(self) -> Lost | None:
        for share in self._shares:
            first, name = node_ranks(self._spec, share.place.node)[0], share.link.name
            if share.refused:
                return Lost(f"node {name}: {share.refused}", first)
            if share.over is None and share.link.lost is not None:
                return Lost(f"node {name} was lost: {share.link.lost}", first)
            if share.over is not None and share.over["code"] is None:
                # Nobody here has asked for an end yet: a signal ended the agent, and it has ended its share.
                return Lost(f"node {name} was lost: its agent was ended by a signal", first)
        return None

    @property
    def gone(self) -> Collection[int]:
        return {rank for share in self._shares for rank in share.gone}

    def ask_to_end(self) -> None:
        for share in self._shares:
            if share.started and share.over is None:
                share.link.send("end")

    def wait_for_end(self, grace_seconds: float, at_once: Callable[[], bool] = lambda: False) -> str:
        deadline, hurried = time.monotonic() + grace_seconds + _LATE_SECONDS, False
        while not all(share.settled for share in self._shares) and time.monotonic() < deadline:
            if not hurried and at_once():
                # A second request makes an agent end the job without grace.
                hurried, deadline = True, time.monotonic() + _AT_ONCE_SECONDS
                self.ask_to_end()
            for share in self._shares:
                self._receive(share, 0.05)
        return "; ".join(filter(None, (self._left(share, grace_seconds, hurried) for share in self._shares)))

    def contention(self, own: ContentionSample) -> ContentionSample:
        return merged(own, {share.link.host.name: share.contention for share in self._shares if share.contention})

    def unhealthy(self) -> tuple[str, ...]:
        overs = [(share.link.host.name, share.over) for share in self._shares if share.over is not None]
        return tuple(f"{name}: {reason}" for name, over in overs for reason in over["unhealthy"])

    def _receive(self, share: _Share, timeout_seconds: float) -> None:
        for frame in share.link.receive(timeout_seconds):
            try:
                self._take(share, frame)
            except (LaunchError, OSError) as error:
                share.refused = share.refused or str(error)

    def _take(self, share: _Share, frame: Frame) -> None:
        kind = frame["kind"]
        if kind == "file" and frame["name"] in share.files:
            data = bytes_of(frame["data"])
            with share.files[frame["name"]].open("ab") as file:
                file.write(data)
        elif kind == "gone" and frame["rank"] in node_ranks(self._spec, share.place.node):
            share.gone.add(frame["rank"])
        elif kind == "over" and share.over is None:
            share.contention = contention_from(frame["contention"])
            share.over = frame
            if frame["code"] is not None:
                self._codes.append(frame["code"])
        elif kind == "error":
            raise LaunchError(frame["text"])
        elif kind not in ("alive", "waiting"):
            shown = {name: str(value)[:60] for name, value in frame.items()}
            raise LaunchError("its agent", got=shown, expected="a file of this job and node, or its end")

    def _left(self, share: _Share, grace_seconds: float, hurried: bool) -> str:
        """In words, what may still run of this share; empty if nothing. If the node's agent is lost, its job
        is ended without it."""
        about = f"node {share.link.name}"
        if not share.started:
            return ""
        if share.over is not None:
            return f"{about}: {share.over['left']}" if share.over["left"] else ""
        if hurried:
            return f"{about} may still run the job for a moment: its agent and its guard end it"
        try:
            self._end_lost(share.link, self._spec.job_id, grace_seconds)
        except LaunchError as error:
            return f"{about} may still run the job: {error.got or error}"
        return ""


def merged(own: ContentionSample, theirs: Mapping[str, ContentionSample]) -> ContentionSample:
    """The contention of all nodes together: the largest foreign share. If one node did not measure its share, the whole
    is not measured."""
    for name, each in theirs.items():
        if each.foreign_share is None and own.foreign_share is not None:
            own = replace(own, foreign_share=None, note=f"on {name}: {each.note}")
    if own.foreign_share is None or not theirs:
        return own
    named = [(each, name) for name, sample in theirs.items() for each in sample.top]
    top = [*own.top, *(each._replace(name=f"{each.name} on {name}") for each, name in named)]
    return ContentionSample(
        foreign_share=max(own.foreign_share, *(each.foreign_share or 0.0 for each in theirs.values())),
        top=tuple(sorted(top, key=lambda each: -each.seconds)[:_MOST_NAMED]),
        window_seconds=max(own.window_seconds, *(each.window_seconds for each in theirs.values())),
        steal_seconds=own.steal_seconds + sum(each.steal_seconds for each in theirs.values()),
        more=own.more,
        unnamed_seconds=own.unnamed_seconds + sum(each.unnamed_seconds for each in theirs.values()),
        unnamed=next((each.unnamed for each in (own, *theirs.values()) if each.unnamed), ""),
        waited_seconds=own.waited_seconds + sum(each.waited_seconds for each in theirs.values()),
    )
