"""The launchers by name: what starts the ranks of a job on one node. A framework's entry names the one it uses."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.launch.launchers.launcher import Launcher
from helpers.launch.launchers.local import LocalLauncher
from helpers.launch.launchers.paddle import PaddleLauncher
from helpers.launch.launchers.torchrun import TorchLauncher
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import FRAMEWORKS, spec_of

LAUNCHERS: Mapping[str, type[Launcher]] = {
    "process": LocalLauncher,
    "paddle.distributed.launch": PaddleLauncher,
    "torchrun": TorchLauncher,
}


def launcher_for(case: Case) -> Launcher:
    """The launcher of this case; one card needs none of the framework's. Raises LaunchError where none is known."""
    name = "process" if case.cards == 1 else spec_of(case.framework).launcher
    if name in LAUNCHERS:
        return LAUNCHERS[name]()
    able = [framework.value for framework, spec in FRAMEWORKS.items() if spec.launcher]
    raise LaunchError(
        f"case {case.id}", field="cards", got=case.cards, expected=f"1 card for {case.framework.value}",
        remedy=f"Only {' and '.join(able)} have a launcher for several cards",
    )  # fmt: skip
