"""One optimizer step in Paddle's static mode: the program of ``paddle_program`` in an Executor."""

from __future__ import annotations

from typing import Any, List

import numpy
import paddle

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import Trainer
from helpers.trainers.paddle.device import place_of
from helpers.trainers.paddle.program import build_program
from helpers.trainers.paddle.settings import PaddleSettings
from helpers.trainers.paddle.steps import loss_of


class StaticStep:
    """The whole step is one program; GPUs train through fleet."""

    def __init__(self, trainer: Trainer, settings: PaddleSettings) -> None:
        spec = trainer.spec
        built = build_program(spec, settings, trainer.device.facts)
        on_cpu = spec.device == "cpu"
        place = place_of(spec)
        self._built = built
        self._executor = paddle.static.Executor(place)
        self._executor.run(built.startup)
        if settings.amp_level == "O2" and not on_cpu:
            built.optimizer.amp_init(place)
        self._program = built.main
        if built.build_strategy is not None:
            self._program = paddle.static.CompiledProgram(built.main, build_strategy=built.build_strategy)

    def begin_epoch(self, number: int) -> None:
        self._built.schedule.step(number)

    def step(self, batch: Batch) -> Any:
        built = self._built
        fetched: List[Any] = self._executor.run(
            self._program,
            feed={built.images: batch.images, built.labels: batch.labels},
            fetch_list=[built.loss, built.mean_logit],
            return_numpy=False,
        )
        return fetched

    def loss(self, handle: Any) -> float:
        loss, mean_logit = (float(numpy.asarray(fetched).reshape(-1)[0]) for fetched in handle)
        return loss_of(loss, mean_logit)
