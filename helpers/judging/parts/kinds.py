"""In what way a part of a step differs between two builds. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

from helpers.judging.parts.step_parts import Amount, Compared, Grain
from helpers.trainers.contract.step_profile import HOST, Phase

# Calls of an operator that differ by less are the same.
_SAME_CALLS = 0.005
# Operators, and kernels of a library or a card, that only move values to another data type, layout or device. Neither a
# broadcast nor a transposed convolution does.
_MOVES = re.compile(
    r"(?<!broad)cast|^(?!.*conv(?!ert)).*transpose|copy(?!sign)|memcpy|convert|reorder|layout|^aten::(to|contiguous|clone)$",
    re.IGNORECASE,
)
_MOVING_KERNELS = re.compile(r"^aten::copy_$|direct_copy_kernel|^memcpy|nchwtonhwc|nhwctonchw", re.IGNORECASE)


class Kind(enum.Enum):
    """In what way a part differs."""

    SLOWER = "slower"
    FASTER = "faster"
    MORE_CALLS = "more-calls"
    FEWER_CALLS = "fewer-calls"
    NEW = "new"
    GONE = "gone"
    MOVED = "moved"
    REPLACED = "replaced"
    OTHER_TYPES = "other-types"
    OTHER_DEVICE = "other-device"
    LOADER = "loader"
    HOST = "host"
    ALL_REDUCE = "all-reduce"
    RANK_WAIT = "rank-wait"
    RANK = "rank"


# Phases that are of a kind by themselves.
KIND_OF_PHASE: Mapping[Phase, Kind] = {
    Phase.DATA_WAIT: Kind.LOADER,
    Phase.HOST_GAP: Kind.HOST,
    Phase.ALL_REDUCE: Kind.ALL_REDUCE,
    Phase.RANK_WAIT: Kind.RANK_WAIT,
}


def kind_of(compared: Compared, reference: Amount, candidate: Amount, seconds: float) -> Kind:
    """The kind of a part that takes ``seconds`` longer, with the means of both builds."""
    part = compared.part
    longer = Kind.SLOWER if seconds > 0 else Kind.FASTER
    if part.level is Grain.RANK:
        return Kind.RANK
    if part.level is Grain.PHASE:
        return KIND_OF_PHASE.get(part.phase, longer)
    return _kind_of_operator(compared, reference, candidate, longer)


def _kind_of_operator(compared: Compared, reference: Amount, candidate: Amount, longer: Kind) -> Kind:
    part, exchange = compared.part, compared.exchange
    # Also where one of the builds has no call, as an operator that only some runs of the other have.
    other_calls = abs(candidate.calls - reference.calls) > _SAME_CALLS * reference.calls
    if compared.is_new:
        moves = _MOVES.search(part.operator) or (exchange.came and _MOVING_KERNELS.search(exchange.came.kernel))
        return Kind.MOVED if moves else Kind.NEW
    if compared.is_gone:
        return Kind.GONE
    if part.operator == HOST:
        return Kind.HOST
    if exchange.gone and exchange.came:
        if exchange.of("device"):
            return Kind.OTHER_DEVICE
        return Kind.OTHER_TYPES if exchange.of("data_types") else Kind.REPLACED
    if other_calls:
        return Kind.MORE_CALLS if candidate.calls > reference.calls else Kind.FEWER_CALLS
    return Kind.ALL_REDUCE if part.phase is Phase.ALL_REDUCE else longer
