"""The whole training step as one static program (model, loss, optimizer, AMP, strategies of several cards), and its
execution.

On a GPU it is the published program (fleet_program.py), as far as the installed build still makes it: PaddleClas
(ppcls/static/program.py) and FleetX use fleet for every program, even on one card, where fleet applies the
BuildStrategy's passes and inserts no communication. PaddleClas decorates the optimizer for AMP before it is passed to
fleet, with the model under ``fp16_guard`` and the loss outside of it, so that even pure float16 computes the loss in
float32. FleetX sets ``strategy.amp``. Which kind of program is made is found by trying: the first that builds, never
chosen by a version; and it is said what the others lack. A fault of a package beside Paddle is no fault of the build,
and ends the search.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple, TypeVar

import numpy
import paddle

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import Refused, Trainer
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import PROGRAM_FACT, ProgramKind
from helpers.trainers.paddle.auto import switch_facts, through_switch
from helpers.trainers.paddle.companions import refuse_companion, told
from helpers.trainers.paddle.device import apply_options, place_of
from helpers.trainers.paddle.fleet_program import any_of_its_operator, through_fleet
from helpers.trainers.paddle.graph import StaticProgram, in_pir, inputs_of, loss_with_mean_logit
from helpers.trainers.paddle.pir_program import connect_ranks, pir_program
from helpers.trainers.paddle.settings import PaddleSettings, amp_faults, program_facts
from helpers.trainers.paddle.steps import build_model, build_optimizer, build_schedule, check_casts, cpu_amp, loss_of

# The fact with the errors of the kinds that were tried before.
NOT_BUILT_FACT = "program_not_built"

Built = TypeVar("Built")


def build_program(spec: JobSpec, settings: PaddleSettings, facts: Dict[str, str]) -> StaticProgram:
    """Build the program of one of the ``spec.case.cards`` ranks, in static mode. ``facts`` are filled with its
    properties, its kind among them.

    Raises Refused if this build cannot make such a program, ProgramError with Paddle's own errors if all kinds fail,
    and LaunchError if a package beside Paddle is at fault.
    """
    if spec.device != "gpu":
        return _cpu_program(spec, settings, facts)
    if settings.amp_through == "fleet" and settings.amp_dtype == "bfloat16":
        raise Refused("fleet's strategy.amp casts to float16 alone; amp_through decorate casts to bfloat16")
    return first_that_builds(_makers(spec, settings), facts)


class ProgramError(Exception):
    """This build of Paddle makes no kind of program of the case; the text has Paddle's own error for each."""


def first_that_builds(
    makers: Sequence[Tuple[ProgramKind, Callable[[Dict[str, str]], Built]]], facts: Dict[str, str]
) -> Built:
    """The program of the first maker that raises nothing. A maker fills in facts; ``facts`` get those of this one, its
    kind, and the errors of those before.

    Raises ProgramError if none builds, Refused if all refuse, and LaunchError if a package beside Paddle is at fault.
    """
    errors: List[str] = []
    refusals: List[str] = []
    last: Optional[Exception] = None
    for kind, make in makers:
        own: Dict[str, str] = {}
        try:
            built = make(own)
        except Exception as error:  # noqa: BLE001 - a build lacks parts in as many ways as there are errors
            refuse_companion(error)
            refusals += [str(error)] if isinstance(error, Refused) else []
            errors.append(f"{kind.value}: {told(error)}")
            last = error
            continue
        facts.update(own)
        facts[PROGRAM_FACT] = kind.value
        if errors:
            facts[NOT_BUILT_FACT] = "; ".join(errors)
        return built
    if len(refusals) == len(errors):
        raise Refused("; ".join(dict.fromkeys(refusals))) from last
    raise ProgramError(f"Paddle {paddle.__version__} builds no program of this case: {'; '.join(errors)}") from last


Maker = Tuple[ProgramKind, Callable[[Dict[str, str]], StaticProgram]]


def _makers(spec: JobSpec, settings: PaddleSettings) -> Tuple[Maker, ...]:
    old: Maker = (ProgramKind.OLD, lambda facts: _fleet_program(spec, settings, facts))
    if spec.case.auto:
        return (old,)
    pir: Maker = (ProgramKind.PIR, lambda facts: pir_program(spec, settings, facts))
    if in_pir():
        # The job's variables ask for it (FLAGS_enable_pir_api=1).
        return (pir,)
    shimmed: Maker = (
        ProgramKind.OLD_WITH_SHIM,
        lambda facts: _fleet_program(spec, settings, facts, any_of_its_operator()),
    )
    return (old, shimmed, pir)


def _fleet_program(
    spec: JobSpec, settings: PaddleSettings, facts: Dict[str, str], shim: Optional[ContextManager[None]] = None
) -> StaticProgram:
    around = shim or contextlib.nullcontext()
    schedule = build_schedule(settings)
    main, startup = paddle.static.Program(), paddle.static.Program()
    with around, paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss, mean_logit = _forward(spec, settings)
        optimizer = build_optimizer(settings, schedule, None, merged=settings.use_multi_tensor)
        optimizer = through_switch(optimizer) if spec.case.auto else through_fleet(optimizer, settings, facts)
        optimizer.minimize(loss)
    facts.update(switch_facts() if spec.case.auto else {})
    _note(main, loss, settings, facts)
    if not spec.case.auto and (faults := amp_faults(main, startup, settings, facts)):
        raise Refused(f"this build of Paddle made another mixed precision of the program: {'; '.join(faults)}")
    casts = settings.amp_level == "O2"
    return StaticProgram(main, startup, schedule, optimizer, loss, mean_logit, casts_weights=casts)


def _cpu_program(spec: JobSpec, settings: PaddleSettings, facts: Dict[str, str]) -> StaticProgram:
    pir = in_pir()
    facts[PROGRAM_FACT] = (ProgramKind.PIR if pir else ProgramKind.OLD).value
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
        optimizer = build_optimizer(settings, schedule, None, merged=settings.use_multi_tensor and not pir)
        optimizer.minimize(loss)
    if settings.use_multi_tensor and pir:
        facts["use_multi_tensor"] = "not applied: PIR has an operator for each weight"
    build_strategy = None if pir else paddle.static.BuildStrategy()
    apply_options(build_strategy, settings.build_strategy, "build_strategy", facts)
    apply_options(None, settings.execution_strategy, "execution_strategy", facts)
    apply_options(None, settings.fleet, "fleet", facts)
    _note(main, loss, settings, facts)
    return StaticProgram(main, startup, schedule, optimizer, loss, mean_logit, build_strategy)


def _note(main: Any, loss: Any, settings: PaddleSettings, facts: Dict[str, str]) -> None:
    facts.update(program_facts(main, settings))
    facts["loss_dtype"] = str(loss.dtype)
    check_casts(main, settings)


def _forward(spec: JobSpec, settings: PaddleSettings) -> Tuple[Any, Any]:
    images, labels = inputs_of(spec, settings)
    pure = settings.amp_level == "O2" and settings.amp_through != "auto_cast"
    with paddle.static.amp.fp16_guard() if pure else contextlib.nullcontext():
        logits = build_model(spec, settings)(images)
    return loss_with_mean_logit(logits, labels, settings)


class StaticStep:
    """The whole step as one program; on GPUs through fleet."""

    def __init__(self, trainer: Trainer, settings: PaddleSettings) -> None:
        spec = trainer.spec
        built = build_program(spec, settings, trainer.device.facts)
        if in_pir() and trainer.ranks.world_size > 1:
            connect_ranks(spec.device, trainer.ranks.rank, trainer.ranks.world_size)
        place = place_of(spec)
        self._built = built
        self._executor = paddle.static.Executor(place)
        self._executor.run(built.startup)
        if built.casts_weights:
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
