"""The same step as a PIR program, for a build of Paddle that makes no old program of it; not the published program.

PIR has no fleet: mixed precision is cast while the program is built, gradients of several cards are joined and summed
by the program's own all-reduces, Momentum updates each weight in an operator of its own, and of the fusions there is
batch norm + addition + ReLU, by a pass that is called explicitly.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Tuple

import paddle

from helpers.trainers.common.process import Refused
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.device import apply_options
from helpers.trainers.paddle.fleet_program import amp_options
from helpers.trainers.paddle.graph import StaticProgram, in_pir, inputs_of, loss_with_mean_logit
from helpers.trainers.paddle.settings import PaddleSettings, program_facts
from helpers.trainers.paddle.steps import build_model, build_optimizer, build_schedule, check_casts

# fleet's own size of a joined gradient, in MiB, where the settings have none.
_JOINED_MIB = 32
_PASS_FACT = "pir_pass.apply_bn_add_act_pass"


def pir_program(spec: JobSpec, settings: PaddleSettings, facts: Dict[str, str]) -> StaticProgram:
    """The PIR program of one rank. If it builds, this process makes PIR programs from then on; else it is as it was."""
    if in_pir():
        return _build(spec, settings, facts)
    guard = paddle.pir_utils.IrGuard()
    guard.__enter__()
    try:
        return _build(spec, settings, facts)
    except Exception as error:
        guard.__exit__(None, None, None)
        for_cpus = paddle.version.cuda_version == "False"
        if for_cpus and settings.amp_dtype == "float16" and "data type error" in str(error):
            raise Refused(
                "PIR allows an operator the types of the build's own kernels, and one for CPUs has none for float16: "
                "only a build for GPUs shows whether it makes this program"
            ) from error
        raise


def _build(spec: JobSpec, settings: PaddleSettings, facts: Dict[str, str]) -> StaticProgram:
    for kind in ("build_strategy", "execution_strategy", "fleet"):
        apply_options(None, getattr(settings, kind), kind, facts)
    schedule, cards = build_schedule(settings), spec.case.cards
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        images, labels = inputs_of(spec, settings)
        model = build_model(spec, settings)
        optimizer = build_optimizer(settings, schedule, None)
        if cards > 1:
            optimizer.backward = _summed(optimizer.backward, settings)
        logits, optimizer = _forward(model, optimizer, images, settings)
        loss, mean_logit = loss_with_mean_logit(logits, labels, settings)
        # Within minimize, which is under no_grad, the program would silently get no backward part.
        own_share = loss * (1.0 / cards) if cards > 1 else loss
        if settings.loss_scaling is None:
            optimizer.minimize(own_share)
        else:
            scaler = paddle.amp.GradScaler(**amp_options(settings))
            scaler.minimize(optimizer, scaler.scale(own_share), startup_program=startup)
    main = _fused(main, settings, facts)
    facts.update(program_facts(main, settings))
    facts["loss_dtype"] = str(loss.dtype)
    check_casts(main, settings)
    _check_copies(main, settings, facts)
    return StaticProgram(main, startup, schedule, optimizer, loss, mean_logit)


def _forward(model: Any, optimizer: Any, images: Any, settings: PaddleSettings) -> Tuple[Any, Any]:
    """The logits, in float32, and the optimizer with its master copies."""
    level, dtype = settings.amp_level, settings.amp_dtype
    if level is None:
        return model(images), optimizer
    copies = True if level == "O2" else None
    model, optimizer = paddle.amp.decorate(
        model, optimizer, level=level, dtype=dtype, master_weight=copies, master_grad=False
    )
    with paddle.amp.auto_cast(level=level, dtype=dtype, use_promote=True):
        logits = model(images)
    return logits.astype("float32"), optimizer


def _fused(main: Any, settings: PaddleSettings, facts: Dict[str, str]) -> Any:
    if not settings.build_strategy.get("fuse_bn_add_act_ops"):
        return main
    fuse = getattr(paddle.base.libpaddle.pir, "apply_bn_add_act_pass", None)
    facts[_PASS_FACT] = "True" if fuse else "not applied: this build has no such pass"
    return fuse(main) if fuse else main


def _check_copies(main: Any, settings: PaddleSettings, facts: Dict[str, str]) -> None:
    if settings.amp_level != "O2":
        return
    weights = sum("16" in str(each.dtype) for each in main.global_block().all_parameters() if each.trainable)
    updates = [op for op in main.global_block().ops if op.name().startswith("pd_op.momentum")]
    copies = sum(bool(op.attrs()["multi_precision"]) for op in updates)
    if copies != weights or not weights:
        raise Refused(f"{copies} float32 master copies of {weights} weights in {settings.amp_dtype}")
    facts["master_copies"] = str(copies)


def _summed(backward: Callable[..., Any], settings: PaddleSettings) -> Callable[..., Any]:
    """``backward`` with an all-reduce of each group of gradients of one type, joined up to the settings' size."""
    limit = int(settings.fleet.get("fuse_grad_size_in_MB", _JOINED_MIB)) * 2**20

    def all_reduced(*arguments: Any, **named: Any) -> Any:
        pairs = backward(*arguments, **named)
        new: Dict[int, Any] = {}
        for group in _groups([gradient for _, gradient in pairs], limit):
            flat = [pairs[index][1].reshape([-1]) for index in group]
            whole = paddle.concat(flat) if len(flat) > 1 else flat[0]
            paddle.distributed.all_reduce(whole)
            parts = paddle.split(whole, [int(each.shape[0]) for each in flat]) if len(flat) > 1 else [whole]
            new.update({index: part.reshape(pairs[index][1].shape) for index, part in zip(group, parts)})
        return [(weight, new[index]) for index, (weight, _) in enumerate(pairs)]

    return all_reduced


def _groups(gradients: List[Any], limit: int) -> List[List[int]]:
    """The gradients' places in groups of one type, each of at most ``limit`` bytes unless it has a single gradient."""
    groups: List[List[int]] = []
    open_groups: Dict[str, Tuple[int, List[int]]] = {}
    for index, gradient in enumerate(gradients):
        dtype = str(gradient.dtype)
        size = 2 if "16" in dtype else 4
        for length in gradient.shape:
            size *= int(length)
        used, group = open_groups.get(dtype, (limit, []))
        if used + size > limit:
            used, group = 0, []
            groups.append(group)
        group.append(index)
        open_groups[dtype] = (used + size, group)
    return groups


def connect_ranks(device: str, rank: int, world_size: int) -> None:
    """Make the communicator of a PIR program's all-reduces, which fleet makes for an old program: NCCL's on GPUs,
    gloo's on CPUs. Every rank must call it."""
    core = paddle.base.core
    if device == "gpu":
        from paddle.distributed.collective import _init_parallel_env

        _init_parallel_env("nccl")
        return
    os.environ.setdefault("MASTER_ADDR", os.environ["PADDLE_MASTER"].rpartition(":")[0])
    os.environ.setdefault("MASTER_PORT", os.environ["PADDLE_MASTER"].rpartition(":")[2])
    core.CommContextManager.create_gloo_comm_context(core.create_or_get_global_tcp_store(), "0", rank, world_size)
