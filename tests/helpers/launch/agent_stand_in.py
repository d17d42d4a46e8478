"""A node's agent as it is, on a made-up machine and with a trainer's double in place of the framework.

``agent_stand_in.py KEY=VALUE ... [what the suite would have run]``: ``behaviour`` of its rank (stand_in.py),
``trainer=cards_double`` for the other double, behind the real launchers, ``version`` of its framework, ``suite`` and
``boot_id`` instead of the real ones, ``silence`` in seconds, ``greedy=yes``: takes memory until the kernel ends it.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from helpers.launch.launchers.launcher import LaunchCommand, Place
from helpers.launch.nodes import agent as node_agent
from helpers.launch.nodes.stream import FrameStream
from helpers.launch.nodes.wire import boot_id, suite_digest
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.environment import Host
from helpers.machine.frameworks import FrameworkBuild
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch import cards_double

STAND_IN = Path(__file__).resolve().with_name("stand_in.py")
# Both on core 0, which every machine has; the stand-in pins nothing.
CARDS = (CpuCard(0, (0,)), CpuCard(1, (0,)))
MACHINE = Machine(Host("h", "0123456789abcdef", "Linux", "6.1", "AMD EPYC", 2, 8 * 1024**3), CARDS)
VERSION = "3.3.1"


class StandInLauncher:
    """Starts the stand-in of one node; with several cards on it all behave alike."""

    def __init__(self, behaviour: str) -> None:
        self._behaviour = behaviour

    def command(self, spec: JobSpec, interpreter: str, place: Place | None = None) -> LaunchCommand:
        node = 0 if place is None else place.node
        each = spec.case.cards_per_node
        words = [f"{rank}={self._behaviour}" for rank in range(node * each, (node + 1) * each)]
        return LaunchCommand((sys.executable, str(STAND_IN), str(spec.spec_path), *words))


def take_memory() -> None:
    taken = []
    while True:
        taken.append(bytearray(2**24))


def main(words: list[str]) -> int:
    given = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("PYTHONPATH"))

    class Builds:
        def find_build(self, framework: Framework) -> FrameworkBuild:
            return FrameworkBuild(sys.executable, framework, "paddlepaddle", given.get("version", VERSION))

    node_agent.BuildFinder = Builds  # type: ignore[assignment,misc]
    node_agent.discover = lambda cpu_cards: MACHINE  # type: ignore[assignment]
    double = cards_double.launcher_for if given.get("trainer") == "cards_double" else None
    node_agent.launcher_for = double or (lambda spec: StandInLauncher(given.get("behaviour", "trains")))  # type: ignore[assignment]
    node_agent.suite_digest = lambda: given.get("suite", suite_digest())
    node_agent.boot_id = lambda: given.get("boot_id", boot_id())
    node_agent._POLL_SECONDS = 0.05
    if "greedy" in given:
        threading.Timer(3.0, take_memory).start()
    print("Welcome to node 1\n", end="", flush=True)
    outgoing = os.dup(1)
    os.dup2(2, 1)
    try:
        silence = float(given["silence"]) if "silence" in given else None
        node_agent.Agent(FrameStream("the first node", 0, outgoing, silence_seconds=silence)).serve()
    except node_agent.Hangup as hangup:
        print(hangup, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
