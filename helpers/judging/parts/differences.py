"""By how much each part of a step differs between two builds, and how likely any would by chance. Pure.

A run is one replicate; the steps in it are not. One test holds for phases, operators and ranks together
(helpers/judging/parts/beyond_chance.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.judging.parts.beyond_chance import PARTS_ERROR_RATE, SURE_PARTS_ERROR_RATE, adjusted_p_values
from helpers.judging.parts.kinds import Kind, kind_of
from helpers.judging.parts.shared_speed import differences_beside, may_be_the_builds
from helpers.judging.parts.step_parts import AS_IT_WAS, Amount, Compared, Exchange, Grain, Part
from helpers.judging.statistics import Interval, mean_interval
from helpers.trainers.contract.step_profile import Phase


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


def differences_of(parts: Sequence[Compared], speeds: Sequence[float]) -> list[Difference]:
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


def _noise_sizes(parts: Sequence[Compared]) -> list[float]:
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


def _difference(compared: Compared, differences: Sequence[float], p_value: float) -> Difference:
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
