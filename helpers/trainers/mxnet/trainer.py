"""Trains an MXNet job in one process that drives all cards of a node: ``python -m helpers.trainers.mxnet.trainer
SPEC.json``. MXNet is retired; 1.9.1 is its last release.

Exit status: 0 complete, 1 failed, 3 refused (``process.EXIT_REFUSED``); the step log's footer says why.
"""

from __future__ import annotations

import sys
import time

from helpers.trainers.common.cuda import card_name
from helpers.trainers.common.engine_timer import EngineTimer
from helpers.trainers.common.loop import HostTimer, StepTimer, train
from helpers.trainers.common.process import (
    RANK_VARIABLES,
    Trainer,
    cpu_name,
    import_framework,
    io_of,
    plan_of,
    run,
    seed_everything,
)
from helpers.trainers.mxnet.settings import MxnetSettings


def program(trainer: Trainer) -> None:
    """The process from the import of MXNet to its last step."""
    spec, facts = trainer.spec, trainer.device.facts
    settings = MxnetSettings.of(spec)
    trainer.beat("import mxnet")
    mx = import_framework(trainer, settings, "MXNet", "mxnet")
    from helpers.trainers.mxnet import data as mxnet_data
    from helpers.trainers.mxnet import device as mxnet_device
    from helpers.trainers.mxnet import steps as mxnet_steps

    mxnet_device.refuse_what_cannot_run(spec)
    contexts = mxnet_device.contexts_of(spec, trainer.cards)
    if spec.device == "cpu":
        mxnet_device.pin_workers(trainer.cards, contexts)
    # MXNet does not report the name of a card.
    trainer.device.name = card_name(0) if spec.device == "gpu" else cpu_name()
    facts.update(mxnet_device.device_facts(spec))
    facts.update(mxnet_device.force_float32(spec, contexts[0]))
    seed_everything(mx.random.seed, spec.seed)
    trainer.beat("data")
    reader = mxnet_data.open_reader(trainer, settings, contexts)
    trainer.beat("build model")
    stepper = mxnet_steps.TrainingStep(trainer, settings, contexts)
    timer: StepTimer = HostTimer(time.monotonic)
    if spec.device == "gpu":
        timer = EngineTimer(mx.nd.waitall, mxnet_device.last_of_step(stepper.weights, contexts))
        trainer.peak_device_bytes = lambda: mxnet_device.peak_device_bytes(contexts)
    trainer.beat("first step")
    train(plan_of(trainer), reader, stepper, timer, io_of(trainer, lambda: None, bool))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], RANK_VARIABLES, program))
