"""A trainer's double whose processes drive several cards, behind the launchers as they are.

``python -m tests.helpers.launch.cards_double SPEC`` is one rank: the real frame and the real loop around steps that
compute nothing and take STEP_SECONDS each on its clock. The job's setting ``behaviours`` says what a rank does in the
first step of its window: ``{"1": "killed"}``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

from helpers.launch.launchers import launch_command as real_command
from helpers.launch.launchers.launcher import LaunchCommand, Place, trainer_module
from helpers.trainers.common.loop import LoopIO, LoopPlan, train
from helpers.trainers.common.process import RANK_VARIABLES, Trainer, run
from helpers.trainers.common.readers import share_of
from helpers.trainers.contract.job import JobSpec
from tests.faults.stand_in_trainer import EvenTimer, Images, NoStep

MODULE = "tests.helpers.launch.cards_double"
# What the launcher tells a rank; its step log repeats it.
TOLD = ("TF_CONFIG", "CUDA_VISIBLE_DEVICES", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OF_PERF_YAML", "OF_THE_CALLER")


def launch_command(spec: JobSpec, interpreter: str, place: Place | None = None) -> LaunchCommand:
    """The command that the suite would take, with the double in the trainer's place."""
    command = real_command(spec, interpreter, place)
    trainer = trainer_module(spec.case.framework)
    return replace(command, argv=tuple(MODULE if word == trainer else word for word in command.argv))


class Steps(NoStep):
    """Steps that compute nothing, until the rank is killed."""

    def __init__(self, behaviour: str, warmup_steps: int) -> None:
        self._behaviour = behaviour
        self._left = warmup_steps + 1

    def step(self, batch: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._behaviour == "killed":
            os.kill(os.getpid(), signal.SIGKILL)


def program(trainer: Trainer) -> None:
    spec = trainer.spec
    trainer.device.framework_version = "0"
    trainer.device.facts.update({name: os.environ[name] for name in TOLD if os.environ.get(name)})
    behaviour = spec.settings.get("behaviours", {}).get(str(trainer.ranks.rank), "")
    trainer.beat("first step")
    plan = LoopPlan(spec.warmup_steps, spec.window_steps, 1)
    io = LoopIO(trainer.record, trainer.beat, lambda: None, time.monotonic, begin=trainer.begin)
    images = sum(share_of(trainer, card).batch_size for card in trainer.cards)
    train(plan, Images(images), Steps(behaviour, spec.warmup_steps), EvenTimer(), io)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], RANK_VARIABLES, program))
