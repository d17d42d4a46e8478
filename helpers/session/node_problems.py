"""Why cases of several nodes, or of several ranks, cannot run here, as the doctor says it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from helpers.launch.nodes.connected import open_port, resolve
from helpers.plan.perf_yaml import HostConfig, NodesConfig
from helpers.trainers.contract.errors import SuiteError

# A name service that takes longer is a problem.
_PATIENCE_SECONDS = 2.0


def loopback_problem() -> str:
    """Why two processes of this machine cannot connect through a port, as ranks do; empty if they can."""
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
    """Why configured hosts cannot be used: a name does not resolve in time, the rendezvous port is taken, or the first
    host is not this machine. All names are resolved in parallel."""
    answers: dict[str, str] = {}
    addresses: dict[str, str] = {}

    def look_up(host: HostConfig) -> None:
        try:
            addresses[host.name] = resolve(host)
        except SuiteError as error:
            answers[host.name] = str(error)

    # Daemon threads, so that a name service that hangs does not hold up the doctor.
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
