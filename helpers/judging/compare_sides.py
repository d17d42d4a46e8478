"""The two sides of a comparison: runs from the history, which of them belong together, and their pairs. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from helpers.judging.evidence import Build, Stage
from helpers.machine.environment import differences

# This fact of the segment may differ between builds that ran in turn on the same cards.
_BUILD_FACT = "framework line"
# docs/verdicts.md, "Judge": pairs are looked at from two on.
_LEAST_PAIRS = 2


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
    build: Mapping[str, str]
    role: Build = Build.CANDIDATE
    stage: Stage = Stage.SCREEN
    replicate: int = 0

    @property
    def key(self) -> tuple[str, str]:
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
    # The log rate of B minus that of A, for each interleaved pair.
    differences: tuple[float, ...] = ()
    # The facts in which the segments of the two sides differ, if they share no segment.
    apart: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.target, self.case_id

    @property
    def is_compared(self) -> bool:
        """Whether both sides have runs in one segment."""
        return bool(self.a and self.b and not self.apart)


def pair_up(a: Iterable[KeptRun], b: Iterable[KeptRun]) -> tuple[Pairing, ...]:
    """One pairing for each case and each segment that both sides share, sorted by case.

    Where runs of both were made in turn, only those count. A case whose sides share no segment has one pairing, and
    ``apart`` says how their newest runs differ. If only one side has a case, the other side is empty.
    """
    mine, theirs = _by_case(a), _by_case(b)
    found: list[Pairing] = []
    for target, case_id in sorted({*mine, *theirs}, key=lambda key: (key[1], key[0])):
        left, right = mine.get((target, case_id), ()), theirs.get((target, case_id), ())
        found += _of_case(case_id, target, left, right)
    return tuple(found)


def side_of(runs: Sequence[KeptRun]) -> Side:
    if not runs:
        return Side()
    return Side(
        math.exp(statistics.median(run.log_rate for run in runs)), len(runs), len({run.session for run in runs})
    )


def pairs_of(a: Sequence[KeptRun], b: Sequence[KeptRun]) -> tuple[float, ...]:
    """The log rate of B minus that of A for each interleaved pair. The k-th confirmation run of A in a session is the
    pair of the k-th run of B in the same session."""
    found: list[float] = []
    for session in sorted({run.session for run in a} & {run.session for run in b}):
        left, right = (
            sorted(
                (run for run in runs if run.session == session and run.stage is Stage.CONFIRM),
                key=lambda run: run.replicate,
            )
            for runs in (a, b)
        )
        if {run.role for run in left} != {run.role for run in right}:
            found += [new.log_rate - old.log_rate for old, new in zip(left, right, strict=False)]
    return tuple(found)


def _of_case(case_id: str, target: str, a: Sequence[KeptRun], b: Sequence[KeptRun]) -> list[Pairing]:
    mine, theirs = _by_segment(a, _BUILD_FACT), _by_segment(b, _BUILD_FACT)
    pairs = [
        Pairing(case_id, target, *_in_common_sessions(mine[each], theirs[each]), found)
        for each in mine
        if each in theirs and len(found := pairs_of(mine[each], theirs[each])) >= _LEAST_PAIRS
    ]
    if pairs:
        return pairs
    mine, theirs = _by_segment(a), _by_segment(b)
    common = [each for each in mine if each in theirs]
    if common or not a or not b:
        return [Pairing(case_id, target, tuple(mine[each]), tuple(theirs[each])) for each in common] or [
            Pairing(case_id, target, tuple(a), tuple(b))
        ]
    newest = [max(runs, key=lambda run: run.created).segment for runs in (a, b)]
    return [Pairing(case_id, target, tuple(a), tuple(b), apart=differences(*newest))]


def _in_common_sessions(a: Sequence[KeptRun], b: Sequence[KeptRun]) -> tuple[tuple[KeptRun, ...], tuple[KeptRun, ...]]:
    """The runs of sessions in which both builds ran in turn."""
    common = {run.session for run in a} & {run.session for run in b}
    left, right = (
        tuple(run for run in runs if run.session in common and run.stage is Stage.CONFIRM) for runs in (a, b)
    )
    return left, right


def _by_case(runs: Iterable[KeptRun]) -> dict[tuple[str, str], tuple[KeptRun, ...]]:
    found: dict[tuple[str, str], tuple[KeptRun, ...]] = {}
    for run in runs:
        found[run.key] = (*found.get(run.key, ()), run)
    return found


def _by_segment(runs: Iterable[KeptRun], without: str = "") -> dict[tuple[tuple[str, str], ...], list[KeptRun]]:
    found: dict[tuple[tuple[str, str], ...], list[KeptRun]] = {}
    for run in runs:
        facts = tuple(sorted((key, value) for key, value in run.segment.items() if key != without))
        found.setdefault(facts, []).append(run)
    return found


def runs_of_nights(runs: Sequence[KeptRun]) -> tuple[tuple[float, ...], ...]:
    """The log rates of each session, oldest session and first run first."""
    sessions: dict[str, list[KeptRun]] = {}
    for run in sorted(runs, key=lambda run: (run.created, run.replicate)):
        sessions.setdefault(run.session, []).append(run)
    return tuple(tuple(run.log_rate for run in night) for night in sessions.values())
