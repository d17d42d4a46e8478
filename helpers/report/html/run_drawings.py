"""Tonight's runs of a case: the pairs with the reference build, and the steps of each run."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import svg

from helpers.common.words import counted
from helpers.drawing.axes import Scale, drawing, grid, label, line, span_of
from helpers.judging.case.evidence import Build
from helpers.report.html.marks import GOOD, mark
from helpers.report.row import Pair
from helpers.session.case_details import RunSteps

_WIDTH, _HEIGHT = 380, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 370, 22, 180
# A run of more steps is drawn by the medians of as many groups of neighbours.
MOST_POINTS = 90
_MOST_NUMBERS = 8


@dataclass(frozen=True)
class DrawnRun:
    """The steps of one run, in seconds."""

    name: str
    steps: RunSteps
    # How its line looks: run0, run1, run2 or of-good.
    kind: str


def draw_pairs(pairs: Sequence[Pair], status: str, unit: str) -> svg.SVG | None:
    """Each pair as two marks and the line between them: the reference build's and the new one's; None without pairs."""
    if not pairs:
        return None
    values = [rate for each in pairs for rate in (each.reference_samples_per_s, each.candidate_samples_per_s)]
    rates = Scale(*span_of(values, 0.02), _BOTTOM, _TOP)
    places = Scale(0.5, len(pairs) + 0.5, _LEFT, _RIGHT)
    parts: list[svg.Element] = [*grid(rates, _LEFT, _RIGHT), label(unit, 0, _TOP - 10)]
    every = math.ceil(len(pairs) / _MOST_NUMBERS)
    for at, each in enumerate(pairs, 1):
        x, good, new = places(at), rates(each.reference_samples_per_s), rates(each.candidate_samples_per_s)
        # The first of the two stands a little to the left.
        apart = -2 if each.first == Build.REFERENCE.value else 2
        parts += [line([(x + apart, good), (x - apart, new)], "between")]
        parts += [mark(GOOD, x + apart, good), mark(status, x - apart, new)]
        if (at - 1) % every == 0:
            parts.append(label(str(at), x, _BOTTOM + 16, "m"))
    parts.append(label("pair", (_LEFT + _RIGHT) / 2, _BOTTOM + 32, "m"))
    slower = sum(each.difference < 0 for each in pairs)
    middle = statistics.median(each.difference for each in pairs)
    name = (
        f"{counted(len(pairs), 'pair')} with the reference build: the new one is slower in {slower}, "
        f"the middle difference is {middle:+.2%}"
    )
    return drawing(_WIDTH, _HEIGHT, name, parts)


def draw_steps(drawn: Sequence[DrawnRun]) -> svg.SVG | None:
    """Milliseconds a step over the steps of each run, warm-up and window apart; None if no step is known."""
    drawn = [each for each in drawn if each.steps.warmup or each.steps.window]
    runs = [each.steps for each in drawn]
    if not runs:
        return None
    times = [1e3 * each for run in runs for each in _thinned((*run.warmup, *run.window))]
    warmup = max(len(run.warmup) for run in runs)
    window = max(len(run.window) for run in runs)
    # A first step that compiles may take a hundred times the others: it is cut at the edge.
    low, high = span_of([each for each in times if each <= 3 * statistics.median(times)] or times, 0.1)
    axis = Scale(low, high, _BOTTOM, _TOP)
    places = Scale(0.5 - warmup, window + 0.5, _LEFT, _RIGHT)
    parts: list[svg.Element] = []
    if warmup:
        width = round(places(0.5) - _LEFT, 1)
        parts.append(svg.Rect(x=_LEFT, y=_TOP, width=width, height=_BOTTOM - _TOP, class_=["warmup"]))
        parts.append(label(f"warm-up: {counted(warmup, 'step')}", _LEFT + 2, _BOTTOM + 16))
    parts.append(label(f"window: {counted(window, 'step')}", _RIGHT, _BOTTOM + 16, "e"))
    parts += [*grid(axis, _LEFT, _RIGHT), label("ms a step", 0, _TOP - 10)]
    for each in drawn:
        parts += _steps(each, axis, places)
    if max(times) > high:
        parts.append(label(f"the slowest: {max(times):.4g} ↑", _LEFT + 4, _TOP + 12))
    middle = statistics.median(each for run in runs for each in (run.window or run.warmup))
    name = (
        f"step times of {counted(len(runs), 'run')}, {counted(warmup, 'step')} of warm-up and {window} of the window; "
        f"the middle step takes {1e3 * middle:.4g} ms"
    )
    return drawing(_WIDTH, _HEIGHT, name, parts)


def _steps(drawn: DrawnRun, axis: Scale, places: Scale) -> Iterator[svg.Element]:
    run, kind = drawn.steps, drawn.kind
    for seconds, first in ((run.warmup, 1 - len(run.warmup)), (run.window, 1)):
        shown = _thinned(seconds)
        every = len(seconds) / len(shown) if shown else 1
        points = [(places(first + at * every), axis.within(1e3 * each)) for at, each in enumerate(shown)]
        if len(points) > 1:
            yield line(points, "steps", kind)
        elif points:
            yield svg.Circle(cx=points[0][0], cy=points[0][1], r=2, class_=["dot", kind])


def _thinned(seconds: Sequence[float]) -> list[float]:
    """The steps, or the medians of MOST_POINTS groups of neighbours."""
    if len(seconds) <= MOST_POINTS:
        return list(seconds)
    ends = [round(at * len(seconds) / MOST_POINTS) for at in range(MOST_POINTS + 1)]
    return [statistics.median(seconds[a:b]) for a, b in itertools.pairwise(ends)]
