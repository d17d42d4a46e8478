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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from helpers.machine.environment import CPU
from helpers.trainers.contract.step_profile import HOST, OperatorRow, Phase, StepProfile

# A part that takes less of a step than this on average of both builds is not tested: it explains nothing.
LEAST_SHARE = 0.001


class Level(enum.Enum):
    """How much a part holds, the most special first."""

    # An operator (and kernel) in one layer.
    ROW = "row"
    # An operator in one layer with all its kernels, where it has several: on a card a convolution has.
    CALL = "operator of a layer"
    # The operators of a layer in one phase, where some are gone and others came; of all layers with the same change.
    CHANGE = "change"
    # An operator in one phase, over all layers.
    OPERATOR = "operator"
    PHASE = "phase"
    # The all-reduce with what of it is beside computation.
    REDUCTION = "all-reduce as a whole"
    # A phase of one rank beside the median of the others'.
    RANK_PHASE = "phase of a rank"
    # How long one rank takes for what it computes, beside the others.
    RANK_SPEED = "speed of a rank"
    # One rank's own time beside the median of the others'.
    RANK = "rank"

    @property
    def is_of_a_rank(self) -> bool:
        return self in (Level.RANK, Level.RANK_SPEED, Level.RANK_PHASE)


# From what to what.
Exchange = tuple[str, str]


@dataclass(frozen=True)
class Part:
    """A part of a step. Fields that its level does not need are empty."""

    level: Level
    phase: Phase = Phase.OTHER
    layer: str = ""
    operator: str = ""
    kernel: str = ""
    dtypes: str = ""
    device: str = ""
    rank: int = -1
    # Of a change: its layers, what is gone and what came.
    layers: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    came: tuple[str, ...] = ()
    # In what the operators differ that did both: from what to what, empty where that is not told.
    kernels: tuple[Exchange, ...] = ()
    data_types: tuple[Exchange, ...] = ()
    devices: tuple[Exchange, ...] = ()

    @property
    def is_of_the_cores(self) -> bool:
        """Whether it takes longer where a run's cores compute more slowly; what a network takes does not."""
        return self.phase not in (Phase.ALL_REDUCE, Phase.RANK_WAIT) and not self.level.is_of_a_rank

    @property
    def may_be_beside(self) -> bool:
        """Whether its time may be beside that of other parts: gradients are reduced while others are computed."""
        return self.phase is Phase.ALL_REDUCE and self.level is not Level.PHASE

    @property
    def _without_kernel(self) -> tuple[str, ...]:
        return self.layer, self.operator, self.dtypes, self.device

    def holds(self, other: Part) -> bool:
        """Whether the time of ``other`` is part of this one's."""
        if self == other or self.level.is_of_a_rank or other.level.is_of_a_rank or self.phase is not other.phase:
            return False
        return {
            Level.ROW: False,
            Level.CALL: other.level is Level.ROW and other._without_kernel == self._without_kernel,
            Level.CHANGE: other.level in (Level.ROW, Level.CALL) and other.layer in self.layers,
            Level.OPERATOR: other.level in (Level.ROW, Level.CALL) and other.operator == self.operator,
            Level.PHASE: other.level not in (Level.PHASE, Level.REDUCTION),
            Level.REDUCTION: True,
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


def mean_amount(amounts: Sequence[Amount]) -> Amount:
    """The mean over runs."""
    return Amount(statistics.fmean(each.seconds for each in amounts), statistics.fmean(each.calls for each in amounts))


@dataclass(frozen=True)
class Compared:
    """A part in all pairs."""

    part: Part
    reference: tuple[Amount, ...]
    candidate: tuple[Amount, ...]
    # Of a part whose amounts are beside something else: the seconds of which they are a difference.
    whole_seconds: float | None = None
    # Of a part that takes longer where something beside it does: by how many seconds that differs in each pair.
    differences_beside: tuple[float, ...] = ()

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


def compared_parts(pairs: Sequence[ProfiledPair]) -> tuple[Compared, ...]:
    """All parts that take enough of a step to explain something. Which these are does not depend on which build is
    which, as the test of all of them together requires."""
    found = _all_parts(pairs)
    parts = [each.part for each in found]
    found = [replace(each, differences_beside=_backward(pairs)) if each.part == _REDUCTION else each for each in found]
    least = LEAST_SHARE * step_seconds_of(pairs)
    return tuple(
        each for each in (*found, *_changes(found)) if each.mean_seconds >= least and not _is_another(each.part, parts)
    )


def compared_operators(pairs: Sequence[ProfiledPair]) -> tuple[Compared, ...]:
    """Every operator that ran on a CPU, over all its layers and however little of a step it takes."""
    rows: dict[Part, list[Compared]] = defaultdict(list)
    for each in _all_parts(pairs):
        if each.part.level is Level.ROW and each.part.device == CPU and each.part.operator != HOST:
            rows[Part(Level.OPERATOR, each.part.phase, operator=each.part.operator)].append(each)
    return tuple(_sum(part, inside) for part, inside in rows.items())


def _all_parts(pairs: Sequence[ProfiledPair]) -> list[Compared]:
    reduces_beside = any(map(_reduces_beside, (run for pair in pairs for run in (pair.reference, pair.candidate))))
    reference = [_amounts(pair.reference, reduces_beside) for pair in pairs]
    candidate = [_amounts(pair.candidate, reduces_beside) for pair in pairs]
    parts = sorted({part for run in (*reference, *candidate) for part in run}, key=_order)
    return [Compared(part, _series(part, reference), _series(part, candidate)) for part in parts]


def _reduces_beside(run: ProfiledRun) -> bool:
    """Whether gradients are reduced beside a backward pass. A job without the one has no time beside the other."""
    return any(
        profile.all_reduce_overlapped_seconds > 0 and profile.phases.get(Phase.BACKWARD, 0.0) > 0
        for profile in run.profiles
    )


def _backward(pairs: Sequence[ProfiledPair]) -> tuple[float, ...]:
    """By how much the backward pass of the slowest rank differs in each pair. Gradients are reduced while it computes
    others, on the same cores, and the last of them are there when it ends. So a run that computes more slowly reduces
    longer."""

    def slowest(run: ProfiledRun) -> float:
        return max(profile.phases.get(Phase.BACKWARD, 0.0) for profile in run.profiles)

    return tuple(slowest(pair.candidate) - slowest(pair.reference) for pair in pairs)


def step_seconds_of(pairs: Sequence[ProfiledPair]) -> float:
    """A step of either build, on average."""
    return statistics.fmean(run.step_seconds for pair in pairs for run in (pair.reference, pair.candidate))


def _is_another(part: Part, parts: Sequence[Part]) -> bool:
    """Whether another part is the same: the only row of an operator, or all its rows in a layer."""
    if part.level not in (Level.CALL, Level.OPERATOR):
        return False
    held = [each for each in parts if part.holds(each)]
    rows = [each for each in held if each.level is Level.ROW]
    return len(rows) == 1 or any(all(map(each.holds, rows)) for each in held if each.level is Level.CALL)


def _changes(found: Sequence[Compared]) -> list[Compared]:
    """The layers in which operators are gone and others came, together with all other layers of the same change."""
    rows: dict[tuple[Phase, str], list[Compared]] = defaultdict(list)
    for each in found:
        if each.part.level is Level.ROW:
            rows[each.part.phase, each.part.layer].append(each)
    layers: dict[Part, list[str]] = defaultdict(list)
    for (phase, layer), inside in rows.items():
        # An operator may have several kernels.
        gone = tuple(sorted({each.part.operator for each in inside if each.is_gone}))
        came = tuple(sorted({each.part.operator for each in inside if each.is_new}))
        if gone and came:
            layers[Part(Level.CHANGE, phase, gone=gone, came=came)].append(layer)
    return [_change(part, names, [rows[part.phase, name] for name in names]) for part, names in layers.items()]


def _change(part: Part, names: Sequence[str], rows: Sequence[Sequence[Compared]]) -> Compared:
    whole = replace(
        part,
        layers=tuple(names),
        kernels=_exchanges(rows, lambda each: each.kernel),
        data_types=_exchanges(rows, lambda each: each.dtypes),
        devices=_exchanges(rows, lambda each: each.device),
    )
    return _sum(whole, [each for inside in rows for each in inside])


def _exchanges(rows: Sequence[Sequence[Compared]], what: Callable[[Part], str]) -> tuple[Exchange, ...]:
    """From what to what operators have changed that are in a layer with both builds."""
    found: set[Exchange] = set()
    for inside in rows:
        # Of an operator with several kernels the longest one counts.
        ordered = sorted(inside, key=lambda each: each.mean_seconds)
        gone = {each.part.operator: what(each.part) for each in ordered if each.is_gone}
        came = {each.part.operator: what(each.part) for each in ordered if each.is_new}
        found |= {(gone[name], came[name]) for name in gone.keys() & came.keys() if gone[name] != came[name]}
    return tuple(sorted(found))


def _sum(part: Part, rows: Sequence[Compared]) -> Compared:
    def added(sides: Sequence[tuple[Amount, ...]]) -> tuple[Amount, ...]:
        runs = zip(*sides, strict=True)
        return tuple(Amount(sum(each.seconds for each in run), sum(each.calls for each in run)) for run in runs)

    return Compared(part, added([each.reference for each in rows]), added([each.candidate for each in rows]))


def _amounts(run: ProfiledRun, reduces_beside: bool) -> dict[Part, Amount]:
    seconds: dict[Part, list[float]] = defaultdict(list)
    calls: dict[Part, float] = defaultdict(float)
    ranks = len(run.profiles)
    for profile in run.profiles:
        mine: dict[Part, float] = defaultdict(float)
        for phase, taken in profile.phases.items():
            mine[Part(Level.PHASE, phase)] += taken
        for row in profile.operators:
            for part in _parts_of(row):
                mine[part] += row.seconds_per_step
                calls[part] += row.calls_per_step / ranks
        if reduces_beside:
            mine[_REDUCTION] = mine.get(_REDUCING, 0.0) + profile.all_reduce_overlapped_seconds
        for part, taken in mine.items():
            seconds[part].append(taken)
    found = {part: Amount(_of_ranks(part, each, ranks), calls.get(part, 0.0)) for part, each in seconds.items()}
    waits = seconds.get(_REDUCING, [])
    if len(waits) > 1:
        found[Part(Level.PHASE, Phase.RANK_WAIT)] = Amount(math.fsum(waits) / ranks - found[_REDUCING].seconds)
    return found


# The part of the all-reduce beside which nothing is computed, and all of it.
_REDUCING, _REDUCTION = Part(Level.PHASE, Phase.ALL_REDUCE), Part(Level.REDUCTION, Phase.ALL_REDUCE)


def _of_ranks(part: Part, seconds: Sequence[float], ranks: int) -> float:
    """What a part takes in a run, from what it takes on each rank that has it."""
    if part.phase is Phase.ALL_REDUCE:
        return min(seconds) if len(seconds) == ranks else 0.0
    return math.fsum(seconds) / ranks


def _parts_of(row: OperatorRow) -> Iterable[Part]:
    yield row_of(row)
    yield Part(Level.OPERATOR, row.phase, operator=row.operator)
    if row.layer:
        yield replace(row_of(row), level=Level.CALL, kernel="")


def row_of(row: OperatorRow) -> Part:
    return Part(Level.ROW, row.phase, row.layer, row.operator, row.kernel, row.dtypes, row.device)


def _series(part: Part, runs: Sequence[Mapping[Part, Amount]]) -> tuple[Amount, ...]:
    return tuple(run.get(part, Amount()) for run in runs)


def _order(part: Part) -> tuple[str, ...]:
    row = (part.layer, part.operator, part.kernel, part.dtypes, part.device, str(part.rank))
    return (part.phase.value, part.level.value, *row)


def _anywhere(amounts: Sequence[Amount]) -> bool:
    return any(each.calls > 0 for each in amounts)


def _everywhere(amounts: Sequence[Amount]) -> bool:
    return all(each.calls > 0 for each in amounts)
