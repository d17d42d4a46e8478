"""The trend of every case: its series of nights, their steps between nights and builds, and their drift.

It is reported, and never a gate (docs/verdicts.md, "Trend").
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from helpers.history.stored import Acknowledgement, StoredNight
from helpers.history.trend import ChangePoint, Detect, Sensitivity, SlowDrift, find_drift

# With fewer nights a step cannot be distinguished from a bad night.
LEAST_NIGHTS = 5
# A change point moves by a night or two as nights are added to its series.
_WANDERS = 2


class SeriesKind(enum.Enum):
    """What a point is: a night's median samples/s, or the ratio of the build under test to the pinned good build."""

    NIGHTS = "nightly medians"
    PAIRS = "A/B ratios"


@dataclass(frozen=True)
class Point:
    """One night."""

    # UTC, ISO 8601.
    created: str
    session: str
    # Images/s by the median step, or the ratio of A/B pairs.
    value: float
    # The build that was measured, in words, and its commit; empty where it has none.
    build: str = ""
    commit: str = ""

    @property
    def day(self) -> str:
        return self.created[:10]


@dataclass(frozen=True)
class Series:
    """The points of one case on one target of one host, oldest first, all of one segment."""

    case_id: str
    target: str
    host: str
    kind: SeriesKind
    points: tuple[Point, ...]
    # The index from which on the nights are held against the present reference: the last start of a segment (a baseline
    # recorded anew, a confirmed improvement).
    pinned_from: int = 0

    @property
    def values(self) -> list[float]:
        """For Otava: a list."""
        return [point.value for point in self.points]


def series_of(
    nights: Iterable[StoredNight], excluded: Collection[str] = (), last: int | None = None
) -> tuple[Series, ...]:
    """The series of one case's ``nights`` (oldest first): of each target and host, in the newest segment there.

    Nights and runs that nothing is learned from (excluded, contended) are left out. ``excluded`` holds the uuids of the
    excluded runs: a night's A/B ratio rests on all of its runs. ``last`` keeps the newest nights. A/B ratios are those
    against the reference that is pinned now.
    """
    by_host: dict[tuple[str, str, str], list[StoredNight]] = {}
    for night in nights:
        record = night.record
        by_host.setdefault((record.case_id, record.target, record.segment.get("host", "")), []).append(night)
    found: list[Series] = []
    for (case_id, target, host), several in sorted(by_host.items()):
        here = [night for night in several if night.segment_digest == several[-1].segment_digest]
        here = here[-last:] if last else here
        usable = [night for night in here if night.rates]
        medians = tuple(_point(night, math.exp(statistics.median(night.rates))) for night in usable)
        pinned = sum(not night.current for night in usable)
        ratios = _ratios([night for night in usable if night.current], excluded)
        found.append(Series(case_id, target, host, SeriesKind.NIGHTS, medians, pinned))
        if ratios:
            found.append(Series(case_id, target, host, SeriesKind.PAIRS, ratios))
    return tuple(found)


def _ratios(nights: Sequence[StoredNight], excluded: Collection[str]) -> tuple[Point, ...]:
    points = []
    for night in nights:
        standing = night.record.standing
        if standing is None or not standing.pairs or standing.effect is None or standing.effect <= -1:
            continue
        if not set(night.record.run_uuids) & set(excluded):
            points.append(_point(night, 1 + standing.effect))
    return tuple(points)


def _point(night: StoredNight, value: float) -> Point:
    build = night.record.build
    commit = build.get("commit", "")
    parts = [build.get("framework", ""), build.get("version", ""), f"@{commit[:12]}" if commit else ""]
    return Point(night.record.created, night.record.session, value, " ".join(filter(None, parts)), commit)


@dataclass(frozen=True)
class LevelStep:
    """The level changes between the nights ``before`` and ``after``."""

    # Of the night ``after``.
    index: int
    # The change of the pieces' medians as a fraction: -0.02 is 2% slower.
    effect: float
    # Otava's.
    p: float
    before: Point
    after: Point
    # Who acknowledged the step, if anybody did.
    known: Acknowledgement | None = None
    # Whether a straight line fits the series better.
    part_of_drift: bool = False


@dataclass(frozen=True)
class Trend:
    """The steps and the drift of one series."""

    series: Series
    steps: tuple[LevelStep, ...] = ()
    drift: SlowDrift | None = None

    @property
    def too_short(self) -> bool:
        """Whether the series has too few nights for a step to be found."""
        return len(self.series.points) < LEAST_NIGHTS


def find_trends(
    several: Sequence[Series],
    acknowledgements: Iterable[Acknowledgement],
    detect: Detect,
    sensitivity: Sensitivity | None = None,
) -> tuple[Trend, ...]:
    """A trend for each series, in their order; Otava is asked once. Raises TrendError."""
    long_enough = [place for place, series in enumerate(several) if len(series.points) >= LEAST_NIGHTS]
    found = dict(zip(long_enough, detect([several[place].values for place in long_enough]), strict=True))
    known = tuple(acknowledgements)
    least = (sensitivity or Sensitivity()).min_magnitude
    return tuple(_trend(series, found.get(place, ()), known, least) for place, series in enumerate(several))


def _trend(
    series: Series, found: Sequence[ChangePoint], known: Sequence[Acknowledgement], least_effect: float
) -> Trend:
    cuts = [point.index for point in found]
    drift = find_drift(series.values, cuts, series.pinned_from, least_effect)
    logs = [math.log(value) for value in series.values]
    edges = [0, *cuts, len(logs)]
    steps = []
    for place, point in enumerate(found, start=1):
        before, after = logs[edges[place - 1] : edges[place]], logs[edges[place] : edges[place + 1]]
        step = LevelStep(
            point.index,
            math.expm1(statistics.median(after) - statistics.median(before)),
            point.p,
            series.points[point.index - 1],
            series.points[point.index],
            _acknowledged(series, point.index, known),
            drift is not None and drift.explains_steps and point.index > drift.first,
        )
        steps.append(step)
    return Trend(series, tuple(steps), drift)


def _acknowledged(series: Series, index: int, known: Sequence[Acknowledgement]) -> Acknowledgement | None:
    """The newest acknowledgement whose nights lie at most two from the step."""
    near = series.points[max(0, index - _WANDERS) : index + _WANDERS + 1]
    for each in sorted(known, key=lambda one: one.created, reverse=True):
        if any(each.covers(series.case_id, point.created) for point in near):
            return each
    return None
