"""One optimizer step in Paddle's dynamic mode, plain or compiled with ``paddle.jit.to_static``."""

from __future__ import annotations

import math
from typing import Any, Dict, List

import paddle
import paddle.nn.functional as F

from helpers.trainers.common.images import Form
from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import Refused
from helpers.trainers.contract.case import Execution
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.device import apply_options
from helpers.trainers.paddle.models import AutoCast, Float32BatchNorm, network_of
from helpers.trainers.paddle.settings import PaddleSettings, convolutions, program_facts


def build_model(spec: JobSpec, settings: PaddleSettings) -> Any:
    """The case's model with fresh weights, in training mode; on a CPU with AMP it is already under ``auto_cast``."""
    on_cpu = cpu_amp(spec, settings)
    norm = Float32BatchNorm if on_cpu else paddle.nn.BatchNorm2D
    known, layout, feed_layout = spec.case.model.spec, settings.layout, settings.feed_layout
    model = network_of(known, norm, layout, settings.input_channels, feed_layout)
    model = AutoCast(model, str(settings.amp_level)) if on_cpu else model
    model.train()
    return model


def check_casts(program: Any, settings: PaddleSettings) -> None:
    """Raise Refused unless all convolutions of the program have the case's precision."""
    if settings.amp_dtype is None:
        return
    cast, of = convolutions(program, dtype=settings.amp_dtype), convolutions(program)
    if cast == 0 or cast < of:
        raise Refused(
            f"this build of Paddle did not cast the program's convolutions to {settings.amp_dtype}: {cast} of {of} are"
        )


def cpu_amp(spec: JobSpec, settings: PaddleSettings) -> bool:
    return spec.device == "cpu" and settings.amp_level is not None


def build_schedule(settings: PaddleSettings) -> Any:
    """The learning rate, by epoch."""
    return paddle.optimizer.lr.PiecewiseDecay(
        boundaries=list(settings.learning_rate_boundaries), values=list(settings.learning_rates)
    )


def build_optimizer(settings: PaddleSettings, schedule: Any, parameters: Any, *, merged: bool = False) -> Any:
    """``merged``: all weights of one type in one operator, which Paddle makes in old programs alone."""
    return paddle.optimizer.Momentum(
        learning_rate=schedule,
        momentum=settings.momentum,
        parameters=parameters,
        weight_decay=settings.weight_decay,
        multi_precision=settings.amp_level == "O2",
        use_multi_tensor=merged,
    )


class DynamicStep:
    """Forward, backward and Momentum; several ranks average their gradients through DataParallel."""

    def __init__(self, spec: JobSpec, settings: PaddleSettings, facts: Dict[str, str], ranks: int) -> None:
        """``facts`` are filled with the properties of model and optimizer. Raises Refused if this build does not
        compute in the case's precision."""
        self._settings = settings
        self._schedule = build_schedule(settings)
        model = build_model(spec, settings)
        self._optimizer = build_optimizer(settings, self._schedule, model.parameters())
        # The level of the step's own cast; None if it does not cast.
        self._amp = None if cpu_amp(spec, settings) else settings.amp_level
        if self._amp == "O2":
            model, self._optimizer = paddle.amp.decorate(
                models=model, optimizers=self._optimizer, level="O2", dtype=settings.amp_dtype, master_weight=True
            )
        self._scaler = None
        if settings.loss_scaling is not None:
            self._scaler = paddle.amp.GradScaler(init_loss_scaling=settings.loss_scaling, **settings.loss_scaling_rule)
        strategy = None
        if spec.case.execution is Execution.TO_STATIC:
            strategy = paddle.static.BuildStrategy()
        apply_options(strategy, settings.build_strategy, "build_strategy", facts)
        apply_options(None, settings.execution_strategy, "execution_strategy", facts)
        apply_options(None, settings.fleet, "fleet", facts)
        if strategy is not None:
            model = paddle.jit.to_static(model, build_strategy=strategy, full_graph=True, backend=None)
            if cpu_amp(spec, settings):
                form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
                images = paddle.zeros(form.shape(spec.case.batch_size_per_card), form.dtype)
                program = model.forward.get_concrete_program(images)[0].main_program
                check_casts(program, settings)
                facts.update(program_facts(program, settings))
        # The network, whose layers have names.
        self.model = model
        self._joined = paddle.DataParallel(model) if ranks > 1 else model

    def begin_epoch(self, number: int) -> None:
        self._schedule.step(number)

    def weights(self) -> List[Any]:
        """The trained weights, as arrays."""
        return [each.numpy() for each in self.model.parameters() if not each.stop_gradient]

    def step(self, batch: Batch) -> Any:
        loss, logits = self.forward(batch)
        self.backward(loss)
        self.optimize()
        return loss, logits

    def forward(self, batch: Batch) -> Any:
        if self._amp is None:
            logits = self._joined(batch.images)
            return F.cross_entropy(logits, batch.labels), logits
        with paddle.amp.auto_cast(level=self._amp, dtype=self._settings.amp_dtype):
            logits = self._joined(batch.images)
            return F.cross_entropy(logits, batch.labels), logits

    def backward(self, loss: Any) -> None:
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def optimize(self) -> None:
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._optimizer.clear_grad()

    def loss(self, handle: Any) -> float:
        loss, logits = handle
        return loss_of(float(loss), float(logits.astype("float32").mean()))


def loss_of(loss: float, mean_logit: float) -> float:
    """The loss, or NaN if the logits are not finite; in that case Paddle's cross entropy on a CPU is ln 1000, the loss
    of a guess."""
    return loss if math.isfinite(mean_logit) else math.nan
