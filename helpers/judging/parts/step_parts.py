"""What profiled runs of two builds are compared by: the phases of a step, operators, and operators by layer.

A run is one value for each part: the mean over its ranks, in seconds per step. A reduction of gradients ends on all
ranks at once, when the slowest one has come and the numbers are sent. So it is shortest on the rank that comes last:
that is what the reduction itself takes. What the others take longer, they wait for that rank. Pure.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from helpers.trainers.contract.step_profile import OperatorRow, Phase, StepProfile

# A part that takes less of a step than this on average of both builds is not tested: it explains nothing.
LEAST_SHARE = 0.001


class Grain(enum.Enum):
    """How much a part holds, the most special first."""

    # An operator in one layer, with all its kernels.
    ROW = "row"
    # An operator in one phase, over all layers.
    OPERATOR = "operator"
    PHASE = "phase"
    # What one rank computes and waits for, beside the others.
    RANK = "rank"


@dataclass(frozen=True)
class Part:
    """A part of a step. Fields that its level does not need are empty."""

    level: Grain
    phase: Phase = Phase.OTHER
    layer: str = ""
    operator: str = ""
    rank: int = -1

    @property
    def is_of_the_cores(self) -> bool:
        """Whether it takes longer where a run's cores compute more slowly; what a network takes does not."""
        return self.phase not in (Phase.ALL_REDUCE, Phase.RANK_WAIT) and self.level is not Grain.RANK

    @property
    def may_be_beside(self) -> bool:
        """Whether its time may be beside that of other parts: gradients are reduced while others are computed."""
        return self.phase is Phase.ALL_REDUCE and self.level is not Grain.PHASE

    def holds(self, other: Part) -> bool:
        """Whether the time of ``other`` is part of this one's."""
        if Grain.RANK in (self.level, other.level) or self.phase is not other.phase:
            return False
        is_row = other.level is Grain.ROW
        return {
            Grain.ROW: False,
            Grain.OPERATOR: is_row and other.operator == self.operator,
            Grain.PHASE: other.level is not Grain.PHASE,
        }[self.level]


@dataclass(frozen=True)
class ProfiledRun:
    """One run: its unprofiled steps, and the profiles of its ranks."""

    # The median of the measured window, in which no profiler ran.
    step_seconds: float
    profiles: tuple[StepProfile, ...]
    # What the run states of itself.
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfiledPair:
    """A run of each build, made one after the other on the same cards."""

    reference: ProfiledRun
    candidate: ProfiledRun


@dataclass(frozen=True)
class Amount:
    """What a part takes in one run, per step."""

    seconds: float = 0.0
    calls: float = 0.0


@dataclass(frozen=True)
class Variant:
    """How an operator is computed. Fields that a profiler does not tell are empty."""

    kernel: str = ""
    data_types: str = ""
    device: str = ""


@dataclass(frozen=True)
class Exchange:
    """How all runs of the reference compute an operator and none of the other build, and the other way round: of
    several ways the longest."""

    gone: Variant | None = None
    came: Variant | None = None

    def of(self, name: str) -> tuple[str, str] | None:
        """The field ``name`` before and after; None if it is the same."""
        old, new = (getattr(each, name) if each else "" for each in (self.gone, self.came))
        return (old, new) if old != new else None


AS_IT_WAS = Exchange()


@dataclass(frozen=True)
class ComparedPart:
    """A part in all pairs."""

    part: Part
    reference: tuple[Amount, ...]
    candidate: tuple[Amount, ...]
    exchange: Exchange = AS_IT_WAS
    # Of a part whose amounts are beside something else: the seconds of which they are a difference.
    whole_seconds: float | None = None

    @property
    def size_seconds(self) -> float:
        """How much is measured."""
        return self.mean_seconds if self.whole_seconds is None else self.whole_seconds

    @property
    def differences(self) -> tuple[float, ...]:
        """In seconds per step, above 0 where the candidate takes longer."""
        return tuple(new.seconds - old.seconds for old, new in zip(self.reference, self.candidate, strict=True))

    @property
    def mean_seconds(self) -> float:
        """Over the runs of both builds."""
        return statistics.fmean(each.seconds for each in (*self.reference, *self.candidate))

    @property
    def is_new(self) -> bool:
        return not _anywhere(self.reference) and _everywhere(self.candidate)

    @property
    def is_gone(self) -> bool:
        return _everywhere(self.reference) and not _anywhere(self.candidate)


def compared_parts(pairs: Sequence[ProfiledPair]) -> tuple[ComparedPart, ...]:
    """All parts that take enough of a step to explain something. Which these are does not depend on which build is
    which, as the test of all of them together requires."""
    reference = [_amounts(pair.reference) for pair in pairs]
    candidate = [_amounts(pair.candidate) for pair in pairs]
    parts = sorted({part for run in (*reference, *candidate) for part in run}, key=_order)
    exchanges = _exchanges(pairs)
    found = [
        ComparedPart(part, _series(part, reference), _series(part, candidate), exchanges.get(part, AS_IT_WAS))
        for part in parts
    ]
    rows: dict[Part, int] = defaultdict(int)
    for part in parts:
        if part.level is Grain.ROW:
            rows[_operator_of(part)] += 1
    least = LEAST_SHARE * step_seconds_of(pairs)
    # An operator with one row is that row.
    return tuple(each for each in found if each.mean_seconds >= least and rows.get(each.part) != 1)


def step_seconds_of(pairs: Sequence[ProfiledPair]) -> float:
    """A step of either build, on average."""
    return statistics.fmean(run.step_seconds for pair in pairs for run in (pair.reference, pair.candidate))


def row_of(row: OperatorRow) -> Part:
    return Part(Grain.ROW, row.phase, row.layer, row.operator)


def _operator_of(row: Part) -> Part:
    return replace(row, level=Grain.OPERATOR, layer="")


# The part of the all-reduce beside which nothing is computed.
_REDUCING = Part(Grain.PHASE, Phase.ALL_REDUCE)


def _amounts(run: ProfiledRun) -> dict[Part, Amount]:
    seconds: dict[Part, list[float]] = defaultdict(list)
    calls: dict[Part, float] = defaultdict(float)
    ranks = len(run.profiles)
    for profile in run.profiles:
        mine: dict[Part, float] = defaultdict(float)
        for phase, taken in profile.phases.items():
            mine[Part(Grain.PHASE, phase)] += taken
        for row in profile.operators:
            for part in (row_of(row), _operator_of(row_of(row))):
                mine[part] += row.seconds_per_step
                calls[part] += row.calls_per_step / ranks
        for part, taken in mine.items():
            seconds[part].append(taken)
    found = {part: Amount(_of_ranks(part, each, ranks), calls.get(part, 0.0)) for part, each in seconds.items()}
    waits = seconds.get(_REDUCING, [])
    if len(waits) > 1:
        found[Part(Grain.PHASE, Phase.RANK_WAIT)] = Amount(math.fsum(waits) / ranks - found[_REDUCING].seconds)
    return found


def _of_ranks(part: Part, seconds: Sequence[float], ranks: int) -> float:
    """What a part takes in a run, from what it takes on each rank that has it."""
    if part.phase is Phase.ALL_REDUCE:
        return min(seconds) if len(seconds) == ranks else 0.0
    return math.fsum(seconds) / ranks


def _exchanges(pairs: Sequence[ProfiledPair]) -> dict[Part, Exchange]:
    """Of each row that is computed in another way in all runs: from what to what."""
    old, new = [_variants(pair.reference) for pair in pairs], [_variants(pair.candidate) for pair in pairs]
    gone, came = _only_in(old, new), _only_in(new, old)
    return {part: Exchange(gone.get(part), came.get(part)) for part in gone.keys() | came.keys()}


def _variants(run: ProfiledRun) -> dict[tuple[Part, Variant], float]:
    found: dict[tuple[Part, Variant], float] = defaultdict(float)
    for profile in run.profiles:
        for row in profile.operators:
            found[row_of(row), Variant(row.kernel, row.dtypes, row.device)] += row.seconds_per_step
    return found


def _only_in(
    these: Sequence[Mapping[tuple[Part, Variant], float]], others: Sequence[Mapping[tuple[Part, Variant], float]]
) -> dict[Part, Variant]:
    """The variants that all of these runs have and none of the others; of a row's several the longest."""
    mine = set.intersection(*map(set, these)).difference(*others)
    ordered = sorted(mine, key=lambda each: (math.fsum(run[each] for run in these), astuple(each[1])))
    # Of equal keys the last one stays.
    return dict(ordered)


def _series(part: Part, runs: Sequence[Mapping[Part, Amount]]) -> tuple[Amount, ...]:
    return tuple(run.get(part, Amount()) for run in runs)


def _order(part: Part) -> tuple[str, ...]:
    return part.phase.value, part.level.value, part.layer, part.operator


def _anywhere(amounts: Sequence[Amount]) -> bool:
    return any(each.calls > 0 for each in amounts)


def _everywhere(amounts: Sequence[Amount]) -> bool:
    return all(each.calls > 0 for each in amounts)
