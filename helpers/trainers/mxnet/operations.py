"""What MXNet's operators say of a step, by their names. Imports no framework.

MXNet's profiler names an operator by its type, and not the layer that it is in.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from helpers.trainers.common.device_time import Operation, ProfileError
from helpers.trainers.common.phase_times import Claim, divided
from helpers.trainers.common.step_profile import Call, Recording, rows_of
from helpers.trainers.contract.step_profile import HOST, Phase

NOT_TOLD = (
    "MXNet's profiler tells neither layers nor kernels nor data types, and leaves out the first operator of a step"
)
SEPARATELY = "MXNet ran each operator by itself in these runs, since its profiler cannot look into a group of them"

_BACKWARD = re.compile(r"^(_backward_|add_n$)")
_OPTIMIZER = re.compile(r"(^|_)(sgd|mom)_|_update$")
_REDUCE = re.compile(r"KVStore|AllReduce|Reduce$", re.IGNORECASE)
_COPY = re.compile(r"^Copy(CPU2GPU|From)")
# The engine's own work, which is no operator.
_ENGINE = ("DeleteVariable", "DeleteOperator", "WaitForVar", "SetValueOp", "ImperativeBulk")


def recording_of(timelines: Mapping[str, Sequence[Operation]], waited_seconds: float, steps: int) -> Recording:
    """What the operators of each device say of ``steps`` steps, in which the loop waited for data for
    ``waited_seconds``; no operator runs then, since a step on a CPU ends with the last one. Raises ProfileError if no
    operator was recorded."""
    calls: List[Call] = []
    claims: Dict[bool, List[Claim[Phase]]] = {True: [], False: []}
    for device, operation in _operators(timelines):
        phase = _phase_of(operation.name)
        name = "engine" if operation.name in _ENGINE else operation.name
        calls.append(Call(phase, "", name, "", "", device, operation.end - operation.start))
        claims[phase is Phase.ALL_REDUCE].append(Claim(phase, operation.start, operation.end))
    if not any(call.operator != "engine" for call in calls):
        raise ProfileError("mx.profiler recorded no operator")
    seconds = {**divided([claims[False], claims[True]]), Phase.DATA_WAIT: waited_seconds}
    calls.append(Call(Phase.DATA_WAIT, "", HOST, "", "", "cpu", waited_seconds))
    overlapped = divided([claims[True]]).get(Phase.ALL_REDUCE, 0.0) - seconds.get(Phase.ALL_REDUCE, 0.0)
    phases = {phase: each / steps for phase, each in seconds.items()}
    return Recording(rows_of(calls, steps), phases, max(0.0, overlapped) / steps, (NOT_TOLD, SEPARATELY))


def _operators(timelines: Mapping[str, Sequence[Operation]]) -> Iterator[Tuple[str, Operation]]:
    for device, operations in timelines.items():
        for each in operations:
            yield "cpu" if device.startswith("cpu") else device, each


def _phase_of(name: str) -> Phase:
    if name in _ENGINE:
        return Phase.OTHER
    if _REDUCE.search(name):
        return Phase.ALL_REDUCE
    if _OPTIMIZER.search(name):
        return Phase.OPTIMIZER
    if _COPY.match(name):
        return Phase.TRANSFER
    return Phase.BACKWARD if _BACKWARD.match(name) else Phase.FORWARD
