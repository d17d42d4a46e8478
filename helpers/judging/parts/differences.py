"""By how much each part of a step differs between two builds, and how likely such differences are by chance. Pure.

A run is one replicate; the steps in it are not. One test holds for phases, operators and ranks together
(helpers/judging/parts/beyond_chance.py).
"""

from __future__ import annotations

import enum
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.judging.parts.beyond_chance import PARTS_ERROR_RATE, SURE_PARTS_ERROR_RATE, adjusted_p_values
from helpers.judging.parts.shared_speed import differences_beside, may_be_the_builds
from helpers.judging.parts.step_parts import AS_IT_WAS, Amount, ComparedPart, Exchange, Grain, Part
from helpers.judging.statistics import Interval, mean_interval
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


def kind_of(compared: ComparedPart, reference: Amount, candidate: Amount, seconds: float) -> Kind:
    """The kind of a part that takes ``seconds`` longer, with the means of both builds."""
    part = compared.part
    longer = Kind.SLOWER if seconds > 0 else Kind.FASTER
    if part.level is Grain.RANK:
        return Kind.RANK
    if part.level is Grain.PHASE:
        return KIND_OF_PHASE.get(part.phase, longer)
    return _kind_of_operator(compared, reference, candidate, longer)


def _kind_of_operator(compared: ComparedPart, reference: Amount, candidate: Amount, longer: Kind) -> Kind:
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


@dataclass(frozen=True)
class Difference:
    """A part that was tested."""

    part: Part
    kind: Kind
    # The mean seconds and calls per step with each build.
    reference: Amount
    candidate: Amount
    # In seconds per step, above 0 where the candidate takes longer.
    seconds: Interval
    # The probability that any part differs so clearly if none does.
    p_value: float
    exchange: Exchange = AS_IT_WAS

    @property
    def is_named(self) -> bool:
        return self.p_value <= PARTS_ERROR_RATE

    @property
    def is_sure(self) -> bool:
        """Whether it is named surely; else it is named as probable."""
        return self.p_value <= SURE_PARTS_ERROR_RATE

    @property
    def absolute_seconds(self) -> float:
        """By how much it differs, longer or shorter."""
        return abs(self.seconds.mean)

    @property
    def change(self) -> float | None:
        """The change as a fraction of the part's own time; None if it is new."""
        return self.seconds.mean / self.reference.seconds if self.reference.seconds > 0 else None


def differences_of(parts: Sequence[ComparedPart], speeds: Sequence[float]) -> list[Difference]:
    """Each part beside the speed of its pair's runs; without speeds as it was measured.

    What is shorter beside the speed may be what a slower part has left behind, if that has moved the speed. So it is
    named only if it is shorter as measured, too. The same holds for all parts if the speed itself may be the builds'.
    """
    sizes = _noise_sizes(parts)
    measured = [each.differences for each in parts]
    p_measured = adjusted_p_values(measured, sizes)
    if not speeds:
        return [_difference(*each) for each in zip(parts, measured, p_measured, strict=True)]
    beside = differences_beside(parts, speeds)
    unsettled = may_be_the_builds(speeds)
    p_values = [
        new if math.fsum(differences) > 0 and not unsettled else _p_of_both(differences, new, as_measured, old)
        for differences, new, as_measured, old in zip(
            beside, adjusted_p_values(beside, sizes), measured, p_measured, strict=True
        )
    ]
    return [_difference(*each) for each in zip(parts, beside, p_values, strict=True)]


def _noise_sizes(parts: Sequence[ComparedPart]) -> list[float]:
    """To what each part's noise is in proportion. A network, or a rank beside the others, is not as noisy as one row of
    its size would be: it is taken as so many usual rows, whose noises do not depend on each other and partly cancel."""
    rows = [each.size_seconds for each in parts if each.part.level is Grain.ROW and each.part.is_of_the_cores]
    usual = statistics.median(rows) if rows else math.inf
    return [
        each.size_seconds if each.part.is_of_the_cores else min(each.size_seconds, math.sqrt(each.size_seconds * usual))
        for each in parts
    ]


def _p_of_both(beside: Sequence[float], p_beside: float, measured: Sequence[float], p_measured: float) -> float:
    """The p-value of a part that differs beside the speed and as measured; 1 if it does so in opposite ways."""
    return max(p_beside, p_measured) if math.fsum(beside) * math.fsum(measured) > 0 else 1.0


def _difference(compared: ComparedPart, differences: Sequence[float], p_value: float) -> Difference:
    reference, candidate = _mean_amount(compared.reference), _mean_amount(compared.candidate)
    seconds = mean_interval(differences)
    kind = kind_of(compared, reference, candidate, seconds.mean)
    return Difference(compared.part, kind, reference, candidate, seconds, p_value, compared.exchange)


def _mean_amount(amounts: Sequence[Amount]) -> Amount:
    return Amount(statistics.fmean(each.seconds for each in amounts), statistics.fmean(each.calls for each in amounts))


def place_in_step(difference: Difference) -> int:
    return list(Phase).index(difference.part.phase)


def is_alike(one: Difference, other: Difference) -> bool:
    """Whether both are longer, or both shorter."""
    return one.seconds.mean * other.seconds.mean > 0


# ---- which of the parts that differ are shown: parts hold each other, and no time may be counted twice


# A part that holds others is shown in place of them unless a few of them explain this share of its difference.
_MOST_OF_IT = 0.5
_FEW = 3


def apart(named: Sequence[Difference]) -> tuple[Difference, ...]:
    """Of the named parts those of which none holds another: the most special ones, unless it takes more than a few of
    them to explain most of the part around them."""
    shown: list[Difference] = []
    for level in (Grain.ROW, Grain.OPERATOR, Grain.PHASE):
        for each in sorted(
            (one for one in named if one.part.level is level), key=lambda each: each.absolute_seconds, reverse=True
        ):
            inside = [one for one in shown if each.part.holds(one.part)]
            # The rows of an all-reduce may be beside computation, and then they do not make the step longer.
            if (level is Grain.PHASE and each.part.phase is Phase.ALL_REDUCE) or not _say_enough(inside, each):
                shown = [one for one in shown if one not in inside] + [each]
    return tuple(shown)


def _say_enough(inside: Sequence[Difference], around: Difference) -> bool:
    """Whether the named parts in a part are shown in its place: a few of those that differ as it does explain most of
    it, or one is longer and the whole of it is shorter, which would hide the longer one."""
    whole = around.seconds.mean
    alike = sorted((one.absolute_seconds for one in inside if is_alike(one, around)), reverse=True)
    hidden = whole < 0 and any(one.seconds.mean > 0 for one in inside)
    return hidden or (bool(alike) and math.fsum(alike[:_FEW]) >= _MOST_OF_IT * abs(whole))


def largest_inside(phase: Difference, beyond_chance: Sequence[Difference]) -> Difference | None:
    """The part in a phase that is longer by most, of those beyond chance; None for a part that is no phase. So a phase
    that is shown in place of many parts still tells what came new in it."""
    if phase.part.level is not Grain.PHASE:
        return None
    inside = [each for each in beyond_chance if each.seconds.mean > 0 and phase.part.holds(each.part)]
    return max(inside, key=lambda each: each.seconds.mean, default=None)


def largest_unnamed(unnamed: Sequence[Difference], named: Sequence[Difference], shown: int) -> tuple[Difference, ...]:
    """The largest rows that are in no named part, and phases that have no rows."""
    rows = [
        each
        for each in unnamed
        if (each.part.level is Grain.ROW or (each.part.level is Grain.PHASE and each.part.phase in KIND_OF_PHASE))
        and not any(one.part.holds(each.part) for one in named)
    ]
    return tuple(sorted(rows, key=lambda each: each.absolute_seconds, reverse=True)[:shown])
