"""Shows why a run was never steady: writes a drawing and its data into the run's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import svg

from helpers.drawing.axes import Scale, drawing, grid, label, line, on_its_own
from helpers.launch.steadiness import PLOT, PLOT_DATA, steadiness_of, worst_of
from helpers.machine.files import write_whole
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import STEADY_WINDOWS, JobSpec
from helpers.trainers.contract.steplog import Steadiness, StepLog

# 1: first format.
PLOT_SCHEMA_VERSION = 1

_WIDTH, _LEFT, _RIGHT, _TALL = 900, 70, 880, 270
_LINE = 15
# The classes of the ranks' lines. With more ranks than classes, only the worst rank is highlighted.
_KINDS = ("run0", "run1", "run2", "run3")
_OTHERS = "other"


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
    begins at the dashed line."""
    found = [steadiness_of(spec, log) for log in logs]
    worst = worst_of(found)
    named = range(len(logs)) if len(logs) <= len(_KINDS) else [worst]
    kinds = {rank: _KINDS[place] for place, rank in enumerate(named)}
    notes = [(_note(logs[rank], found[rank]), kinds[rank]) for rank in named]
    if len(kinds) < len(logs):
        notes.append((f"{sum(not each.steady for each in found)} of {len(logs)} ranks are not steady", "quiet"))
    top = _LINE * len(notes) + 14
    bottom = top + _TALL

    warmup, size = len(logs[0].warmup), spec.steady_window_steps
    # Scaled to the steps that were judged or measured. The slow start of warm-up would flatten them, so it is cut at
    # the edge.
    judged = [step.step_seconds for log in logs for step in log.steps[max(0, warmup - STEADY_WINDOWS * size) :]]
    seconds = Scale(0.98 * min(judged), 1.02 * max(judged), bottom, top)
    steps = Scale(0, max(len(log.steps) for log in logs), _LEFT, _RIGHT)

    parts: list[svg.Element] = [label(text, 0, _LINE * at, kind) for at, (text, kind) in enumerate(notes)]
    parts += [*grid(seconds, _LEFT, _RIGHT), label("s a step", _LEFT - 6, top - 10, "e")]
    # The worst rank is drawn on top of the others, and the bars on top of all ranks.
    for rank in sorted(range(len(logs)), key=lambda rank: rank == worst):
        points = [(steps(at + 0.5), seconds.within(each.step_seconds)) for at, each in enumerate(logs[rank].steps)]
        parts.append(line(points, "steps", kinds.get(rank, _OTHERS)))
    for rank in named:
        for place, mean in enumerate(reversed(found[rank].means)):
            end, height = warmup - place * size, seconds(mean)
            parts.append(line([(steps(end - size), height), (steps(end), height)], "mean", kinds[rank]))
    parts += [*_phases(steps(warmup), top, bottom)]
    parts += [label(str(at), steps(at), bottom + 16, "m") for at in sorted({0, warmup, int(steps.high)})]
    parts.append(label("step", (_LEFT + _RIGHT) / 2, bottom + 32, "m"))
    title = f"{spec.case.id}, run {spec.replicate + 1}: seconds a step"
    return on_its_own(drawing(_WIDTH, bottom + 36, title, parts), title)


def _note(log: StepLog, found: Steadiness) -> str:
    return f"rank {log.header.rank}: {found.spread:.2%} apart, limit {found.limit:.2%}"


def _phases(start: float, top: float, bottom: float) -> Iterator[svg.Element]:
    yield line([(start, top), (start, bottom)], "segment")
    yield label("warm-up; bars: means of its last windows", start - 4, top + 14, "e")
    yield label("measured", start + 4, top + 14)
