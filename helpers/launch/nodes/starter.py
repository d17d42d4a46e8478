"""Starts the suite's program of a node (``agent``), and ends the job of an agent that was lost."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from helpers.launch.failure import FailureClass
from helpers.launch.nodes.link import NodeLink
from helpers.launch.nodes.wire import AGENT_MODULE
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError

# The time after the grace for a node to kill the remaining processes, check twice, and answer.
END_SECONDS = 15.0


@dataclass(frozen=True)
class Starter:
    """Starts agents. Without other ``words`` it reaches a host by its ``connect`` command, usually ssh."""

    # The words before a command that run it on the host.
    words: Callable[[HostConfig], tuple[str, ...]] = lambda host: host.connect
    # Ends what still runs there of a lost agent's way; raises LaunchError if that fails.
    cut: Callable[[NodeLink], None] = lambda link: None
    # What more is known of the end of a lost agent's way: the class, if it is known, and a text.
    explain: Callable[[NodeLink], tuple[FailureClass | None, str]] = lambda link: (None, "")

    def start(self, host: HostConfig, node: int, interpreter: str) -> NodeLink:
        """Start the host's agent as node ``node``; ``interpreter`` is this node's Python."""
        return NodeLink(host, node, (*self.words(host), *agent_words(host, interpreter)))

    def end(self, link: NodeLink, job_id: str, grace_seconds: float) -> None:
        """Have a new agent end the processes of a job that a lost one left on its node, and remove its files there.

        Raises LaunchError if the processes may still run.
        """
        self.cut(link)
        other = NodeLink(link.host, link.node, link.argv)
        try:
            other.greet(END_SECONDS)
            other.send("sweep", job_id=job_id, node=other.node, grace_seconds=grace_seconds)
            other.wait_for("swept", grace_seconds + END_SECONDS)
        finally:
            other.close()


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
