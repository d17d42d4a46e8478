"""The launchers by name: what starts the ranks of a job on one node.

A framework's entry names the one that it uses; perf.yaml may choose another for cases of one node.
"""

from __future__ import annotations

from collections.abc import Mapping

from helpers.launch.launchers.launcher import Launcher, LocalLauncher
from helpers.launch.launchers.paddle import PaddleLauncher
from helpers.launch.launchers.torchrun import TorchLauncher
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import FRAMEWORKS

_ONE_PROCESS = "process"
LAUNCHERS: Mapping[str, type[Launcher]] = {
    _ONE_PROCESS: LocalLauncher,
    "paddle.distributed.launch": PaddleLauncher,
    "torchrun": TorchLauncher,
}


# The names that ``frameworks.NAME.launcher`` of perf.yaml may have: those that start several ranks.
CHOICES = tuple(name for name in LAUNCHERS if name != _ONE_PROCESS)


def launcher_for(case: Case, chosen: str = "") -> Launcher:
    """The launcher of this case: ``chosen``, or without a choice the framework's; one card needs neither.

    Raises LaunchError where none is known.
    """
    name = _ONE_PROCESS if case.cards == 1 else chosen or case.framework.spec.launcher
    if name in LAUNCHERS:
        return LAUNCHERS[name]()
    if chosen:
        raise LaunchError(f"case {case.id}", field="launcher", got=chosen, expected="one of " + ", ".join(CHOICES))
    able = [framework.value for framework, spec in FRAMEWORKS.items() if spec.launcher]
    raise LaunchError(
        f"case {case.id}", field="cards", got=case.cards, expected=f"1 card for {case.framework.value}",
        remedy=f"Only {' and '.join(able)} have a launcher for several cards",
    )  # fmt: skip
