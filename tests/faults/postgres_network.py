"""A network between a runner and its PostgreSQL that can be cut: connections are dropped, or freeze without a word."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_ANSWER_RESET = struct.pack("ii", 1, 0)


@dataclass
class _Link:
    """One connection, as two sockets."""

    client: socket.socket
    server: socket.socket
    requests_flow: threading.Event = field(default_factory=threading.Event)
    answers_flow: threading.Event = field(default_factory=threading.Event)
    closed: bool = False

    def start(self) -> None:
        ways = ((self.client, self.server, self.requests_flow), (self.server, self.client, self.answers_flow))
        for way in ways:
            threading.Thread(target=self._carry, args=way, name="network", daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, flow: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                flow.wait()
                target.sendall(data)
            # A frozen network carries no farewell either.
            flow.wait()
        self.close()

    def close(self) -> None:
        self.closed = True
        for each in (self.client, self.server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.let_flow()

    def let_flow(self) -> None:
        self.requests_flow.set()
        self.answers_flow.set()


class Network:
    """Carries TCP connections to a server's socket in ``folder``. A frozen connection stays open: the kernels at both
    ends answer each other's probes, and nobody sends an end."""

    def __init__(self, folder: Path) -> None:
        self._target = next(path for path in folder.glob(".s.PGSQL.*") if path.suffix != ".lock")
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._links: list[_Link] = []
        self._frozen = False

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def url(self, database: str, user: str = "perfgate") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    @property
    def open_links(self) -> int:
        return sum(not each.closed for each in self._links)

    def freeze(self, *, answers_only: bool = False) -> None:
        """From now on nothing arrives any more, over connections that exist and over new ones; or no answer does."""
        self._frozen = not answers_only
        for each in self._links:
            each.answers_flow.clear()
            if not answers_only:
                each.requests_flow.clear()

    def thaw(self) -> None:
        """Everything that was held arrives."""
        self._frozen = False
        for each in self._links:
            each.let_flow()

    def drop(self) -> None:
        """Reset every connection."""
        for each in self._links:
            for end in (each.client, each.server):
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ANSWER_RESET)
            each.close()

    def serve(self) -> None:
        """Carry connections until the listener is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._target))
            except OSError:
                # The server is down: the client sees its connection reset.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ANSWER_RESET)
                client.close()
                server.close()
                continue
            link = _Link(client, server)
            if not self._frozen:
                link.let_flow()
            self._links.append(link)
            link.start()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._links:
            each.close()


@contextmanager
def network_to(folder: Path) -> Iterator[Network]:
    """A network to the server whose socket is in ``folder``, until the block ends."""
    network = Network(folder)
    threading.Thread(target=network.serve, name="network", daemon=True).start()
    try:
        yield network
    finally:
        network.end()
