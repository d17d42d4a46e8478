"""One optimizer step in Paddle's dynamic mode, as it stands or compiled with ``paddle.jit.to_static``."""

from __future__ import annotations

import math
from typing import Any, Dict

import paddle
import paddle.nn.functional as F

from helpers.case import Execution, Model
from helpers.job import JobSpec
from helpers.trainers import paddle_bf16
from helpers.trainers.data import Form
from helpers.trainers.loop import Batch
from helpers.trainers.paddle_device import apply_options
from helpers.trainers.paddle_models import VGG16, Layers, ResNet50
from helpers.trainers.process import Refused, Trainer
from helpers.trainers.settings import Settings


def build_model(spec: JobSpec, settings: Settings) -> Any:
    """The case's model with fresh weights, in training mode; on a CPU with AMP already under ``auto_cast``."""
    kind = ResNet50 if spec.case.model is Model.RESNET50 else VGG16
    on_cpu = cpu_amp(spec, settings)
    layers = paddle_bf16.LAYERS if on_cpu else Layers()
    model = kind(layers, layout=settings.layout, channels=settings.input_channels)
    model = paddle_bf16.AutoCast(model) if on_cpu else model
    model.train()
    return model


def check_bfloat16(program: Any, facts: Dict[str, str]) -> None:
    """Refused unless the program's convolutions were cast: float32 is no substitute."""
    convolutions = paddle_bf16.bfloat16_convolutions(program)
    if convolutions == 0:
        raise Refused("this build of Paddle did not cast the program's convolutions to bfloat16 on a CPU")
    facts["bfloat16_convolutions"] = str(convolutions)


def cpu_amp(spec: JobSpec, settings: Settings) -> bool:
    return spec.device == "cpu" and settings.amp_level is not None


def build_schedule(settings: Settings) -> Any:
    """The learning rate, by epoch."""
    return paddle.optimizer.lr.PiecewiseDecay(
        boundaries=list(settings.learning_rate_boundaries), values=list(settings.learning_rates)
    )


def build_optimizer(settings: Settings, schedule: Any, parameters: Any) -> Any:
    return paddle.optimizer.Momentum(
        learning_rate=schedule,
        momentum=settings.momentum,
        parameters=parameters,
        weight_decay=settings.weight_decay,
        multi_precision=settings.amp_level == "O2",
    )


class DynamicStep:
    """Forward, backward and Momentum; several ranks average their gradients through DataParallel."""

    def __init__(self, trainer: Trainer, settings: Settings) -> None:
        spec, facts = trainer.spec, trainer.device.facts
        self._settings = settings
        self._schedule = build_schedule(settings)
        model = build_model(spec, settings)
        self._optimizer = build_optimizer(settings, self._schedule, model.parameters())
        self._amp = None if cpu_amp(spec, settings) else settings.amp_level
        if self._amp == "O2":
            model, self._optimizer = paddle.amp.decorate(
                models=model, optimizers=self._optimizer, level="O2", dtype=settings.amp_dtype, master_weight=True
            )
        self._scaler: Any = None
        if settings.loss_scaling is not None:
            self._scaler = paddle.amp.GradScaler(init_loss_scaling=settings.loss_scaling)
        strategy = None
        if spec.case.execution is Execution.TO_STATIC:
            strategy = paddle.static.BuildStrategy()
            model = paddle.jit.to_static(model, build_strategy=strategy, full_graph=True, backend=None)
            if cpu_amp(spec, settings):
                form = Form(settings.layout, settings.input_channels, settings.input_dtype)
                images = paddle.zeros(form.shape(spec.case.batch_size_per_card), form.dtype)
                check_bfloat16(model.forward.get_concrete_program(images)[0].main_program, facts)
        apply_options(strategy, settings.build_strategy, "build_strategy", facts)
        apply_options(None, settings.execution_strategy, "execution_strategy", facts)
        apply_options(None, settings.fleet, "fleet", facts)
        if trainer.ranks.world_size > 1:
            model = paddle.DataParallel(model)
        self._model = model

    def begin_epoch(self, number: int) -> None:
        self._schedule.step(number)

    def step(self, batch: Batch) -> Any:
        if self._amp is None:
            logits = self._model(batch.images)
            loss = F.cross_entropy(logits, batch.labels)
        else:
            with paddle.amp.auto_cast(level=self._amp, dtype=self._settings.amp_dtype):
                logits = self._model(batch.images)
                loss = F.cross_entropy(logits, batch.labels)
        if self._scaler is None:
            loss.backward()
            self._optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._optimizer.clear_grad()
        return loss, logits

    def loss(self, handle: Any) -> float:
        loss, logits = handle
        return loss_of(float(loss), float(logits.astype("float32").mean()))


def loss_of(loss: float, mean_logit: float) -> float:
    """The loss, or NaN where the logits are not finite: on a CPU Paddle's cross entropy then answers ln 1000,
    the loss of a guess."""
    return loss if math.isfinite(mean_logit) else math.nan
