"""The trend of every case: its series of nights, their steps between nights and builds, and their drift.

It is reported, and never a gate (docs/verdicts.md, "Trend"). Apache Otava finds the steps. Drift is a slope that no
single step explains: the median of the slopes of all pairs of nights without a step between them (Theil and Sen). Its
interval is Sen's (1968), over pieces as in Hirsch, Slack and Smith (1982). One bad night changes neither.
"""

from __future__ import annotations

import enum
import itertools
import math
import statistics
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from helpers.history.stored import Acknowledgement, StoredNight
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.job import finite

# Two-sided quantiles of the normal distribution: for the interval that is shown, and for a drift (as Otava's p).
_SHOWN_Z = 1.960
_SURE_Z = 3.291
# With fewer nights Kendall's statistic is not yet normal.
LEAST_DRIFT_NIGHTS = 10
# A piece with less spread than this has no noise from which a likelihood could be estimated.
_LEAST_DEVIATION = 1e-12


class TrendError(SuiteError):
    """Otava is missing or gave no answer."""


@dataclass(frozen=True)
class Sensitivity:
    """How small a step is found."""

    # How many nights are looked at together.
    window: int = 50
    max_p: float = 0.001
    # The smallest change, as a fraction.
    min_magnitude: float = 0.005


@dataclass(frozen=True)
class ChangePoint:
    """A step of a series."""

    # The index of the first value after the step.
    index: int
    # Otava's means of the values between neighbouring change points.
    before: float
    after: float
    # By Otava's t-test.
    p: float


# A function that finds the change points of each series.
Detect = Callable[[Sequence[Sequence[float]]], tuple[tuple[ChangePoint, ...], ...]]


def change_points(
    series: Sequence[Sequence[float]], sensitivity: Sensitivity | None = None
) -> tuple[tuple[ChangePoint, ...], ...]:
    """The change points of every series, in their order; the values are samples/s or ratios, finite and above 0.

    Raises TrendError if Otava is missing or gives no answer.
    """
    for place, values in enumerate(series):
        if wrong := [value for value in values if not finite(value) or value <= 0]:
            raise TrendError(f"series {place}", got=wrong[0], expected="numbers above 0, all finite")
    return tuple(_points(values, sensitivity or Sensitivity()) for values in series)


def _points(values: Sequence[float], sensitivity: Sensitivity) -> tuple[ChangePoint, ...]:
    try:
        # scipy.stats takes a second to import, longer than most commands take to answer.
        from otava.analysis import compute_change_points

        with warnings.catch_warnings():
            # Pieces without any spread divide by zero inside scipy, which then answers p = 0 as it should.
            warnings.simplefilter("ignore", RuntimeWarning)
            found, _ = compute_change_points(
                # It must be a list: Otava 0.8.0 slices an array differently.
                [float(value) for value in values],
                window_len=sensitivity.window,
                max_pvalue=sensitivity.max_p,
                min_magnitude=sensitivity.min_magnitude,
            )
        points = tuple(
            ChangePoint(
                int(point.index), float(point.stats.mean_1), float(point.stats.mean_2), float(point.stats.pvalue)
            )
            for point in found
        )
    except ImportError as error:
        raise _no_answer(str(error), remedy="Call: make env") from error
    # An error inside Otava means that there is no answer, and never that there is no step.
    except Exception as error:
        raise _no_answer(f"{type(error).__name__}: {error}") from error
    if not all(
        0 < point.index < len(values) and finite(point.p) and finite(point.before) and finite(point.after)
        for point in points
    ):
        raise _no_answer("a change point outside its series, or one that is no number")
    return points


def _no_answer(got: str, remedy: str | None = None) -> TrendError:
    return TrendError("Apache Otava", got=got, expected="change points", remedy=remedy)


# ---- slow drift


@dataclass(frozen=True)
class Slope:
    """The change of log rates a night, with its 95% interval."""

    slope: float
    low: float
    high: float
    # Whether the interval at p = 0.001 excludes 0.
    sure: bool


@dataclass(frozen=True)
class SlowDrift:
    """The total change by a slope over ``nights`` nights, of which index ``first`` is the first."""

    # A fraction with its 95% interval: -0.03 is 3% slower.
    effect: float
    low: float
    high: float
    nights: int
    first: int
    # Whether a straight line fits the series better than its steps do. If so, the steps are parts of the drift.
    explains_steps: bool = False

    @property
    def a_night(self) -> float:
        return math.expm1(math.log1p(self.effect) / (self.nights - 1))


def find_drift(values: Sequence[float], steps: Sequence[int], first: int, least_effect: float) -> SlowDrift | None:
    """The drift of ``values`` (rates above 0) from index ``first`` on; None if none is certain, or if it is smaller
    than ``least_effect``.

    ``steps`` are the indices at which a new level starts.
    """
    logs = [math.log(value) for value in values[first:]]
    cuts = [step - first for step in steps if step > first]
    if len(logs) < LEAST_DRIFT_NIGHTS:
        return None
    whole = slope_within([logs])
    line = bool(cuts) and whole is not None and _line_is_better(logs, cuts, whole.slope)
    slope = whole if line else slope_within(pieces(logs, cuts))
    if slope is None or not slope.sure:
        return None
    effect, low, high = (math.expm1(each * (len(logs) - 1)) for each in (slope.slope, slope.low, slope.high))
    if abs(effect) < least_effect:
        return None
    return SlowDrift(effect, low, high, len(logs), first, line)


def pieces(logs: Sequence[float], cuts: Sequence[int]) -> list[Sequence[float]]:
    """The parts between the cuts."""
    edges = [0, *cuts, len(logs)]
    return [logs[start:stop] for start, stop in itertools.pairwise(edges)]


def slope_within(parts: Sequence[Sequence[float]]) -> Slope | None:
    """One slope for all parts, each of which has a level of its own; None if there are too few pairs for an
    interval."""
    slopes = sorted(
        (part[later] - part[earlier]) / (later - earlier)
        for part in parts
        for later in range(len(part))
        for earlier in range(later)
    )
    variance = sum(len(part) * (len(part) - 1) * (2 * len(part) + 5) for part in parts) / 18
    bounds = _bounds(slopes, _SHOWN_Z * math.sqrt(variance))
    if bounds is None:
        return None
    sure = _bounds(slopes, _SURE_Z * math.sqrt(variance))
    return Slope(statistics.median(slopes), *bounds, sure is not None and (sure[0] > 0 or sure[1] < 0))


def _bounds(slopes: Sequence[float], ranks: float) -> tuple[float, float] | None:
    below, above = math.floor((len(slopes) - ranks) / 2), math.ceil((len(slopes) + ranks) / 2)
    if below < 0 or above >= len(slopes):
        return None
    return slopes[below], slopes[above]


def _line_is_better(logs: Sequence[float], cuts: Sequence[int], slope: float) -> bool:
    """Whether a line fits better, by Schwarz's criterion with absolute deviations. A line has two parameters, each step
    has a place and a level."""
    tilted = [value - slope * night for night, value in enumerate(logs)]
    levels = sum(_deviation(part) for part in pieces(logs, cuts))

    def cost(deviation: float, parameters: int) -> float:
        return 2 * len(logs) * math.log(max(deviation, _LEAST_DEVIATION)) + parameters * math.log(len(logs))

    return cost(_deviation(tilted), 2) < cost(levels, 2 * len(cuts) + 1)


def _deviation(part: Sequence[float]) -> float:
    centre = statistics.median(part)
    return sum(abs(value - centre) for value in part)


# ---- the series of a case, and their trends


# With fewer nights a step cannot be distinguished from a bad night.
LEAST_NIGHTS = 5
# A change point moves by a night or two as nights are added to its series.
_WANDERS = 2


class SeriesKind(enum.Enum):
    """The meaning of a point: a night's median samples/s, or the ratio of the build under test to the pinned good
    build."""

    NIGHTS = "nightly medians"
    PAIRS = "A/B ratios"


@dataclass(frozen=True)
class Point:
    """One night."""

    # When it was judged: UTC, ISO 8601.
    created: str
    # The local date on which its session began.
    day: str
    session: str
    # Samples/s by the median step, or the ratio of A/B pairs.
    value: float
    # The build that was measured, in words, and its commit; empty if it has none.
    build: str = ""
    commit: str = ""


@dataclass(frozen=True)
class Series:
    """The points of one case on one target of one host, oldest first, all of one segment."""

    case_id: str
    target: str
    host: str
    kind: SeriesKind
    points: tuple[Point, ...]
    # From this index on nights are compared with the present reference: the last start of a segment (a baseline
    # recorded anew, a confirmed improvement).
    pinned_from: int = 0

    @property
    def values(self) -> list[float]:
        """The values of all points, as the list that Otava needs."""
        return [point.value for point in self.points]


def series_of(
    nights: Iterable[StoredNight], excluded: Collection[str] = (), last: int | None = None
) -> tuple[Series, ...]:
    """The series of one case's ``nights`` (oldest first): of each target and host, in the newest segment there.

    Nights and runs from which nothing is learned (excluded, contended) are left out. ``excluded`` has the uuids of the
    excluded runs, because a night's A/B ratio is computed from all of its runs. ``last`` keeps the newest nights. A/B
    ratios are those to the reference that is pinned now.
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
    return Point(
        night.record.created, night.record.date, night.record.session, value, " ".join(filter(None, parts)), commit
    )


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
    # The acknowledgement of the step, if there is one.
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
        """Whether the series has too few nights to find a step."""
        return len(self.series.points) < LEAST_NIGHTS


def find_trends(
    several: Sequence[Series],
    acknowledgements: Iterable[Acknowledgement],
    detect: Detect,
    sensitivity: Sensitivity | None = None,
) -> tuple[Trend, ...]:
    """A trend for each series, in their order. Otava is called once. Raises TrendError."""
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
    """The newest acknowledgement whose nights are at most two nights from the step."""
    near = series.points[max(0, index - _WANDERS) : index + _WANDERS + 1]
    for each in sorted(known, key=lambda one: one.created, reverse=True):
        if any(each.covers(series.case_id, point.day, point.created) for point in near):
            return each
    return None
