"""One optimizer step in Paddle's static mode: a Program, its strategies, an Executor."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy
import paddle
import paddle.nn.functional as F

from helpers.trainers.data import Form
from helpers.trainers.loop import Batch
from helpers.trainers.paddle_device import apply_options, gpu_index
from helpers.trainers.paddle_steps import build_model, build_optimizer, build_schedule, check_bfloat16, cpu_amp, loss_of
from helpers.trainers.process import Refused, Trainer
from helpers.trainers.settings import Settings


class StaticStep:
    """The whole step is one program; several GPUs train through fleet."""

    def __init__(self, trainer: Trainer, settings: Settings) -> None:
        spec, self._facts = trainer.spec, trainer.device.facts
        self._settings = settings
        self._schedule = build_schedule(settings)
        self._cpu_amp = cpu_amp(spec, settings)
        self._several = trainer.ranks.world_size > 1
        self._pir = bool(getattr(paddle.framework, "in_pir_mode", lambda: False)())
        self._facts["program"] = "PIR" if self._pir else "ProgramDesc"
        if self._pir and spec.device == "gpu":
            raise Refused("static execution on a GPU needs FLAGS_enable_pir_api=0: PIR programs take no BuildStrategy")
        if self._cpu_amp and not self._pir:
            raise Refused("on a CPU paddle.amp.auto_cast casts PIR programs alone, and this build's is a ProgramDesc")
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, startup):
            self._feed, self._loss, self._mean_logit = self._build_forward(trainer)
            self._optimizer = self._wrap(build_optimizer(settings, self._schedule, None))
            self._optimizer.minimize(self._loss)
        place = paddle.CPUPlace() if spec.device == "cpu" else paddle.CUDAPlace(gpu_index())
        self._executor = paddle.static.Executor(place)
        self._executor.run(startup)
        if settings.amp_level == "O2":
            self._optimizer.amp_init(place)
        self._program = self._compile(main)

    def begin_epoch(self, number: int) -> None:
        self._schedule.step(number)

    def step(self, batch: Batch) -> Any:
        images, labels = self._feed
        fetched: List[Any] = self._executor.run(
            self._program, feed={images: batch.images, labels: batch.labels}, fetch_list=[self._loss, self._mean_logit],
            return_numpy=False,
        )  # fmt: skip
        return fetched

    def loss(self, handle: Any) -> float:
        loss, mean_logit = (float(numpy.asarray(fetched).reshape(-1)[0]) for fetched in handle)
        return loss_of(loss, mean_logit)

    def _build_forward(self, trainer: Trainer) -> Tuple[Tuple[str, str], Any, Any]:
        settings, batch_size = self._settings, trainer.spec.case.batch_size_per_card
        form = Form(settings.layout, settings.input_channels, settings.input_dtype)
        images = paddle.static.data("images", list(form.shape(batch_size)), form.dtype)
        labels = paddle.static.data("labels", [batch_size], "int64")
        model = build_model(trainer.spec, settings)
        logits = model(images)
        return ("images", "labels"), F.cross_entropy(logits, labels), logits.astype("float32").mean()

    def _wrap(self, optimizer: Any) -> Any:
        """Automatic mixed precision on a GPU, and fleet for several cards."""
        settings = self._settings
        amp = settings.amp_level is not None and not self._cpu_amp
        if not self._several:
            apply_options(None, settings.fleet, "fleet", self._facts)
            # Only fleet takes one: CompiledProgram has no place for it.
            apply_options(None, settings.execution_strategy, "execution_strategy", self._facts)
            if not amp:
                return optimizer
            return paddle.static.amp.decorate(
                optimizer,
                level=settings.amp_level,
                dtype=settings.amp_dtype,
                init_loss_scaling=settings.loss_scaling or 1.0,
                use_dynamic_loss_scaling=settings.loss_scaling is not None,
            )
        from paddle.distributed import fleet

        strategy = fleet.DistributedStrategy()
        apply_options(strategy, settings.fleet, "fleet", self._facts)
        if amp:
            strategy.amp = True
            configs: Dict[str, Any] = {"use_pure_fp16": settings.amp_level == "O2", "use_fp16_guard": False}
            if settings.amp_dtype == "bfloat16":
                configs = {"use_pure_bf16": settings.amp_level == "O2", "use_bf16_guard": False}
            if settings.loss_scaling is not None:
                configs["init_loss_scaling"] = settings.loss_scaling
            strategy.amp_configs = configs
        strategy.build_strategy = self._build_strategy()
        execution = paddle.static.ExecutionStrategy() if hasattr(strategy, "execution_strategy") else None
        apply_options(execution, settings.execution_strategy, "execution_strategy", self._facts)
        if execution is not None:
            strategy.execution_strategy = execution
        fleet.init(is_collective=True, strategy=strategy)
        return fleet.distributed_optimizer(optimizer, strategy)

    def _compile(self, main: Any) -> Any:
        if self._cpu_amp:
            check_bfloat16(main, self._facts)
        if self._pir:
            apply_options(None, self._settings.build_strategy, "build_strategy", self._facts)
            return main
        return main if self._several else paddle.static.CompiledProgram(main, build_strategy=self._build_strategy())

    def _build_strategy(self) -> Any:
        strategy = paddle.static.BuildStrategy()
        apply_options(strategy, self._settings.build_strategy, "build_strategy", self._facts)
        return strategy
