"""A node's link without a process behind it: what the agent says is given, what it is told is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from helpers.launch.nodes.link import NodeLink
from helpers.launch.nodes.wire import Frame, FrameReader, encode
from helpers.plan.perf_yaml import HostConfig


class LinkStandIn(NodeLink):
    def __init__(self, host: HostConfig, node: int, said: Sequence[Frame] = (), boot_id: str = "") -> None:
        self.host = host
        self.node = node
        self.name = f"{host.name} ({host.address})"
        self.argv = ("agent",)
        self.hello = {"boot_id": boot_id or host.name}
        self.lost = None
        self.said = list(said)
        self.told: list[Frame] = []
        self.signs_of_life = 0

    def send(self, kind: str, **values: Any) -> None:
        self.told += FrameReader("the first node").feed(encode(kind, **values))

    def receive(self, timeout_seconds: float = 0.0) -> list[Frame]:
        frames, self.said = self.said, []
        return frames

    def wait_for(
        self,
        kind: str,
        seconds: float,
        on_wait: Callable[[str], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Frame:
        if meanwhile is not None:
            meanwhile()
        frame = self.said.pop(0)
        assert frame["kind"] == kind
        return frame

    def show_life(self) -> None:
        self.signs_of_life += 1

    def keep_in_touch(self) -> None:
        self.show_life()

    def expect_frames(self) -> None:
        return
