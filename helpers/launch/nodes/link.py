"""Messages between the first node and the program of another one (``share``): JSON objects, one a line, over the pipes
of the host's connect command. Both sides are of one checkout, and each shows its life by an empty line a second."""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections import deque
from typing import Any

ALIVE_SECONDS = 1.0
# After so long without a sign of life, the other side counts as lost.
SILENCE_SECONDS = 30.0
_LONGEST_LINE = 2**20
_CHATTER_LINES = 3

Message = dict[str, Any]


class Lost(Exception):
    """The other side is gone."""


class Link:
    """One end of a connection. Lines that are no messages are output of a log-in shell, which ``chatter`` keeps."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.chatter: deque[str] = deque(maxlen=_CHATTER_LINES)
        self._incoming = incoming
        self._outgoing = outgoing
        self._rest = b""
        # None until the first message.
        self._heard: float | None = None
        self._writing = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._show_life, daemon=True).start()

    def send(self, kind: str, **values: Any) -> None:
        """Raises Lost if the other side no longer reads."""
        try:
            # Output of the shell without a line break may stand before it.
            self._write(b"\n" + json.dumps({"kind": kind, **values}).encode() + b"\n")
        except OSError as error:
            raise Lost("it closed the connection") from error

    def receive(self, seconds: float) -> list[Message]:
        """What arrives in time. Raises Lost at the end of the connection, and after too long a silence."""
        if not select.select([self._incoming], [], [], seconds)[0]:
            if self._heard is not None and time.monotonic() - self._heard > SILENCE_SECONDS:
                raise Lost(f"no sign of life for {SILENCE_SECONDS:g} s")
            return []
        data = os.read(self._incoming, 65536)
        if not data or len(self._rest) > _LONGEST_LINE:
            raise Lost("it closed the connection")
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = [message for message in map(self._message, lines) if message is not None]
        if messages or self._heard is not None:
            self._heard = time.monotonic()
        return messages

    def close(self) -> None:
        """Write nothing more."""
        with self._writing:
            self._closed.set()

    def _write(self, data: bytes) -> None:
        with self._writing:
            while data and not self._closed.is_set():
                data = data[os.write(self._outgoing, data) :]

    def _show_life(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed.wait(ALIVE_SECONDS):
                self._write(b"\n")

    def _message(self, line: bytes) -> Message | None:
        try:
            message = json.loads(line)
        except ValueError:
            if line.startswith(b'{"kind"'):
                raise Lost(f"it sent {line[:60]!r}") from None
            message = None
        if isinstance(message, dict) and "kind" in message:
            return message
        if line.strip():
            self.chatter.append(line.decode(errors="replace").strip())
        return None
