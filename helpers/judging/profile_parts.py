"""What profiled runs of two builds are compared by: the phases of a step, operators, and operators by layer.

A run is one value for each part: the mean over its ranks, in seconds per step. Pure.
"""

from __future__ import annotations

import enum
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from helpers.trainers.contract.step_profile import OperatorRow, Phase, StepProfile

# A part that takes less of a step than this on average of both builds is not tested: it explains nothing.
LEAST_SHARE = 0.001


class Level(enum.Enum):
    """How much a part holds, the most special first."""

    # An operator (and kernel) in one layer.
    ROW = "row"
    # The operators of a layer in one phase, where some are gone and others came; of all layers with the same change.
    CHANGE = "change"
    # An operator in one phase, over all layers.
    OPERATOR = "operator"
    PHASE = "phase"
    # One rank's own time beside the mean of the others'.
    RANK = "rank"


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

    def holds(self, other: Part) -> bool:
        """Whether the time of ``other`` is part of this one's."""
        if other.level is Level.RANK or self.level is Level.RANK or self == other or self.phase is not other.phase:
            return False
        return {
            Level.ROW: False,
            Level.CHANGE: other.level is Level.ROW and other.layer in self.layers,
            Level.OPERATOR: other.level is Level.ROW and other.operator == self.operator,
            Level.PHASE: other.level is not Level.PHASE,
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
class Compared:
    """A part in all pairs."""

    part: Part
    reference: tuple[Amount, ...]
    candidate: tuple[Amount, ...]

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
    reference = [_amounts(pair.reference) for pair in pairs]
    candidate = [_amounts(pair.candidate) for pair in pairs]
    parts = sorted({part for run in (*reference, *candidate) for part in run}, key=_order)
    found = [Compared(part, _series(part, reference), _series(part, candidate)) for part in parts]
    usual = statistics.fmean(run.step_seconds for pair in pairs for run in (pair.reference, pair.candidate))
    return tuple(
        each
        for each in (*found, *_changes(found))
        if each.part.level is Level.RANK
        or (each.mean_seconds >= LEAST_SHARE * usual and not _is_one_row(each.part, parts))
    )


def _is_one_row(part: Part, parts: Sequence[Part]) -> bool:
    return part.level is Level.OPERATOR and sum(map(part.holds, parts)) == 1


def _changes(found: Sequence[Compared]) -> list[Compared]:
    """The layers in which operators are gone and others came, together with all other layers of the same change."""
    rows: dict[tuple[Phase, str], list[Compared]] = defaultdict(list)
    for each in found:
        if each.part.level is Level.ROW:
            rows[each.part.phase, each.part.layer].append(each)
    layers: dict[Part, list[str]] = defaultdict(list)
    for (phase, layer), inside in rows.items():
        gone = tuple(sorted(each.part.operator for each in inside if each.is_gone))
        came = tuple(sorted(each.part.operator for each in inside if each.is_new))
        if gone and came:
            layers[Part(Level.CHANGE, phase, gone=gone, came=came)].append(layer)
    return [
        _sum(replace(part, layers=tuple(names)), [each for name in names for each in rows[part.phase, name]])
        for part, names in layers.items()
    ]


def _sum(part: Part, rows: Sequence[Compared]) -> Compared:
    def added(sides: Sequence[tuple[Amount, ...]]) -> tuple[Amount, ...]:
        runs = zip(*sides, strict=True)
        return tuple(Amount(sum(each.seconds for each in run), sum(each.calls for each in run)) for run in runs)

    return Compared(part, added([each.reference for each in rows]), added([each.candidate for each in rows]))


def _amounts(run: ProfiledRun) -> dict[Part, Amount]:
    seconds: dict[Part, float] = defaultdict(float)
    calls: dict[Part, float] = defaultdict(float)
    ranks = len(run.profiles)
    for profile in run.profiles:
        for phase, taken in profile.phases.items():
            seconds[Part(Level.PHASE, phase)] += taken / ranks
        for row in profile.operators:
            for part in _parts_of(row):
                seconds[part] += row.seconds_per_step / ranks
                calls[part] += row.calls_per_step / ranks
    found = {part: Amount(taken, calls.get(part, 0.0)) for part, taken in seconds.items()}
    return {**found, **_rank_amounts(run.profiles)}


def _parts_of(row: OperatorRow) -> Iterable[Part]:
    whole = Part(Level.ROW, row.phase, row.layer, row.operator, row.kernel, row.dtypes, row.device)
    return whole, Part(Level.OPERATOR, row.phase, operator=row.operator)


def _rank_amounts(profiles: Sequence[StepProfile]) -> dict[Part, Amount]:
    """By how much each rank's own time, without that in which it waits for the others, is above the mean of the other
    ranks'. Ranks of one job have steps of one length."""
    if len(profiles) < 2:
        return {}
    own = {each.rank: each.step_seconds - each.phases.get(Phase.ALL_REDUCE, 0.0) for each in profiles}
    return {
        Part(Level.RANK, rank=rank): Amount(mine - statistics.fmean(own[other] for other in own if other != rank))
        for rank, mine in own.items()
    }


def _series(part: Part, runs: Sequence[Mapping[Part, Amount]]) -> tuple[Amount, ...]:
    return tuple(run.get(part, Amount()) for run in runs)


def _order(part: Part) -> tuple[str, ...]:
    row = (part.layer, part.operator, part.kernel, part.dtypes, part.device, str(part.rank))
    return (part.phase.value, part.level.value, *row)


def _anywhere(amounts: Sequence[Amount]) -> bool:
    return any(each.calls > 0 for each in amounts)


def _everywhere(amounts: Sequence[Amount]) -> bool:
    return all(each.calls > 0 for each in amounts)
