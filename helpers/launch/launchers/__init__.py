"""The launchers by name. A launcher starts the ranks of a job on one node.

How many ranks there are follows from the setting ``cards_per_process``. A framework's entry names its launcher; for
cases of one node perf.yaml may choose another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from helpers.launch.launchers.launcher import LaunchCommand, Place, local_command
from helpers.launch.launchers.paddle import paddle_command
from helpers.launch.launchers.tensorflow import tensorflow_command
from helpers.launch.launchers.torchrun import torch_command
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import ONE_PROCESS, JobSpec

Launcher = Callable[[JobSpec, str, Place | None], LaunchCommand]
LAUNCHERS: Mapping[str, Launcher] = {
    ONE_PROCESS: local_command,
    "paddle.distributed.launch": paddle_command,
    "torchrun": torch_command,
    "tf.distribute": tensorflow_command,
}


# The values that ``frameworks.NAME.launcher`` in perf.yaml may have: launchers that start several ranks.
CHOICES = tuple(name for name in LAUNCHERS if name != ONE_PROCESS)


def launcher_for(spec: JobSpec) -> Launcher:
    """What makes the command that starts the job's ranks on one node: the launcher of its settings, else its
    framework's. A single process is started directly.

    Raises LaunchError if there is none, or if it would not start as many processes as the settings state.
    """
    case, chosen = spec.case, spec.launcher
    if chosen not in ("", ONE_PROCESS) and spec.ranks == 1 and case.cards > 1:
        raise LaunchError(
            f"case {case.id}", field="launcher", got=chosen,
            expected=f"{ONE_PROCESS}: one process drives its {case.cards} cards",
            remedy="Leave launcher out",
        )  # fmt: skip
    name = ONE_PROCESS if spec.ranks == 1 else chosen or case.framework.spec.launcher
    if name not in LAUNCHERS:
        expected = f"for several ranks one of {', '.join(CHOICES)}"
        raise LaunchError(f"case {case.id}", field="launcher", got=name, expected=expected)
    return LAUNCHERS[name]


def launch_command(spec: JobSpec, interpreter: str, place: Place | None = None) -> LaunchCommand:
    """The command that starts the job's ranks on one node; ``place`` is None for a job of a single node."""
    return launcher_for(spec)(spec, interpreter, place)
