"""The published program: an old one (ProgramDesc), made by fleet, as PaddleClas (ppcls/static/program.py) and FleetX
make theirs; and the one call that Paddle 3.2 and 3.3 no longer build in such a program, made of its operator."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator

import paddle

from helpers.trainers.common.settings import LOSS_SCALING_RULE
from helpers.trainers.paddle.device import apply_options
from helpers.trainers.paddle.settings import PaddleSettings

# Paddle needs a rule even without loss scaling.
_UNUSED_RULE = dict(zip(LOSS_SCALING_RULE, (1000, 2, 2.0, 0.8)))


def through_fleet(optimizer: Any, settings: PaddleSettings, facts: Dict[str, str]) -> Any:
    """The optimizer with AMP and fleet's strategies; ``facts`` say which options this build knows."""
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
        pure = settings.amp_level == "O2"
        strategy.amp_configs = {**amp_options(settings), "use_pure_fp16": pure, "use_fp16_guard": pure}
    fleet.init(is_collective=True)
    return fleet.distributed_optimizer(optimizer, strategy)


def _decorate(optimizer: Any, settings: PaddleSettings) -> Any:
    pure, options = settings.amp_level == "O2", amp_options(settings)
    # Paddle has two functions called decorate behind one name, and keywords may select the wrong one. Called by
    # position, with a float as third argument, it is the one that PaddleClas uses; the other has different defaults.
    values = [None, *(options[name] for name in ("init_loss_scaling", *LOSS_SCALING_RULE, "use_dynamic_loss_scaling"))]
    return paddle.static.amp.decorate(optimizer, *values, pure, pure, settings.amp_dtype == "bfloat16")


def amp_options(settings: PaddleSettings) -> Dict[str, Any]:
    """Loss scaling, by the names of Paddle's arguments."""
    return {
        "init_loss_scaling": float(settings.loss_scaling or 1.0),
        "use_dynamic_loss_scaling": settings.loss_scaling is not None,
        **(settings.loss_scaling_rule or _UNUSED_RULE),
    }


@contextlib.contextmanager
def any_of_its_operator() -> Iterator[None]:
    """Within, ``paddle.any`` appends ``reduce_any`` to an old program, as Paddle before 3.2 does by itself; AMP calls
    it to join what the gradients' checks found."""
    own = paddle.any
    paddle.any = _any
    try:
        yield
    finally:
        paddle.any = own


def _any(x: Any, axis: None = None, keepdim: bool = False, name: Any = None) -> Any:
    from paddle.base.layer_helper import LayerHelper

    if axis is not None or keepdim:
        raise NotImplementedError("the shimmed paddle.any reduces over all axes alone, as AMP does")
    helper = LayerHelper("any", name=name)
    found = helper.create_variable_for_type_inference("bool")
    attributes = {"dim": [0], "keep_dim": False, "reduce_all": True}
    helper.append_op(type="reduce_any", inputs={"X": x}, outputs={"Out": found}, attrs=attributes)
    return found
