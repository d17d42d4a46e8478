"""Decides from the logs of all ranks whether a run was steady when its measured window began; if not, writes a plot
that shows why."""

from __future__ import annotations

import html
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.machine.files import write_whole
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import STEADY_WINDOWS, JobSpec
from helpers.trainers.contract.steplog import (
    LOOKED_ONCE,
    STEADINESS_FACT,
    STEADY_SHARE,
    Steadiness,
    StepLog,
    standard_errors,
    steadiness,
)

# 1: first format.
PLOT_SCHEMA_VERSION = 1
PLOT_DATA, PLOT = "steadiness.json", "steadiness.svg"

_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 380, 80, 50
_INNER, _TALL = _WIDTH - _LEFT - 20, _HEIGHT - _TOP - 56
# Colours that colour-blind readers can tell apart (Okabe and Ito), one for each rank. With more ranks than colours,
# only the worst rank has a colour.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
_OTHERS = "#bbb"


def steadiness_of(spec: JobSpec, log: StepLog) -> Steadiness:
    """The steadiness of one rank when its window began, computed as in the trainer from the same numbers."""
    return steadiness([step.step_seconds for step in log.warmup], spec.steady_window_steps, _looked_once(log))


def _looked_once(log: StepLog) -> bool:
    return log.header.facts.get(STEADINESS_FACT) == LOOKED_ONCE


def _of_all_ranks(spec: JobSpec, logs: Sequence[StepLog]) -> Steadiness:
    """The steadiness of the mean over the ranks' steps: one test for the job. Testing each rank would be as many tests
    as there are ranks, and fail more often by chance."""
    steps = zip(*([step.step_seconds for step in log.warmup] for log in logs), strict=True)
    return steadiness([statistics.fmean(seconds) for seconds in steps], spec.steady_window_steps, looked_once=True)


def why_unsteady(spec: JobSpec, logs: Sequence[StepLog]) -> str | None:
    """Why the run is not a measurement, with the numbers of its worst rank; None if it was steady or did not have to
    be."""
    if not spec.steady_window_steps:
        return None
    once = any(map(_looked_once, logs))
    if once:
        found = [("the ranks' mean step: the", _of_all_ranks(spec, logs))]
    else:
        found = [(f"rank {log.header.rank}'s", steadiness_of(spec, log)) for log in logs]
    if all(each.steady for _, each in found):
        return None
    whose, worst = found[_worst([each for _, each in found])]
    seconds = ", ".join(f"{mean:.4g}" for mean in worst.means)
    errors = standard_errors(spec.steady_window_steps, once)
    return (
        f"never steady: {whose} last {STEADY_WINDOWS} windows of {spec.steady_window_steps} warm-up "
        f"steps took {seconds} s a step, {worst.spread:.2%} apart; at most {worst.limit:.2%} is steady (the larger of "
        f"{STEADY_SHARE:.1%} and {errors:.3g} standard errors of a window{', for one look' if once else ''}); "
        f"{len(logs[0].warmup)} warm-up steps were made, at most {spec.longest_warmup_steps} are (most_warmup_steps in "
        f"perf.yaml); "
        f"see {Path(spec.run_folder) / PLOT} and {PLOT_DATA}"
    )


def _worst(found: Sequence[Steadiness]) -> int:
    """The index of the worst rank: one that is not steady comes first, then the one with the largest spread."""
    return max(range(len(found)), key=lambda at: (not found[at].steady, found[at].spread))


def write_plot(spec: JobSpec, logs: Sequence[StepLog]) -> None:
    """Write the plot and its data into the run folder. Raises LaunchError when the disk refuses."""
    for name, text in ((PLOT_DATA, plot_data(spec, logs)), (PLOT, plot(spec, logs))):
        path = Path(spec.run_folder) / name
        try:
            write_whole(path, text.encode())
        except OSError as error:
            raise LaunchError(
                f"plot {path}", got=str(error), expected="room for a few kilobytes", remedy="Free the disk"
            ) from error


def plot_data(spec: JobSpec, logs: Sequence[StepLog]) -> str:
    """A JSON text with the seconds of each step by rank, the step at which the window begins, the means of the last
    warm-up windows, and the limit."""
    ranks = []
    for log in logs:
        found = steadiness_of(spec, log)
        ranks.append(
            {
                "rank": log.header.rank,
                "steady": found.steady,
                "window_mean_seconds": list(found.means),
                "spread": found.spread,
                "limit": found.limit,
                "step_seconds": [step.step_seconds for step in log.steps],
            }
        )
    record = {
        "schema_version": PLOT_SCHEMA_VERSION,
        "case_id": spec.case.id,
        "replicate": spec.replicate,
        "steady_window_steps": spec.steady_window_steps,
        "warmup_steps": len(logs[0].warmup),
        "most_warmup_steps": spec.longest_warmup_steps,
        "ranks": ranks,
    }
    return json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"


def plot(spec: JobSpec, logs: Sequence[StepLog]) -> str:
    """An SVG of the seconds of each step by rank. Bars are the means of the judged warm-up windows; the measured window
    begins at the dashed line.

    It is drawn without pygal: importing pygal replaces the metadata finder of the process, which here is pytest's.
    """
    axes = _axes_of(spec, logs)
    found = [steadiness_of(spec, log) for log in logs]
    worst = _worst(found)
    colours = [_colour(rank, worst, len(logs)) for rank in range(len(logs))]
    coloured = range(len(logs)) if len(logs) <= len(_COLOURS) else [worst]
    titles = [
        f'<tspan fill="{colours[rank]}">rank {logs[rank].header.rank}</tspan>: '
        f"{found[rank].spread:.2%} apart, limit {found[rank].limit:.2%}"
        for rank in coloured
    ]
    if len(coloured) < len(logs):
        titles.append(f"{sum(not each.steady for each in found)} of {len(logs)} ranks are not steady; the others: grey")
    parts = [
        f'<text x="{_LEFT}" y="18" font-size="14">{html.escape(spec.case.id)}, run {spec.replicate + 1}</text>',
        f'<text x="{_LEFT}" y="38">{"; ".join(titles)}</text>',
        *axes.frame(),
    ]
    # The worst rank is drawn on top of the others, and the bars on top of all ranks.
    for rank in sorted(range(len(logs)), key=lambda rank: rank == worst):
        seconds = [step.step_seconds for step in logs[rank].steps]
        points = " ".join(f"{axes.x(number + 0.5)},{axes.y(value)}" for number, value in enumerate(seconds))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[rank]}"/>')
    size = spec.steady_window_steps
    for rank in coloured:
        for number, mean in enumerate(reversed(found[rank].means)):
            end, height = axes.warmup - number * size, axes.y(mean)
            parts.append(
                f'<line x1="{axes.x(end - size)}" x2="{axes.x(end)}" y1="{height}" y2="{height}" '
                f'stroke="{colours[rank]}" stroke-width="4"/>'
            )
    body = "\n".join([*parts, *axes.phases()])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


@dataclass(frozen=True)
class _Axes:
    """The axes: horizontally ``steps`` steps, of which ``warmup`` are warm-up; vertically seconds of a step, from
    ``low`` to ``high``."""

    warmup: int
    steps: int
    low: float
    high: float

    def x(self, step: float) -> float:
        return round(_LEFT + _INNER * step / self.steps, 1)

    def y(self, seconds: float) -> float:
        # The first steps may take a hundred times as long; they are cut at the frame.
        return round(_TOP + _TALL * (1 - (min(seconds, self.high) - self.low) / (self.high - self.low)), 1)

    def frame(self) -> list[str]:
        middle = 'text-anchor="middle"'
        return [
            f'<rect x="{_LEFT}" y="{_TOP}" width="{_INNER}" height="{_TALL}" fill="none" stroke="#999"/>',
            f'<text x="{_LEFT + _INNER / 2}" y="{_HEIGHT - 12}" {middle}>step</text>',
            f'<text transform="translate(18 {_TOP + _TALL / 2}) rotate(-90)" {middle}>seconds a step</text>',
            *(
                f'<text x="{_LEFT - 6}" y="{self.y(value) + 4}" text-anchor="end">{value:.4g}</text>'
                for value in (self.low, (self.low + self.high) / 2, self.high)
            ),
            *(
                f'<text x="{self.x(step)}" y="{_TOP + _TALL + 16}" {middle}>{step}</text>'
                for step in sorted({0, self.warmup, self.steps})
            ),
        ]

    def phases(self) -> list[str]:
        at = self.x(self.warmup)
        return [
            f'<line x1="{at}" x2="{at}" y1="{_TOP}" y2="{_TOP + _TALL}" stroke="#000" stroke-dasharray="4 3"/>',
            f'<text x="{at - 4}" y="{_TOP + 14}" text-anchor="end">warm-up; bars: means of its last windows</text>',
            f'<text x="{at + 4}" y="{_TOP + 14}">measured</text>',
        ]


def _axes_of(spec: JobSpec, logs: Sequence[StepLog]) -> _Axes:
    """The axes, scaled to the steps that were judged or measured; the slow start of warm-up would flatten them."""
    warmup = len(logs[0].warmup)
    first = max(0, warmup - STEADY_WINDOWS * spec.steady_window_steps)
    shown = [step.step_seconds for log in logs for step in log.steps[first:]]
    return _Axes(warmup, max(len(log.steps) for log in logs), 0.98 * min(shown), 1.02 * max(shown))


def _colour(rank: int, worst: int, ranks: int) -> str:
    if ranks <= len(_COLOURS):
        return _COLOURS[rank]
    return _COLOURS[0] if rank == worst else _OTHERS
