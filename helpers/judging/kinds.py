"""In what way a part of a step differs between two builds. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping

from helpers.judging.profile_parts import Amount, Compared, Level
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

    SLOWER = "slower at the same count"
    FASTER = "faster at the same count"
    MORE_CALLS = "called more often"
    FEWER_CALLS = "called less often"
    NEW = "new"
    GONE = "gone"
    MOVED = "new: it only moves or converts values"
    REPLACED = "replaced"
    OTHER_TYPES = "other data types"
    OTHER_DEVICE = "on another device"
    SPLIT = "no longer one operator"
    JOINED = "now one operator"
    GRAPH = "other operators"
    LOADER = "the loader"
    HOST = "the host"
    ALL_REDUCE = "the all-reduce itself, on all ranks"
    RANK_WAIT = "the ranks wait for the slowest one"
    RANK = "one rank is slow"


def kind_of(compared: Compared, reference: Amount, candidate: Amount, seconds: float) -> Kind:
    """The kind of a part that takes ``seconds`` longer, with the means of both builds."""
    return _KIND_OF_LEVEL.get(compared.part.level, _kind_of_row)(compared, reference, candidate, seconds)


# Phases that are of a kind by themselves.
KIND_OF_PHASE: Mapping[Phase, Kind] = {
    Phase.DATA_WAIT: Kind.LOADER,
    Phase.HOST_GAP: Kind.HOST,
    Phase.ALL_REDUCE: Kind.ALL_REDUCE,
    Phase.RANK_WAIT: Kind.RANK_WAIT,
}


def _kind_of_phase(compared: Compared, reference: Amount, candidate: Amount, seconds: float) -> Kind:
    return KIND_OF_PHASE.get(compared.part.phase, Kind.SLOWER if seconds > 0 else Kind.FASTER)


def _kind_of_change(compared: Compared, reference: Amount, candidate: Amount, seconds: float) -> Kind:
    part = compared.part
    if part.devices or part.data_types:
        return Kind.OTHER_DEVICE if part.devices else Kind.OTHER_TYPES
    gone, came = len(part.gone), len(part.came)
    if gone == came == 1 or part.gone == part.came:
        return Kind.REPLACED
    if gone == 1:
        return Kind.SPLIT
    return Kind.JOINED if came == 1 else Kind.GRAPH


def _kind_of_row(compared: Compared, reference: Amount, candidate: Amount, seconds: float) -> Kind:
    if compared.is_new:
        part = compared.part
        return Kind.MOVED if _MOVES.search(part.operator) or _MOVING_KERNELS.search(part.kernel) else Kind.NEW
    if compared.is_gone:
        return Kind.GONE
    if compared.part.operator == HOST:
        return Kind.HOST
    if compared.part.phase is Phase.ALL_REDUCE and not _other_calls(reference, candidate):
        return Kind.ALL_REDUCE
    if _other_calls(reference, candidate):
        return Kind.MORE_CALLS if candidate.calls > reference.calls else Kind.FEWER_CALLS
    return Kind.SLOWER if seconds > 0 else Kind.FASTER


def _other_calls(reference: Amount, candidate: Amount) -> bool:
    """Also where one of the builds has no call, as an operator that only some runs of the other have."""
    return abs(candidate.calls - reference.calls) > _SAME_CALLS * reference.calls


_KIND_OF_LEVEL: Mapping[Level, Callable[[Compared, Amount, Amount, float], Kind]] = {
    Level.PHASE: _kind_of_phase,
    Level.CHANGE: _kind_of_change,
    Level.REDUCTION: lambda *_: Kind.ALL_REDUCE,
    Level.RANK_PHASE: lambda *_: Kind.RANK,
    Level.RANK_SPEED: lambda *_: Kind.RANK,
    Level.RANK: lambda *_: Kind.RANK,
}
