"""A node's program as it is, on a made-up machine and with a trainer's double in place of the framework.

``share_stand_in.py KEY=VALUE ... [what the suite would have run]``: ``behaviour`` of its rank (stand_in.py),
``trainer=cards_double`` for the other double, behind the real launchers, ``suite`` and ``boot_id`` instead of the real
ones, ``silence`` in seconds, ``blind=yes``: does not see the run folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from helpers.launch.launchers.launcher import LaunchCommand, Place, node_folder
from helpers.launch.nodes import link, share
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.framework_builds import FrameworkBuild
from helpers.machine.host import Host
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch import cards_double

STAND_IN = Path(__file__).resolve().with_name("stand_in.py")
# Both on core 0, which every machine has; the stand-in pins nothing.
CARDS = (CpuCard(0, (0,)), CpuCard(1, (0,)))
MACHINE = Machine(Host("h", "0123456789abcdef", "Linux", "6.1", "AMD EPYC", 2, 8 * 1024**3), CARDS)
VERSION = "3.3.1"


def stand_in_command(behaviour: str) -> Callable[..., LaunchCommand]:
    """Starts the stand-in of one node; with several cards on it all behave alike."""

    def command(spec: JobSpec, interpreter: str, place: Place | None = None) -> LaunchCommand:
        words = [f"{rank}={behaviour}" for rank in spec.ranks_of_node(0 if place is None else place.node)]
        return LaunchCommand((interpreter, str(STAND_IN), str(node_folder(spec, place) / "spec.json"), *words))

    return command


def main(words: list[str]) -> int:
    given = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("PYTHONPATH"))

    class Builds:
        def find_build(self, framework: Framework, interpreter: str) -> FrameworkBuild:
            return FrameworkBuild(interpreter, framework, "paddlepaddle", VERSION)

    share.BuildFinder = Builds  # type: ignore[assignment,misc]
    share.discover = lambda cpu_cards: MACHINE  # type: ignore[assignment]
    double = cards_double.launch_command if given.get("trainer") == "cards_double" else None
    share.launch_command = double or stand_in_command(given.get("behaviour", "trains"))
    digest, boot = given.get("suite", share.suite_digest()), given.get("boot_id", share.boot_id())
    share.suite_digest, share.boot_id = lambda: digest, lambda: boot
    share._POLL_SECONDS = 0.05
    if "blind" in given:
        wait, share._SEEN_SECONDS = share._wait_until_seen, 0.2
        share._wait_until_seen = lambda path: wait(path / "unseen")
    link.SILENCE_SECONDS = float(given.get("silence", link.SILENCE_SECONDS))
    print("Welcome to node 1\n", end="", flush=True)
    return share.main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
