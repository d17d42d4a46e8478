"""The whole training step as one static program (model, loss, optimizer, AMP, fleet's strategies), and its execution.

On a GPU it is the published program: PaddleClas (ppcls/static/program.py) and FleetX use fleet for every program, even
on one card, where fleet applies the BuildStrategy's passes and inserts no communication. PaddleClas decorates the
optimizer for AMP before it is passed to fleet, with the model under ``fp16_guard`` and the loss outside of it, so that
even pure float16 computes the loss in float32. FleetX sets ``strategy.amp``.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any, Dict, List

import numpy
import paddle
import paddle.nn.functional as F

from helpers.trainers.common.images import Form
from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import Refused, Trainer
from helpers.trainers.common.settings import LOSS_SCALING_RULE
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.auto import switch_facts, through_switch
from helpers.trainers.paddle.device import apply_options, place_of
from helpers.trainers.paddle.settings import PaddleSettings, amp_faults, program_facts
from helpers.trainers.paddle.steps import build_model, build_optimizer, build_schedule, check_casts, cpu_amp, loss_of

# Paddle needs a rule even without loss scaling.
_UNUSED_RULE = dict(zip(LOSS_SCALING_RULE, (1000, 2, 2.0, 0.8)))


@dataclass(frozen=True)
class StaticProgram:
    """The programs of one rank, with their optimizer and the values to fetch."""

    main: Any
    startup: Any
    schedule: Any
    optimizer: Any
    # The values that are fetched at each step.
    loss: Any
    mean_logit: Any
    # For a CompiledProgram; None if fleet has applied it, or for a PIR program, which takes none.
    build_strategy: Any


def in_pir() -> bool:
    return bool(getattr(paddle.framework, "in_pir_mode", lambda: False)())


def build_program(spec: JobSpec, settings: PaddleSettings, facts: Dict[str, str]) -> StaticProgram:
    """Build the program of one of the ``spec.case.cards`` ranks, in static mode. ``facts`` are filled with its
    properties.

    Raises Refused if this build cannot make such a program.
    """
    on_gpu, pir = spec.device == "gpu", in_pir()
    facts["program"] = "PIR" if pir else "ProgramDesc"
    if pir and on_gpu:
        raise Refused("static execution on a GPU needs FLAGS_enable_pir_api=0: PIR programs take no BuildStrategy")
    if cpu_amp(spec, settings) and not pir:
        raise Refused(
            "on a CPU paddle.amp.auto_cast casts PIR programs alone, and this build's is a ProgramDesc; "
            "paddle.static.amp.bf16 casts those, to convolutions that oneDNN has no training kernel for in Paddle 2.6 "
            '("ConvOneDNNHandlerT" is not implemented for data type `bfloat16`)'
        )
    schedule = build_schedule(settings)
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss, mean_logit = _forward(spec, settings)
        optimizer = build_optimizer(settings, schedule, None)
        if on_gpu:
            optimizer = through_switch(optimizer) if spec.case.auto else _through_fleet(optimizer, settings, facts)
        optimizer.minimize(loss)
    if on_gpu and spec.case.auto:
        facts.update(switch_facts())
    build_strategy = None
    if not on_gpu:
        build_strategy = None if pir else paddle.static.BuildStrategy()
        apply_options(build_strategy, settings.build_strategy, "build_strategy", facts)
        apply_options(None, settings.execution_strategy, "execution_strategy", facts)
        apply_options(None, settings.fleet, "fleet", facts)
    facts.update(program_facts(main, settings))
    facts["loss_dtype"] = str(loss.dtype)
    check_casts(main, settings)
    if on_gpu and not spec.case.auto and (faults := amp_faults(main, startup, settings, facts)):
        raise Refused(f"this build of Paddle made another mixed precision of the program: {'; '.join(faults)}")
    return StaticProgram(main, startup, schedule, optimizer, loss, mean_logit, build_strategy)


def parameters_of(main: Any) -> int:
    """How many parameters the program's optimizer trains."""
    holder = main.global_block() if hasattr(main.global_block(), "all_parameters") else main
    return sum(math.prod(map(int, each.shape)) for each in holder.all_parameters() if each.trainable)


def _forward(spec: JobSpec, settings: PaddleSettings) -> Any:
    batch_size = spec.case.batch_size_per_card
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    images = paddle.static.data("images", list(form.shape(batch_size)), form.dtype)
    labels = paddle.static.data("labels", [batch_size], "int64")
    pure = settings.amp_level == "O2" and settings.amp_through != "auto_cast"
    with paddle.static.amp.fp16_guard() if pure else contextlib.nullcontext():
        logits = build_model(spec, settings)(images)
    loss = F.cross_entropy(logits, labels)
    for k in settings.accuracy_top_k:
        paddle.metric.accuracy(logits, labels.reshape([-1, 1]), k=k)
    return loss, logits.astype("float32").mean()


def _through_fleet(optimizer: Any, settings: PaddleSettings, facts: Dict[str, str]) -> Any:
    from paddle.distributed import fleet

    strategy = fleet.DistributedStrategy()
    apply_options(strategy, settings.fleet, "fleet", facts)
    build_strategy = paddle.static.BuildStrategy()
    apply_options(build_strategy, settings.build_strategy, "build_strategy", facts)
    strategy.build_strategy = build_strategy
    # Paddle removed ExecutionStrategy together with ParallelExecutor.
    execution = paddle.static.ExecutionStrategy() if hasattr(paddle.static, "ExecutionStrategy") else None
    apply_options(execution, settings.execution_strategy, "execution_strategy", facts)
    if execution is not None and settings.execution_strategy:
        strategy.execution_strategy = execution
    if settings.amp_through == "decorate":
        optimizer = _decorate(optimizer, settings)
    elif settings.amp_through == "fleet":
        strategy.amp = True
        strategy.amp_configs = _fleet_amp_options(settings)
    fleet.init(is_collective=True)
    return fleet.distributed_optimizer(optimizer, strategy)


def _decorate(optimizer: Any, settings: PaddleSettings) -> Any:
    pure, options = settings.amp_level == "O2", _amp_options(settings)
    # Paddle has two functions called decorate behind one name, and keywords may select the wrong one. Called by
    # position, with a float as third argument, it is the one that PaddleClas uses; the other has different defaults.
    values = [None, *(options[name] for name in ("init_loss_scaling", *LOSS_SCALING_RULE, "use_dynamic_loss_scaling"))]
    return paddle.static.amp.decorate(optimizer, *values, pure, pure, settings.amp_dtype == "bfloat16")


def _amp_options(settings: PaddleSettings) -> Dict[str, Any]:
    return {
        "init_loss_scaling": float(settings.loss_scaling or 1.0),
        "use_dynamic_loss_scaling": settings.loss_scaling is not None,
        **(settings.loss_scaling_rule or _UNUSED_RULE),
    }


def _fleet_amp_options(settings: PaddleSettings) -> Dict[str, Any]:
    if settings.amp_dtype == "bfloat16":
        raise Refused("fleet's strategy.amp casts to float16 alone; amp_through decorate casts to bfloat16")
    pure = settings.amp_level == "O2"
    return {**_amp_options(settings), "use_pure_fp16": pure, "use_fp16_guard": pure}


class StaticStep:
    """The whole step as one program; on GPUs through fleet."""

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
            feed={"images": batch.images, "labels": batch.labels},
            fetch_list=[built.loss, built.mean_logit],
            return_numpy=False,
        )
        return fetched

    def weights(self) -> List[Any]:
        """The trained weights, as arrays."""
        scope, block = paddle.static.global_scope(), self._built.main.global_block()
        named = (block if hasattr(block, "all_parameters") else self._built.main).all_parameters()
        return [numpy.array(scope.find_var(each.name).get_tensor()) for each in named if each.trainable]

    def loss(self, handle: Any) -> float:
        loss, mean_logit = (float(numpy.asarray(fetched).reshape(-1)[0]) for fetched in handle)
        return loss_of(loss, mean_logit)
