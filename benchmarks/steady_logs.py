"""Would published runs have been steady? ``python -m benchmarks.steady_logs FOLDER``.

FOLDER holds training logs that ``perfgate import-log`` reads. Each run's steps are taken in windows of 20, and every
three neighbouring ones are held against the limit of many looks and of one look (``standard_errors`` of the step log);
"agreed" is the step at which ranks that look after every window end their warm-up. Where a log prints every step the
standard error is the trainer's own, of the window in the middle; where it prints less, that of the log's windows from
one to the next.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.judging.statistics import robust_sigma
from helpers.logs.figures.series import cards_of, images_per_step, stretches, usual_distance
from helpers.logs.importer import runs_of
from helpers.logs.record import LogRun, RecordField
from helpers.logs.sources.source import open_logs
from helpers.report.unforeseen import ended
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.job import STEADY_WINDOWS
from helpers.trainers.contract.steplog import STEADY_SHARE, standard_errors, steadiness

WINDOW_STEPS = 20
# As perf.yaml's protocols have them for one published run: fleetx's least and paddleclas's most.
LEAST_STEPS, MOST_STEPS = 60, 300


@dataclass(frozen=True)
class Place:
    """Three neighbouring windows that end at ``end``: how far apart, and one standard error, both as shares."""

    end: int
    spread: float
    error: float

    def steady(self, looked_once: bool) -> bool:
        return self.spread <= max(STEADY_SHARE, standard_errors(WINDOW_STEPS, looked_once) * self.error)


@dataclass(frozen=True)
class Finding:
    """A run's places; ``record_steps`` steps stand in one record."""

    name: str
    cards: int
    record_steps: int
    places: tuple[Place, ...]

    def agreed(self) -> int | None:
        """The step at which ranks that look after every window end their warm-up; None: never steady."""
        looks = (each for each in self.places if LEAST_STEPS <= each.end <= MOST_STEPS)
        return next((each.end for each in looks if each.steady(looked_once=False)), None)

    def last_look(self, looked_once: bool) -> bool:
        """Whether the one look at the end of the budget, or of a shorter log, finds it steady."""
        return [each for each in self.places if each.end <= MOST_STEPS][-1].steady(looked_once)

    def share(self, wanted: Sequence[bool]) -> str:
        return f"{sum(wanted) / len(self.places):.0%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="Read every log in this folder")
    parser.add_argument("--cards", type=int, default=8, help="Of runs on N cards or more")
    arguments = parser.parse_args()
    found, left_out = examine(arguments.folder, arguments.cards)
    print("\n".join(table(found)))
    for each in left_out:
        print(f"left out: {each}")
    return 0 if found else 1


def examine(folder: Path, cards: int) -> tuple[list[Finding], list[str]]:
    """What the logs of ``folder`` say, and which runs say nothing and why."""
    found: list[Finding] = []
    left_out: list[str] = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = path.relative_to(folder).as_posix()
        try:
            runs = [run for log in open_logs(path) for run in runs_of(log, {})]
            found += [one for run in runs if cards_of(run) >= cards for one in _finding(name, run, left_out)]
        except SuiteError as error:
            left_out.append(f"{name}: {str(error)[:100]}")
    return found, left_out


def _finding(name: str, run: LogRun, left_out: list[str]) -> Iterator[Finding]:
    record_steps, seconds = steps_a_record(run), step_seconds(run)
    places = places_of(seconds, record_steps) if WINDOW_STEPS % record_steps == 0 else ()
    if places:
        yield Finding(f"{name} run {run.number}", cards_of(run), record_steps, places)
    else:
        left_out.append(f"{name} run {run.number}: {len(seconds)} records of {record_steps} steps")


def steps_a_record(run: LogRun) -> int:
    """How many steps most records stand for; by the time between them where the log's lines name no step."""
    if RecordField.SPAN_END in run.columns:
        return round(statistics.median(float(each) for part in stretches(run) for each in part.steps))
    if RecordField.STEP in run.columns or len(run.stamps) < 3:
        return round(usual_distance(run))
    between = [later.seconds - sooner.seconds for sooner, later in zip(run.stamps, run.stamps[1:-1], strict=False)]
    return max(1, round(statistics.median(between) / statistics.median(step_seconds(run))))


def step_seconds(run: LogRun) -> list[float]:
    """Seconds of a step by record, of those records that took time."""
    return [images_per_step(run) / float(rate) for part in stretches(run) for rate in part.rates()]


def places_of(seconds: Sequence[float], record_steps: int) -> tuple[Place, ...]:
    """Every three neighbouring windows of a run, whose records stand for ``record_steps`` steps each."""
    size = WINDOW_STEPS // record_steps
    means = [statistics.fmean(seconds[at : at + size]) for at in range(0, len(seconds) - size + 1, size)]
    if len(means) < STEADY_WINDOWS:
        return ()
    # About their median, so that a steady decline is no noise.
    between = robust_sigma([later - sooner for sooner, later in itertools.pairwise(means)])
    places = []
    for last in range(STEADY_WINDOWS, len(means) + 1):
        three = means[last - STEADY_WINDOWS : last]
        centre = statistics.fmean(three)
        error = between / math.sqrt(2) / centre
        if record_steps == 1:
            found = steadiness(seconds[: last * size], WINDOW_STEPS)
            error = found.limit / standard_errors(WINDOW_STEPS) if found.limit > STEADY_SHARE else 0.0
        places.append(Place(last * WINDOW_STEPS, (max(three) - min(three)) / centre, error))
    return tuple(places)


def table(found: Sequence[Finding]) -> list[str]:
    """Markdown: a row a run, and how many runs are steady."""
    lines = [
        "| run | cards | steps a record | places | over 0.3% | unsteady by many looks' limit | by one's | agreed |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in found:
        lines.append(
            f"| {each.name} | {each.cards} | {each.record_steps} | {len(each.places)} "
            f"| {each.share([place.spread > STEADY_SHARE for place in each.places])} "
            f"| {each.share([not place.steady(looked_once=False) for place in each.places])} "
            f"| {each.share([not place.steady(looked_once=True) for place in each.places])} "
            f"| {each.agreed() or 'never'} |"
        )
    of = len(found)
    lines += [
        "",
        f"one look, the limit of many: {sum(each.last_look(looked_once=False) for each in found)} of {of} steady",
        f"one look, its own limit: {sum(each.last_look(looked_once=True) for each in found)} of {of} steady",
        f"ranks agree after every window: {sum(each.agreed() is not None for each in found)} of {of} steady",
    ]
    return lines


if __name__ == "__main__":
    sys.exit(ended(main, "steady_logs"))
