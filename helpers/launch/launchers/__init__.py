"""The launchers by name: what starts the ranks of a job on one node.

How many there are follows from the settings (``cards_per_process``). A framework's entry names the launcher that it
uses; perf.yaml may choose another for cases of one node.
"""

from __future__ import annotations

from collections.abc import Mapping

from helpers.launch.launchers.launcher import Launcher, LocalLauncher
from helpers.launch.launchers.paddle import PaddleLauncher
from helpers.launch.launchers.tensorflow import TensorflowLauncher
from helpers.launch.launchers.torchrun import TorchLauncher
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import FRAMEWORKS
from helpers.trainers.contract.job import CARDS_PER_PROCESS_SETTING, ONE_PROCESS, JobSpec

LAUNCHERS: Mapping[str, type[Launcher]] = {
    ONE_PROCESS: LocalLauncher,
    "paddle.distributed.launch": PaddleLauncher,
    "torchrun": TorchLauncher,
    "tf.distribute": TensorflowLauncher,
}


# The names that ``frameworks.NAME.launcher`` of perf.yaml may have for every framework: those that start several ranks.
CHOICES = tuple(name for name in LAUNCHERS if name != ONE_PROCESS)


def launcher_for(spec: JobSpec) -> Launcher:
    """The launcher of this job: the one that its settings name, else its framework's; one process needs none.

    Raises LaunchError where none is known, or the named one would not start what the settings say.
    """
    case, chosen = spec.case, spec.launcher
    if chosen and chosen not in LAUNCHERS:
        raise LaunchError(f"case {case.id}", field="launcher", got=chosen, expected="one of " + ", ".join(LAUNCHERS))
    if chosen not in ("", ONE_PROCESS) and spec.ranks == 1 and case.cards > 1:
        raise LaunchError(
            f"case {case.id}", field="launcher", got=chosen,
            expected=f"{ONE_PROCESS}: one process drives its {case.cards} cards",
            remedy=f"Choose {ONE_PROCESS}, or set {CARDS_PER_PROCESS_SETTING} to 1",
        )  # fmt: skip
    name = ONE_PROCESS if spec.ranks == 1 else chosen or case.framework.spec.launcher
    if name in LAUNCHERS:
        return LAUNCHERS[name]()
    able = [framework.value for framework, entry in FRAMEWORKS.items() if entry.launcher]
    raise LaunchError(
        f"case {case.id}", field="cards", got=case.cards, expected=f"1 card for {case.framework.value}",
        remedy=f"Only {' and '.join(able)} have a launcher for several cards",
    )  # fmt: skip
