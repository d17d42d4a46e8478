"""The shares of a running job on the other nodes: receives their files, and notices when a share ends or is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from helpers.launch.launchers.launcher import Place
from helpers.launch.nodes import Lost
from helpers.launch.nodes.job import contention_from, node_ranks
from helpers.launch.nodes.link import NodeLink
from helpers.launch.nodes.wire import Frame, bytes_of
from helpers.machine.watch.contention import ContentionSample
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec

# Beyond the grace, for a node to kill what stays, to look twice, and to answer.
_END_SECONDS = 15.0
# An agent that needs so much more than the grace may be frozen, so another one ends its job.
_LATE_SECONDS = 2.0
# After a second interrupt nobody waits longer for a node that does not answer: it ends its job by itself.
_AT_ONCE_SECONDS = 3.0
_MOST_NAMED = 3


@dataclass
class _Share:
    """One node's share of the job."""

    link: NodeLink
    place: Place
    # The files that the node may write here, by the names that it sends.
    files: Mapping[str, Path]
    started: bool = False
    # Why the share cannot go on, by its agent or by this node's disk.
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
        grace_seconds: float,
    ) -> None:  # fmt: skip
        self._spec = spec
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
                # An agent that is asked a second time ends the job without grace.
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
        """What may still run of this share, as text. Where the node's agent was killed, another one ends the job."""
        about = f"node {share.link.name}"
        if not share.started:
            return ""
        if share.over is not None:
            return f"{about}: {share.over['left']}" if share.over["left"] else ""
        if hurried:
            return f"{about} may still run the job for a moment: its agent and its guard end it"
        try:
            sweep(share.link, self._spec.job_id, grace_seconds)
        except LaunchError as error:
            return f"{about} may still run the job: {error.got or error}"
        return ""


def sweep(link: NodeLink, job_id: str, grace_seconds: float) -> None:
    """End a job's processes on a node whose agent is gone; raises LaunchError where the node cannot be reached."""
    other = NodeLink(link.host, link.node, link.argv)
    try:
        other.greet(_END_SECONDS)
        other.send("sweep", job_id=job_id, node=link.node, grace_seconds=grace_seconds)
        other.wait_for("swept", grace_seconds + _END_SECONDS)
    finally:
        other.close()


def merged(own: ContentionSample, theirs: Mapping[str, ContentionSample]) -> ContentionSample:
    """The largest foreign share of all nodes; it counts as not measured where one node did not measure it."""
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
