"""The other nodes of a job, as the supervisor on the first one sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from helpers.launch.contention import ContentionSample


@dataclass(frozen=True)
class Lost:
    """A node that no longer answers, or broke its share off: why, and its first rank."""

    reason: str
    rank: int


class Peers(Protocol):
    """``look`` brings what the nodes wrote into the run folder; the other members tell what it found.

    What a node says and no node of the same suite would, is the loss of that node.
    """

    def start(self) -> None:
        """Start every node's share of the job."""

    def look(self) -> None: ...

    @property
    def exit_code(self) -> int | None:
        """The first code other than 0 of a node's launcher, 0 when all have ended well, else None."""

    @property
    def over(self) -> bool:
        """Whether nothing of the job runs on any of them."""

    @property
    def lost(self) -> Lost | None: ...

    @property
    def gone(self) -> Collection[int]:
        """Ranks whose process ended without its log's footer."""

    def ask_to_end(self) -> None: ...

    def wait_for_end(self, grace_seconds: float, at_once: Callable[[], bool] = lambda: False) -> str:
        """Returns what may still run, and where; empty where nothing does. ``at_once`` is asked again and again, and
        ends the grace."""

    def contention(self, own: ContentionSample) -> ContentionSample:
        """The worst of this node's and theirs, each over its own host's clock."""

    def unhealthy(self) -> tuple[str, ...]: ...


class NoPeers:
    """A job of one node."""

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
