"""Trains one rank of a TensorFlow job: ``python -m helpers.trainers.tensorflow.trainer SPEC.json``.

A process drives one card; several are started by launchers/tensorflow.py. Exit status: 0 complete, 1 failed, 3 refused
(``process.EXIT_REFUSED``); the step log's footer says why.
"""

from __future__ import annotations

import os
import sys

from helpers.trainers.common.loop import train
from helpers.trainers.common.process import (
    RANK_VARIABLES,
    Trainer,
    import_framework,
    io_of,
    plan_of,
    run,
    seed_everything,
)
from helpers.trainers.tensorflow.settings import TensorflowSettings

# Unless the caller's shell sets it otherwise, the C++ code prints only errors.
_QUIET = ("TF_CPP_MIN_LOG_LEVEL", "2")


def program(trainer: Trainer) -> None:
    """One rank from the import of TensorFlow to its last step."""
    spec, facts = trainer.spec, trainer.device.facts
    settings = TensorflowSettings.of(spec)
    trainer.beat("import tensorflow")
    os.environ.setdefault(*_QUIET)
    tf = import_framework(trainer, settings, "TensorFlow", "tensorflow")
    # v2.21.0-rc1-5-ga481b10260d
    trainer.device.framework_commit = str(tf.version.GIT_VERSION).rpartition("-g")[2]
    from helpers.trainers.tensorflow import data as tensorflow_data
    from helpers.trainers.tensorflow import device as tensorflow_device
    from helpers.trainers.tensorflow import steps as tensorflow_steps

    tensorflow_device.refuse_what_cannot_run(spec, settings)
    trainer.device.name = tensorflow_device.device_name(trainer)
    several = trainer.ranks.world_size > 1
    if several:
        trainer.beat("connect ranks")
    facts.update(tensorflow_device.build_facts(spec))
    card = tensorflow_device.card_of(trainer, settings)
    facts.update(tensorflow_device.force_float32(spec))
    seed_everything(tf.random.set_seed, spec.seed)
    trainer.beat("data")
    reader = tensorflow_data.open_reader(trainer, settings, card.device)
    trainer.beat("build model")
    stepper = tensorflow_steps.TrainingStep(trainer, settings, card)
    timer, facts["step_timer"] = tensorflow_device.timer_of(spec, card)
    if spec.device == "gpu":
        trainer.peak_device_bytes = lambda: tensorflow_device.peak_device_bytes(card)
    total = card.total()
    trainer.beat("first step")
    io = io_of(trainer, lambda: total(0.0), lambda own: total(float(not own)) == 0)
    train(plan_of(trainer), reader, stepper, timer, io)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], RANK_VARIABLES, program))
