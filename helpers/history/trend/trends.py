"""The trend of every case: its steps with the nights and builds they lie between, and its drift. Pure but for Otava."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helpers.history.stored import Acknowledgement
from helpers.history.trend.drift import Drift, find_drift
from helpers.history.trend.otava import ChangePoint, Detect, Sensitivity
from helpers.history.trend.series import Point, Series

# In fewer nights a step is not told from a bad night.
LEAST_NIGHTS = 5
# A change point moves by a night or two as nights are added to its series.
_WANDERS = 2


@dataclass(frozen=True)
class Step:
    """The level changes between the nights ``before`` and ``after``: ``effect`` is the change of the pieces' medians
    as a fraction (-0.02 is 2% slower), ``p`` Otava's. ``known`` is who acknowledged it, if anybody did.
    ``part_of_drift``: a straight line tells the series better.
    """

    index: int
    effect: float
    p: float
    before: Point
    after: Point
    known: Acknowledgement | None = None
    part_of_drift: bool = False


@dataclass(frozen=True)
class Trend:
    """What one series says. ``too_short`` where it has too few nights for a step to be found in."""

    series: Series
    steps: tuple[Step, ...] = ()
    drift: Drift | None = None

    @property
    def open_steps(self) -> tuple[Step, ...]:
        """The steps that nobody has acknowledged."""
        return tuple(step for step in self.steps if step.known is None)

    @property
    def too_short(self) -> bool:
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
        step = Step(
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
