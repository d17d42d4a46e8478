"""The two sides of a comparison: runs from the history, which of them belong together, and their pairs. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from helpers.judging.case.evidence import Build, CaseKey, Stage
from helpers.machine.environment import differences


@dataclass(frozen=True)
class KeptRun:
    """One usable run from the history; ``log_rate`` is as in RunEvidence."""

    uuid: str
    case_id: str
    target: str
    session: str
    created: str
    log_rate: float
    segment: Mapping[str, str]
    role: Build = Build.CANDIDATE
    stage: Stage = Stage.SCREEN
    replicate: int = 0
    # Its steps (recorded.compared_steps).
    protocol: Mapping[str, int] = field(default_factory=dict)
    # Whether it is an imported log, which states neither its machine nor its stack.
    is_log: bool = False

    @property
    def facts(self) -> dict[str, str]:
        """In what it must equal a run of another session for the two to be compared."""
        return {**self.segment, **{f"protocol {name}": str(steps) for name, steps in self.protocol.items()}}

    @property
    def key(self) -> CaseKey:
        return self.target, self.case_id


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the median samples/s over its runs, and those runs."""

    samples_per_s: float | None = None
    runs: int = 0
    nights: int = 0


@dataclass(frozen=True)
class Pairing:
    """The two sides of one case in one segment."""

    case_id: str
    target: str
    a: tuple[KeptRun, ...]
    b: tuple[KeptRun, ...]
    # The log rates of A and of B, for each interleaved pair.
    pairs: tuple[tuple[float, float], ...] = ()
    # The facts in which the two sides differ, with or without pairs.
    apart: tuple[str, ...] = ()

    @property
    def key(self) -> CaseKey:
        return self.target, self.case_id

    @property
    def is_compared(self) -> bool:
        """Whether both sides have pairs, or runs in one segment."""
        return bool(self.pairs or (self.a and self.b and not self.apart))

    @property
    def is_with_logs(self) -> bool:
        return any(run.is_log for run in (*self.a, *self.b))

    @property
    def is_beside_good(self) -> bool:
        """Whether A is the reference build of the nights on which B was the build under test."""
        roles = {run.role for run in self.a}, {run.role for run in self.b}
        return bool(self.pairs) and roles == ({Build.REFERENCE}, {Build.CANDIDATE})

    @property
    def sessions(self) -> tuple[str, ...]:
        """B's sessions, oldest first."""
        return tuple(dict.fromkeys(run.session for run in sorted(self.b, key=lambda run: run.created)))


def pair_up(a: Iterable[KeptRun], b: Iterable[KeptRun]) -> tuple[Pairing, ...]:
    """One pairing for each case and each segment that both sides share, sorted by case.

    Where runs of both were made in turn on the same cards, only those count, in whatever their stacks differ: then
    there is one pairing for each two stacks. A case whose sides share neither pairs nor a segment has one pairing.
    ``apart`` says how its newest runs differ. If only one side has a case, the other side is empty.
    """
    sides: dict[CaseKey, tuple[list[KeptRun], list[KeptRun]]] = {}
    for side, runs in enumerate((a, b)):
        for run in runs:
            sides.setdefault(run.key, ([], []))[side].append(run)
    ordered = sorted(sides.items(), key=lambda item: (item[0][1], item[0][0]))
    return tuple(each for (target, case_id), both in ordered for each in _of_case(case_id, target, *both))


def side_of(runs: Sequence[KeptRun]) -> Side:
    if not runs:
        return Side()
    return Side(
        math.exp(statistics.median(run.log_rate for run in runs)), len(runs), len({run.session for run in runs})
    )


def pairs_of(a: Sequence[KeptRun], b: Sequence[KeptRun]) -> tuple[tuple[KeptRun, KeptRun], ...]:
    """The interleaved pairs of one session: the k-th confirmation run of A and the k-th of B, if one side is the build
    under test and the other the reference build."""
    left, right = (
        sorted((run for run in runs if run.stage is Stage.CONFIRM), key=lambda run: run.replicate) for runs in (a, b)
    )
    if {run.role for run in left} == {run.role for run in right}:
        return ()
    return tuple(zip(left, right, strict=False))


def _of_case(case_id: str, target: str, a: Sequence[KeptRun], b: Sequence[KeptRun]) -> list[Pairing]:
    if beside := _pairings_of_pairs(case_id, target, a, b):
        return beside
    whole = Pairing(case_id, target, tuple(a), tuple(b))
    if not a or not b or whole.is_with_logs:
        return [whole]
    mine, theirs = _by_facts(a), _by_facts(b)
    if common := [each for each in mine if each in theirs]:
        return [replace(whole, a=tuple(mine[each]), b=tuple(theirs[each])) for each in common]
    return [replace(whole, apart=differences(*(max(runs, key=lambda run: run.created).facts for runs in (a, b))))]


def _pairings_of_pairs(case_id: str, target: str, a: Sequence[KeptRun], b: Sequence[KeptRun]) -> list[Pairing]:
    """One pairing for each two stacks of which there are pairs enough to look at."""
    # Imported here because it loads numpy, which takes longer than most commands take to answer.
    from helpers.judging.case.confirm import FIRST_LOOK

    found: dict[tuple[str, ...], list[tuple[KeptRun, KeptRun]]] = {}
    for session in dict.fromkeys(run.session for run in a):
        for old, new in pairs_of(*([run for run in runs if run.session == session] for runs in (a, b))):
            found.setdefault((*_key(old), *_key(new)), []).append((old, new))
    return [
        Pairing(
            case_id,
            target,
            tuple(old for old, _ in pairs),
            tuple(new for _, new in pairs),
            pairs=tuple((old.log_rate, new.log_rate) for old, new in pairs),
            apart=differences(pairs[-1][0].facts, pairs[-1][1].facts),
        )
        for pairs in found.values()
        if len(pairs) >= FIRST_LOOK
    ]


def _key(run: KeptRun) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in sorted(run.facts.items()))


def _by_facts(runs: Iterable[KeptRun]) -> dict[tuple[str, ...], list[KeptRun]]:
    found: dict[tuple[str, ...], list[KeptRun]] = {}
    for run in runs:
        found.setdefault(_key(run), []).append(run)
    return found


def runs_of_nights(runs: Sequence[KeptRun]) -> tuple[tuple[float, ...], ...]:
    """The log rates of each session, oldest session and first run first."""
    sessions: dict[str, list[KeptRun]] = {}
    for run in sorted(runs, key=lambda run: (run.created, run.replicate)):
        sessions.setdefault(run.session, []).append(run)
    return tuple(tuple(run.log_rate for run in night) for night in sessions.values())
