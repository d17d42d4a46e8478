"""Frames (``wire``) in both directions over two file descriptors, as both the first node and an agent use them."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from helpers.launch.nodes.wire import Frame, FrameReader, encode

# The time between two signs of life, in both directions.
ALIVE_SECONDS = 1.0
# After so long without a sign of life the other side counts as lost, and the job fails.
SILENCE_SECONDS = 30.0
# The most bytes that are read at once, however fast the other side writes: the caller has other things to look at.
_MOST_BYTES = 4 * 1024 * 1024


class Hangup(Exception):
    """The other side is gone. ``closed`` is whether it closed the connection."""

    def __init__(self, text: str, closed: bool = False) -> None:
        super().__init__(text)
        self.closed = closed


class FrameStream:
    """One end of a connection; ``other`` names the other end in errors. No method blocks for longer than its caller, or
    ``silence_seconds``, allows."""

    def __init__(
        self,
        other: str,
        incoming: int,
        outgoing: int,
        clock: Callable[[], float] = time.monotonic,
        silence_seconds: float | None = None,
    ) -> None:
        self.reader = FrameReader(other)
        self._other = other
        self._incoming = incoming
        self._outgoing = outgoing
        self._clock = clock
        self._silence_seconds = SILENCE_SECONDS if silence_seconds is None else silence_seconds
        self._frames: deque[Frame] = deque()
        self._last_received = self._last_sent = clock()

    def send(self, kind: str, **values: Any) -> None:
        """Write a frame. Raises Hangup if nobody reads it in time."""
        self._last_sent = self._clock()
        data = encode(kind, **values)
        try:
            while data:
                if not select.select([], [self._outgoing], [], self._silence_seconds)[1]:
                    raise Hangup(f"{self._other} reads nothing for {self._silence_seconds:g} s")
                # At most as much as a pipe with room accepts without blocking (pipe(7)).
                data = data[os.write(self._outgoing, data[: select.PIPE_BUF]) :]
        except BrokenPipeError as error:
            raise Hangup(f"{self._other} does not read", closed=True) from error

    def next(self, timeout_seconds: float) -> Frame | None:
        """The next frame that is no sign of life; None if none comes in time.

        Raises Hangup at the end of the input, and LaunchError on what is no frame.
        """
        if not self._frames:
            self.read(timeout_seconds)
        return self._frames.popleft() if self._frames else None

    def all(self, timeout_seconds: float) -> list[Frame]:
        """All frames that have arrived and are no signs of life. Raises as ``next`` does."""
        if not self._frames:
            self.read(timeout_seconds)
        frames, self._frames = list(self._frames), deque()
        return frames

    def read(self, timeout_seconds: float) -> None:
        """Take what has arrived, or arrives in time; ``next`` returns it. Raises as ``next`` does."""
        taken = 0
        while taken < _MOST_BYTES and select.select([self._incoming], [], [], 0 if taken else timeout_seconds)[0]:
            data = os.read(self._incoming, 65536)
            if not data:
                if self._frames:
                    # The end is found again when these are taken.
                    return
                raise Hangup(f"{self._other} closed the connection", closed=True)
            taken += len(data)
            self._last_received = self._clock()
            self._frames += (frame for frame in self.reader.feed(data) if frame["kind"] != "alive")

    def show_life(self) -> None:
        """Send a sign of life if it is time."""
        if self._clock() - self._last_sent >= ALIVE_SECONDS:
            self.send("alive")

    def expect_frames(self) -> None:
        """From now on the other side must send frames; before, it had nothing to report or was not listened to."""
        self._last_received = self._clock()

    def check_silence(self, times: float = 1.0) -> None:
        """Raises Hangup if nothing came for ``times`` the seconds of silence."""
        limit = times * self._silence_seconds
        if self._clock() - self._last_received > limit:
            raise Hangup(f"no sign of life from {self._other} for {limit:g} s")
