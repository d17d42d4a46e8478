"""Change points of many series by Apache Otava."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.job import finite


class TrendError(SuiteError):
    """Otava is missing or gave no answer."""


@dataclass(frozen=True)
class Sensitivity:
    """What counts as a step (docs/verdicts.md, "Trend"): ``window`` nights are looked at together, ``max_p`` is the
    significance, ``min_magnitude`` the smallest change as a fraction."""

    window: int = 50
    max_p: float = 0.001
    min_magnitude: float = 0.005


@dataclass(frozen=True)
class ChangePoint:
    """The series changes at ``index``, its first value after the step; ``before`` and ``after`` as Otava has them:
    means of what lies between neighbouring change points. ``p`` by its t-test."""

    index: int
    before: float
    after: float
    p: float


# What finds the change points of each series.
Detect = Callable[[Sequence[Sequence[float]]], tuple[tuple[ChangePoint, ...], ...]]


def change_points(
    series: Sequence[Sequence[float]], sensitivity: Sensitivity | None = None
) -> tuple[tuple[ChangePoint, ...], ...]:
    """The change points of every series, in their order; the values are images/s or ratios, finite and above 0.

    Raises TrendError without Otava and where it gives no answer.
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
                # A list on purpose: given an array, Otava 0.8.0 slices it differently.
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
    # Whatever breaks in Otava is no answer, and never no step.
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
