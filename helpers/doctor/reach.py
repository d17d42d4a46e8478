"""Whether ranks, other nodes and the history's database can be reached from here, without logging in anywhere."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from helpers.config_nodes import HostConfig, NodesConfig
from helpers.errors import SuiteError
from helpers.history.address import without_password
from helpers.launch.crew import open_port, resolve

# A name service or a database that takes longer has a problem of its own.
_PATIENCE_SECONDS = 2.0
_POSTGRES_PORT = 5432


def loopback_problem() -> str:
    """Whether two processes of this machine can meet at a port, as ranks do."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 1.0):
            return ""
    except OSError as error:
        return f"127.0.0.1: {error}"


def node_problems(
    nodes: NodesConfig,
    resolve: Callable[[HostConfig], str] = resolve,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> tuple[str, ...]:
    """Why configured hosts cannot be used: a name that does not resolve in time, a rendezvous port that is taken,
    a first host that is not this machine. All names are asked for at once."""
    answers: dict[str, str] = {}
    addresses: dict[str, str] = {}

    def look_up(host: HostConfig) -> None:
        try:
            addresses[host.name] = resolve(host)
        except SuiteError as error:
            answers[host.name] = str(error)

    # Daemons: a name service that hangs must not keep the doctor.
    threads = [threading.Thread(target=look_up, args=(host,), daemon=True) for host in nodes.hosts]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience_seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    problems = []
    for host in nodes.hosts:
        if host.name in answers:
            problems.append(answers[host.name])
        elif host.name not in addresses:
            problems.append(f"host {host.name}: {host.address} is not resolved within {patience_seconds:g} s")
    if nodes.hosts and (first := nodes.hosts[0]).name in addresses:
        try:
            open_port(first, addresses[first.name], nodes.port)
        except SuiteError as error:
            problems.append(str(error))
    return tuple(problems)


def history_problem(url: str | None, patience_seconds: float = _PATIENCE_SECONDS) -> str:
    """Why the database of ``url`` does not answer at its address; empty where it does, or is a file that may be made.

    Nobody logs in: whether the password is right shows when the session starts.
    """
    if url is None:
        return ""
    shown = without_password(url)
    if url.startswith("sqlite"):
        return _folder_problem(shown, Path(url.partition("///")[2]).absolute())
    _, scheme_ends, rest = url.partition("://")
    try:
        # A password may hold what would end a host's name: it ends at the last @.
        parts = urlsplit(f"//{rest.rpartition('@')[2]}")
        host, port = parts.hostname, parts.port or _POSTGRES_PORT
    except ValueError:
        return f"{shown} is no URL of a database"
    if not scheme_ends:
        return f"{shown} is no URL of a database"
    if not host:
        # A socket of this machine, named in the query or by the library's own default.
        return ""
    try:
        socket.create_connection((host, port), patience_seconds).close()
    except OSError as error:
        return f"{shown} does not answer at {host}:{port}: {error}"
    return ""


def _folder_problem(shown: str, file: Path) -> str:
    """The session makes the file, and its folder too."""
    try:
        nearest = next(path for path in file.parents if path.exists())
    except OSError as error:
        return f"{shown} cannot be reached: {error}"
    if not nearest.is_dir():
        return f"{shown}: {nearest} is no folder"
    if not os.access(file if file.exists() else nearest, os.W_OK):
        return f"{shown} cannot be written"
    return ""
