"""The other nodes of a job, as the supervisor on the first node sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from helpers.machine.watch.contention import ContentionSample


@dataclass(frozen=True)
class Lost:
    """A node that no longer answers, or that could not go on with its share of the job."""

    reason: str
    # The node's first rank.
    rank: int


class OtherNodes(Protocol):
    """All nodes of a job except the first. ``look`` copies their files into the run folder; the properties are as of
    the last ``look``.

    A node that sends anything invalid counts as lost.
    """

    def start(self) -> None:
        """Start every node's share of the job."""

    def look(self) -> None: ...

    @property
    def exit_code(self) -> int | None:
        """The first exit code of a node's launcher that is not 0; 0 if all have ended with 0; None while any still
        runs."""

    @property
    def over(self) -> bool:
        """Whether no process of the job runs on any of them."""

    @property
    def lost(self) -> Lost | None: ...

    @property
    def gone(self) -> Collection[int]:
        """Ranks whose process ended before it wrote its log's footer."""

    def ask_to_end(self) -> None: ...

    def wait_for_end(self, grace_seconds: float, at_once: Callable[[], bool] = lambda: False) -> str:
        """Wait for the nodes to end their shares. Returns in words what may still run and where; empty if nothing does.

        ``at_once`` is called repeatedly; when it returns True, the nodes have no more grace.
        """

    def contention(self, own: ContentionSample) -> ContentionSample:
        """The worst contention of this node (``own``) and the others, each by its own host's clock."""

    def unhealthy(self) -> tuple[str, ...]: ...


class NoOtherNodes:
    """Implements OtherNodes for a job of one node."""

    exit_code = 0
    over = True
    lost = None
    gone: Collection[int] = ()

    def start(self) -> None:
        return

    def look(self) -> None:
        return

    def ask_to_end(self) -> None:
        return

    def wait_for_end(self, grace_seconds: float, at_once: Callable[[], bool] = lambda: False) -> str:
        return ""

    def contention(self, own: ContentionSample) -> ContentionSample:
        return own

    def unhealthy(self) -> tuple[str, ...]:
        return ()
