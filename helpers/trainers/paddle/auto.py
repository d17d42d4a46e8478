"""Automatic parallelism as the published auto table was measured: with the switch ``DistributedStrategy.auto``.

It turns on every strategy that fleet knows, and keeps the longest chain of them that fits together.
paddlepaddle-gpu 2.6.2 and paddlepaddle 3.3.1 still do that. On 1 card the chain is tensor parallelism of degree 1, AMP
and LARS. On several cards it is sharding, ASP, AMP and LARS; the sharding is always over 8 cards, so a case of any
other number is refused.
"""

from __future__ import annotations

from typing import Any, Dict

import paddle

from helpers.trainers.common.process import Refused
from helpers.trainers.contract.case import Execution, Precision
from helpers.trainers.contract.job import JobSpec

SWITCH_NAME = "DistributedStrategy.auto"
FACT = "auto_parallel"
# Over how many cards the switch trains.
_CARDS = (1, 8)


def start(spec: JobSpec) -> None:
    """Prepare the process for the switch. Must be called before any program is made. Raises Refused if the switch does
    not train the case."""
    case = spec.case
    if case.execution is not Execution.STATIC or spec.device != "gpu":
        raise Refused(f"automatic parallelism is {SWITCH_NAME}, the switch of a static program of GPUs")
    if case.cards not in _CARDS:
        raise Refused(f"{SWITCH_NAME} makes its sharding for 8 cards, not for {case.cards}")
    if case.precision is not Precision.UNSTATED:
        raise Refused(f"{SWITCH_NAME} chooses the precision itself, and the case names {case.precision.value}")
    # Fleet's strategies cannot rewrite other programs than ProgramDescs.
    if getattr(paddle.framework, "use_pir_api", lambda: False)():
        if not hasattr(paddle.pir_utils, "DygraphOldIrGuard"):
            raise Refused(f"{SWITCH_NAME} needs ProgramDescs, and this build makes PIR programs alone")
        # Paddle's own guard switches to ProgramDescs; it is never left again.
        paddle.pir_utils.DygraphOldIrGuard().__enter__()


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
    made = f"{SWITCH_NAME} (chose: {', '.join(fleet._get_applied_meta_list())})"
    facts = {FACT: made, "precision": "float32", "loss_scaling": "none"}
    if chosen.amp:
        scaling = chosen.amp_configs
        facts["precision"] = f"AMP {'O2' if scaling['use_pure_fp16'] else 'O1'} in float16, as the switch chose"
        kind = "dynamic" if scaling["use_dynamic_loss_scaling"] else "static"
        facts["loss_scaling"] = f"{kind} from {scaling['init_loss_scaling']}, as the switch chose"
    if chosen.lars:
        facts["optimizer"] = f"LARS in the place of Momentum, as the switch chose: {chosen.lars_configs}"
    return facts
