"""Trains one rank of a Paddle job: ``python -m helpers.trainers.paddle.trainer SPEC.json``.

For one card it is started directly, for several by ``python -m paddle.distributed.launch``. Exit status: 0 complete, 1
failed, 3 refused (``process.EXIT_REFUSED``); the step log's footer says why.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from helpers.trainers.common.cuda import EVENTS, loaded_facts
from helpers.trainers.common.loop import HostTimer, StepTimer, train
from helpers.trainers.common.process import Trainer, io_of, plan_of, run, seed_everything, set_environment
from helpers.trainers.common.step_profiler import StepProfiler, explain_at_the_end
from helpers.trainers.contract.case import Execution
from helpers.trainers.contract.job import WEIGHTS_VARIABLE, JobSpec
from helpers.trainers.paddle.companions import import_paddle
from helpers.trainers.paddle.settings import PaddleSettings

# Variables of paddle.distributed.launch: rank, rank within the node, number of ranks.
RANK_VARIABLES = ("PADDLE_TRAINER_ID", "PADDLE_LOCAL_RANK", "PADDLE_TRAINERS_NUM")


def program(trainer: Trainer) -> None:
    """One rank from the import of Paddle to its last step."""
    spec, device = trainer.spec, trainer.device
    settings = PaddleSettings.of(spec)
    trainer.beat("import paddle")
    paddle = _import_paddle(trainer, settings)
    from helpers.trainers.paddle import auto as paddle_auto
    from helpers.trainers.paddle import data as paddle_data
    from helpers.trainers.paddle import device as paddle_device
    from helpers.trainers.paddle.libraries import refuse_wrong_majors

    paddle_device.refuse_what_cannot_run(spec)
    if spec.case.auto:
        paddle_auto.start(spec)
    device.name = paddle_device.use_device(spec)
    device.facts.update(paddle_device.flag_facts(settings))
    on_gpu = spec.device == "gpu"
    device.facts.update(paddle_device.build_facts() if on_gpu else {})
    device.facts.update(paddle_device.force_tf32(spec.case.precision) if on_gpu else {"tf32": "not on a CPU"})
    if on_gpu:
        # The products were computed: what is opened later than at the start is there too.
        refuse_wrong_majors(loaded_facts())
    seed_everything(paddle.seed, spec.seed)
    static = spec.case.execution is Execution.STATIC
    several = trainer.ranks.world_size > 1
    agree: Any = bool
    if static:
        paddle.enable_static()
    if several:
        trainer.beat("connect ranks")
        agree = _agreement(trainer, static)
    trainer.beat("data")
    feed = paddle_data.program_feed(paddle_device.place_of(spec)) if static else paddle.to_tensor
    reader = paddle_data.open_reader(trainer, settings, feed)
    trainer.beat("build model")
    stepper = _stepper(trainer, settings)
    timer: StepTimer = HostTimer(time.monotonic)
    if on_gpu:
        timer, device.facts["step_timer"] = paddle_device.event_timer(), EVENTS
        trainer.peak_device_bytes = lambda: int(paddle.device.cuda.max_memory_allocated())
    # A step of fleet's program ends with an all-reduce over all ranks, which serves as a barrier.
    barrier = paddle.distributed.barrier if several and not static else lambda: None
    trainer.beat("first step")
    more = train(plan_of(trainer), reader, stepper, timer, io_of(trainer, barrier, agree))
    if os.environ.get(WEIGHTS_VARIABLE):
        _write_weights(trainer, stepper)
    explain_at_the_end(trainer, lambda: _profiler(spec, stepper), stepper, more)


def _agreement(trainer: Trainer, static: bool) -> Any:
    """How the ranks agree that all are steady. All ranks must call it, since they connect here."""
    import paddle

    from helpers.trainers.paddle import device as paddle_device

    if static:
        return paddle_device.host_agreement(trainer.ranks.world_size)
    paddle.distributed.init_parallel_env()
    return paddle_device.all_agree


def _import_paddle(trainer: Trainer, settings: PaddleSettings) -> Any:
    set_environment(trainer.spec, settings, os.environ)
    paddle = import_paddle()
    # Paddle's handler prints a stack trace and goes on, but the supervisor's SIGTERM must end the process.
    paddle.disable_signal_handler()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    trainer.device.framework_version = str(paddle.__version__)
    trainer.device.framework_commit = str(paddle.version.commit)
    return paddle


def _stepper(trainer: Trainer, settings: PaddleSettings) -> Any:
    if trainer.spec.case.execution is Execution.STATIC:
        from helpers.trainers.paddle.program import StaticStep

        return StaticStep(trainer, settings)
    from helpers.trainers.paddle.steps import DynamicStep

    return DynamicStep(trainer.spec, settings, trainer.device.facts, trainer.ranks.world_size)


def _write_weights(trainer: Trainer, stepper: Any) -> None:
    """Write the sum over the absolute values of this rank's weights."""
    import numpy

    values = (numpy.abs(numpy.asarray(each, dtype="float64")).sum() for each in stepper.weights())
    path = trainer.spec.weights_path(trainer.ranks.rank)
    path.write_text(json.dumps({"absolute_sum": float(sum(values))}) + "\n", encoding="utf-8")


def _profiler(spec: JobSpec, stepper: Any) -> StepProfiler:
    from helpers.trainers.paddle.profile import PaddleProfiler

    return PaddleProfiler(spec.device, getattr(stepper, "model", None), spec.explained_without)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], RANK_VARIABLES, program))
