"""Starts the suite's program of a node (``agent``), and ends the job of an agent that was lost."""

from __future__ import annotations

import shlex
from typing import Protocol

from helpers.launch.nodes.link import NodeLink
from helpers.launch.nodes.wire import AGENT_MODULE
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError

# The time after the grace for a node to kill the remaining processes, check twice, and answer.
END_SECONDS = 15.0


class NodeStarter(Protocol):
    """A way to start the agent of another node."""

    def start(self, host: HostConfig, node: int, interpreter: str) -> NodeLink:
        """Start the host's agent as node ``node``; ``interpreter`` is this node's Python."""

    def end(self, link: NodeLink, job_id: str, grace_seconds: float) -> None:
        """End the processes of a job that a lost agent left on its node. Raises LaunchError if they may still run."""


class ConnectStarter:
    """Reaches each host by its ``connect`` command, usually ssh."""

    def start(self, host: HostConfig, node: int, interpreter: str) -> NodeLink:
        return NodeLink(host, node, (*host.connect, *agent_words(host, interpreter)))

    def end(self, link: NodeLink, job_id: str, grace_seconds: float) -> None:
        sweep(NodeLink(link.host, link.node, link.argv), job_id, grace_seconds)


def agent_words(host: HostConfig, interpreter: str) -> tuple[str, ...]:
    """The command that runs the agent on the host itself.

    Each word must mean the same with and without a shell. All other values are sent through the pipe.
    """
    words = ("env", f"PYTHONPATH={host.root or ROOT}", host.interpreter or interpreter, "-u", "-m", AGENT_MODULE)
    for word in words:
        if shlex.quote(word) != word:
            raise LaunchError(
                f"node {host.name}",
                got=word,
                expected="paths of letters, digits and /._-+=@%:,",
                remedy=f"Set root and interpreter of host {host.name} in perf.yaml",
            )
    return words


def sweep(other: NodeLink, job_id: str, grace_seconds: float) -> None:
    """Have ``other``, a new agent of the node, end a job's processes and remove its files there; closes the link.

    Raises LaunchError if the node cannot be reached.
    """
    try:
        other.greet(END_SECONDS)
        other.send("sweep", job_id=job_id, node=other.node, grace_seconds=grace_seconds)
        other.wait_for("swept", grace_seconds + END_SECONDS)
    finally:
        other.close()
