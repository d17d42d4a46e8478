"""A job on one card is one process: the trainer itself."""

from __future__ import annotations

from helpers.launch.launchers.launcher import LaunchCommand, Place, card_variables, trainer_argv
from helpers.trainers.contract.job import JobSpec


class LocalLauncher:
    """Starts the trainer directly; its output is the job's."""

    def command(self, spec: JobSpec, interpreter: str, place: Place | None = None) -> LaunchCommand:
        return LaunchCommand(trainer_argv(spec, interpreter), card_variables(spec))
