"""One card, one process: the trainer itself."""

from __future__ import annotations

from helpers.job import JobSpec
from helpers.launch.launcher import LaunchCommand, Place, card_variables, trainer_argv


class LocalLauncher:
    """Starts the trainer directly; its output is the job's."""

    def command(self, spec: JobSpec, interpreter: str, place: Place | None = None) -> LaunchCommand:
        return LaunchCommand(trainer_argv(spec, interpreter), card_variables(spec))
