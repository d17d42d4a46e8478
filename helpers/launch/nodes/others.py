"""The shares of one job that run on the other nodes, as the supervisor on the first node sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.launch.failure import NODE_NOT_READY, RANK_LOST, Failure
from helpers.launch.nodes.link import Message
from helpers.launch.nodes.node import Node
from helpers.machine.watch.contention import ContentionSample, ForeignProcess, worst

# After the grace, a guard kills for at most 10 s.
_LATE_SECONDS = 12.0
# After a second interrupt: how long to wait for a node that does not answer. It ends its job by itself.
_AT_ONCE_SECONDS = 3.0


@dataclass
class Share:
    """One node's share of a job."""

    node: Node
    ranks: range
    # What its program needs to start it.
    order: Mapping[str, Any]
    started: bool = False
    # Why the node cannot run it, by its own words.
    refused: str = ""
    # The message with which the share ended.
    over: Message | None = None
    # Ranks whose process ended before its log had a footer.
    gone: set[int] = field(default_factory=set)

    def receive(self, seconds: float) -> None:
        for message in self.node.receive(seconds):
            if message["kind"] == "gone":
                self.gone.add(message["rank"])
            elif message["kind"] == "over":
                self.over = message
            elif message["kind"] == "error":
                self.refused = message["text"]

    @property
    def loss(self) -> tuple[Failure, str, int] | None:
        """Why the job cannot go on, and the share's first rank; None if it can."""
        if self.refused:
            return NODE_NOT_READY, f"node {self.node.name}: {self.refused}", self.ranks[0]
        if self.over is None and self.node.lost:
            return RANK_LOST, f"node {self.node.name} was lost: {self.node.lost}", self.ranks[0]
        return None


class OtherNodes:
    """All nodes of a job except the first; none for a job of one node. The properties are as of the last ``look``."""

    def __init__(self, shares: Sequence[Share] = ()) -> None:
        self._shares = shares

    def start(self) -> None:
        for share in self._shares:
            if share.node.lost:
                raise share.node.refusal()
            share.started = True
            share.node.send("job", **share.order)

    def look(self) -> None:
        for share in self._shares:
            share.receive(0.0)

    @property
    def exit_code(self) -> int | None:
        """The first exit code of a node's launcher that is not 0; 0 if all have ended with 0; None while any runs."""
        codes = [over["code"] for _, over in self._ended()]
        bad = [code for code in codes if code]
        return bad[0] if bad else 0 if codes.count(0) == len(self._shares) else None

    @property
    def over(self) -> bool:
        """Whether no process of the job runs on any of them."""
        return len(self._ended()) == len(self._shares)

    @property
    def lost(self) -> tuple[Failure, str, int] | None:
        """Why a node cannot go on with the job, and its first rank; None if all can."""
        return next((share.loss for share in self._shares if share.loss is not None), None)

    @property
    def gone(self) -> Collection[int]:
        return {rank for share in self._shares for rank in share.gone}

    def ask_to_end(self) -> None:
        for share in self._shares:
            if share.started and share.over is None:
                share.node.send("end")

    def wait_for_end(self, grace_seconds: float, at_once: Callable[[], bool] = lambda: False) -> str:
        """Wait for the nodes to end their shares. Returns in words what may still run and where; empty if nothing does.

        ``at_once`` is called repeatedly; when it returns True, the nodes have no more grace.
        """
        began, hurried = time.monotonic(), False
        waiting = [share for share in self._shares if share.started]
        deadline = began + grace_seconds + _LATE_SECONDS
        while waiting and (now := time.monotonic()) < deadline:
            if not hurried and at_once():
                hurried, deadline = True, now + _AT_ONCE_SECONDS
                self.ask_to_end()
            for share in waiting:
                share.receive(0.05)
            # Nobody says when the guard of a lost node is done: it takes no longer than the grace.
            lost_ones = 0.0 if hurried else began + grace_seconds + 1.0
            waiting = [
                share for share in waiting
                if share.over is None and not share.refused and (not share.node.lost or now < lost_ones)
            ]  # fmt: skip
            if all(share.node.lost for share in waiting):
                time.sleep(0.05)
        late = [share.node.name for share in waiting]
        return f"node {', '.join(late)} may still run the job: it did not say that it ended it" if late else ""

    def contention(self, own: ContentionSample) -> ContentionSample:
        """The worst contention of this node (``own``) and the others, each by its own host's clock."""
        return worst([own, *(_contention(share.node.host.name, over["contention"]) for share, over in self._ended())])

    def unhealthy(self) -> tuple[str, ...]:
        return tuple(
            f"{share.node.host.name}: {reason}" for share, over in self._ended() for reason in over["unhealthy"]
        )

    def facts(self) -> tuple[Mapping[str, str], ...]:
        """The facts of each node's own window, in node order; empty for a node whose share has not ended."""
        return tuple({} if share.over is None else share.over["facts"] for share in self._shares)

    def oom_evidence(self, rank: int) -> tuple[bool, str] | None:
        """Whether the kernel ended processes for want of memory on the node of ``rank``, and a text about it; None if
        that is not one of these nodes, or its share has not ended."""
        return next((tuple(over["oom"]) for share, over in self._ended() if rank in share.ranks), None)

    def _ended(self) -> list[tuple[Share, Message]]:
        return [(share, share.over) for share in self._shares if share.over is not None]


def _contention(host: str, record: Mapping[str, Any]) -> ContentionSample:
    """The contention of a node by its own clock, with its name."""
    top = (ForeignProcess(*each) for each in record["top"])
    named = tuple(each._replace(name=f"{each.name} on {host}") for each in top)
    return ContentionSample(**{**record, "top": named, "note": record["note"] and f"on {host}: {record['note']}"})
