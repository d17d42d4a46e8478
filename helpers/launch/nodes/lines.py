"""Messages between the first node and the program of another one (``share``): JSON objects, one a line, over the pipes
of the host's connect command. Both sides are of one checkout."""

from __future__ import annotations

import json
import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any

# The time between two signs of life, in both directions.
ALIVE_SECONDS = 1.0
# After so long without one, the other side counts as lost.
SILENCE_SECONDS = 30.0
_MARK = b"perfgate-node "
_LONGEST_LINE = 2**20
_CHATTER_LINES = 3

Message = dict[str, Any]


class Lost(Exception):
    """The other side is gone."""


class Lines:
    """One end of a connection. Lines without the mark are output of a log-in shell, which ``chatter`` keeps."""

    def __init__(self, incoming: int, outgoing: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.chatter: deque[str] = deque(maxlen=_CHATTER_LINES)
        self._incoming = incoming
        self._outgoing = outgoing
        self._clock = clock
        self._rest = b""
        self._heard = self._said = clock()

    def send(self, kind: str, **values: Any) -> None:
        """Raises Lost if nobody reads it in time."""
        self._said = self._clock()
        data = _MARK + json.dumps({"kind": kind, **values}).encode() + b"\n"
        try:
            while data:
                if not select.select([], [self._outgoing], [], SILENCE_SECONDS)[1]:
                    raise Lost(f"it reads nothing for {SILENCE_SECONDS:g} s")
                # A pipe that is ready takes so much without blocking (pipe(7)).
                data = data[os.write(self._outgoing, data[: select.PIPE_BUF]) :]
        except OSError as error:
            raise Lost("it closed the connection") from error

    def show_life(self) -> None:
        """Send a sign of life if it is time."""
        if self._clock() - self._said >= ALIVE_SECONDS:
            self.send("alive")

    def receive(self, seconds: float) -> list[Message]:
        """What arrives in time, except signs of life. Raises Lost at the end of the connection."""
        if not select.select([self._incoming], [], [], seconds)[0]:
            return []
        data = os.read(self._incoming, 65536)
        if not data or len(self._rest) > _LONGEST_LINE:
            raise Lost("it closed the connection")
        self._heard = self._clock()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [message for message in map(self._message, lines) if message is not None and message["kind"] != "alive"]

    def listen_anew(self) -> None:
        """Nobody listened so far: that was not the other side's silence."""
        self._heard = self._clock()

    def check_silence(self, limit_seconds: float | None = None) -> None:
        """Raises Lost if nothing came for so long (SILENCE_SECONDS)."""
        limit = SILENCE_SECONDS if limit_seconds is None else limit_seconds
        if self._clock() - self._heard > limit:
            raise Lost(f"no sign of life for {limit:g} s")

    def _message(self, line: bytes) -> Message | None:
        # Output of the shell without a line break may stand before the mark.
        chatter, mark, body = line.partition(_MARK)
        if chatter.strip():
            self.chatter.append(chatter.decode(errors="replace").strip())
        try:
            message = json.loads(body) if mark else None
        except ValueError as error:
            raise Lost(f"it sent {body[:60]!r}") from error
        return message if isinstance(message, dict) and isinstance(message.get("kind"), str) else None
