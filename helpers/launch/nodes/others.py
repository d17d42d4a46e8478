"""The shares of one job that run on the other nodes, as the supervisor on the first node sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from helpers.launch.failure import Failure
from helpers.launch.nodes.link import Message
from helpers.launch.nodes.node import Node
from helpers.machine.watch.contention import ContentionSample, ForeignProcess, worst

# After the grace, a guard kills for at most 10 s.
_LATE_SECONDS = 12.0
# After a second interrupt: how long to wait for a node that does not answer. It ends its job by itself.
_AT_ONCE_SECONDS = 3.0


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
