"""Automatic parallelism as the published auto table was measured: with the switch ``DistributedStrategy.auto``.

It turns on every strategy that fleet knows, and keeps the longest chain of them that fits together.
paddlepaddle-gpu 2.6.2 and paddlepaddle 3.3.1 still do that. On 1 card the chain is tensor parallelism of degree 1, AMP
and LARS. On several cards it is sharding, ASP, AMP and LARS; the sharding is always over 8 cards, so ``minimize`` fails
on any other number, and such a case is refused.

Nothing here depends on a version number: each build is examined for what it supports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple

import paddle

from helpers.trainers.common.process import Refused
from helpers.trainers.contract.case import Case, Execution, Precision
from helpers.trainers.contract.job import JobSpec

SWITCH_NAME = "DistributedStrategy.auto"
FACT = "auto_parallel"


@dataclass(frozen=True)
class Switch:
    """The effect of ``DistributedStrategy.auto`` in this build."""

    # Its strategies, outermost first.
    chain: Tuple[str, ...]
    # Why it cannot train the case; None if it can.
    obstacle: Optional[str]


def start(spec: JobSpec, facts: Dict[str, str]) -> None:
    """Add the switch's choice to ``facts``, and prepare the process for it. Must be called before any program is made.

    Raises Refused if the switch does not train the case with this device and build.
    """
    if spec.case.execution is not Execution.STATIC:
        raise Refused(f"automatic parallelism is {SWITCH_NAME}, the switch of a static program")
    switch = examine_switch(spec.case, spec.device)
    if switch.obstacle is not None:
        raise Refused(f"{SWITCH_NAME} cannot be used: {switch.obstacle}")
    facts[FACT] = _switch_fact(switch.chain)
    _use_program_desc()


def examine_switch(case: Case, device: str) -> Switch:
    """The effect of ``DistributedStrategy.auto`` in this build's fleet, for the case's number of ranks.

    It asks fleet's own factory and compiler, as ``Fleet.minimize`` does, but without a program. The mode of execution
    stays as it was.
    """
    if device != "gpu":
        return Switch((), "fleet's program communicates among GPUs alone")
    try:
        chain, degrees, amp = _chain(case.cards)
    except (ImportError, AttributeError) as error:
        return Switch((), f"this build's fleet has it no more ({error})")
    if not chain:
        return Switch((), "this build's fleet ignores it")
    return Switch(chain, _obstacle(case, chain, degrees, amp))


def _obstacle(case: Case, chain: Tuple[str, ...], degrees: Dict[str, int], amp: bool) -> Optional[str]:
    cards = math.prod(degrees.values())
    if "ShardingOptimizer" in chain and cards != case.cards:
        factors = ", ".join(f"{name} {degree}" for name, degree in degrees.items())
        return f"its sharding is made for {cards} cards ({factors}), not for {case.cards}"
    if case.precision is not Precision.UNSTATED:
        precision = "mixed precision" if amp else "float32"
        return f"it chooses the precision itself ({precision}), and the case names {case.precision.value}"
    return None


def _chain(ranks: int) -> Tuple[Tuple[str, ...], Dict[str, int], bool]:
    """The strategies that the switch would apply, the degrees of its sharding, and whether AMP is one of them."""
    from paddle.distributed import fleet
    from paddle.distributed.fleet.base import distributed_strategy
    from paddle.distributed.fleet.base.meta_optimizer_factory import MetaOptimizerFactory
    from paddle.distributed.fleet.base.strategy_compiler import StrategyCompiler

    # A variable of Paddle's module says whether any strategy besides ``auto`` was ever set. The examination sets some,
    # so the variable is restored.
    untouched = distributed_strategy.non_auto_func_called
    dynamic = paddle.in_dynamic_mode()
    # In static mode an optimizer needs no parameters.
    paddle.enable_static()
    try:
        strategy = fleet.DistributedStrategy()
        strategy.auto = True
        if not strategy._is_strict_auto():
            return (), {}, False
        role = fleet.UserDefinedRoleMaker(
            is_collective=True, init_gloo=False, current_id=0, role=fleet.Role.WORKER, worker_num=ranks,
            worker_endpoints=[f"127.0.0.1:{port}" for port in range(6170, 6170 + ranks)],
        )  # fmt: skip
        momentum = paddle.optimizer.Momentum(momentum=0.9, weight_decay=1e-4)
        # ParameterServerOptimizer is left out: it needs a program, and never applies if all ranks train.
        candidates = MetaOptimizerFactory()._get_valid_meta_optimizers(momentum, ["ParameterServerOptimizer"])
        for candidate in candidates:
            candidate._enable_strategy(strategy, {})
            candidate._set_basic_info(None, role, momentum, strategy)
        usable = [each for each in candidates if each._can_apply()]
        compiler = StrategyCompiler()
        compiler.generate_optimizer(
            None, role, momentum, strategy,
            [each for each in usable if not each._is_graph_out()], [each for each in usable if each._is_graph_out()],
        )  # fmt: skip
        chain = (*compiler._get_applied_meta_list(), *compiler._get_applied_graph_list())
        degrees = {key: int(value) for key, value in strategy.sharding_configs.items() if key.endswith("_degree")}
        return chain, degrees, "AMPOptimizer" in chain
    finally:
        distributed_strategy.non_auto_func_called = untouched
        if dynamic:
            paddle.disable_static()


def through_switch(optimizer: Any) -> Any:
    """The optimizer as fleet wraps it under the switch. No other strategy may be set, or fleet ignores the switch."""
    from paddle.distributed import fleet

    strategy = fleet.DistributedStrategy()
    strategy.auto = True
    fleet.init(is_collective=True, strategy=strategy)
    if not strategy._is_strict_auto():
        raise Refused(f"{SWITCH_NAME} is ignored: something else was set beside it")
    return fleet.distributed_optimizer(optimizer, strategy)


def switch_facts() -> Dict[str, str]:
    """The header's facts on fleet's choice; known after ``minimize``."""
    from paddle.distributed import fleet

    chosen = fleet._final_strategy()
    facts = {FACT: _switch_fact(fleet._get_applied_meta_list()), "precision": "float32", "loss_scaling": "none"}
    if chosen.amp:
        scaling = chosen.amp_configs
        facts["precision"] = f"AMP {'O2' if scaling['use_pure_fp16'] else 'O1'} in float16, as the switch chose"
        kind = "dynamic" if scaling["use_dynamic_loss_scaling"] else "static"
        facts["loss_scaling"] = f"{kind} from {scaling['init_loss_scaling']}, as the switch chose"
    if chosen.lars:
        facts["optimizer"] = f"LARS in the place of Momentum, as the switch chose: {chosen.lars_configs}"
    return facts


def _switch_fact(chain: Sequence[str]) -> str:
    return f"{SWITCH_NAME} (chose: {', '.join(chain)})"


def _use_program_desc() -> None:
    """From now on this process makes ProgramDescs, since fleet's strategies cannot rewrite other programs."""
    if not getattr(paddle.framework, "use_pir_api", lambda: False)():
        return
    if not hasattr(paddle.pir_utils, "DygraphOldIrGuard"):
        raise Refused(f"{SWITCH_NAME} needs ProgramDescs, and this build makes PIR programs alone")
    # Paddle's own guard switches to ProgramDescs; it is never left again.
    paddle.pir_utils.DygraphOldIrGuard().__enter__()
