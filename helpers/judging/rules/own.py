"""Measuring rules: how a run's step logs become samples/s, by our rules and by the publishers'.

A rank is a process; a step's samples are those of all cards that it drives. So one process with 8 cards has the figure
of 8 processes whose steps take as long.
Every rule is a pure function of the step logs of all ranks of one run, followed by a rule over runs
(docs/published.md, "What throughput means in each source"). Ours, ``wall-clock``, is samples of
all ranks over the wall time of the slowest rank in the measured window.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from helpers.judging.rules.publishers import PUBLISHERS_RULES, Rule, RuleError, RuleValue, if_any
from helpers.trainers.contract.records import finite
from helpers.trainers.contract.steplog import Step, StepLog

WALL_CLOCK = "wall-clock"
MEDIAN_STEP = "median-step"


@dataclass(frozen=True)
class CaseFigure:
    """A case's samples/s by one rule."""

    rule: str
    # The median over runs, and their mean; both None if the rule does not apply.
    samples_per_s: float | None
    average_samples_per_s: float | None
    # The figures of the runs for which the rule could be computed, also if it does not apply to the case.
    run_samples_per_s: tuple[float, ...]
    # Why the rule does not apply; empty if it does.
    reason: str = ""


def figures(logs: Sequence[StepLog]) -> dict[str, float | str]:
    """The samples/s of one run by every rule, or the reason why a rule does not apply.

    ``logs`` are those of all ranks in rank order. Raises RuleError if one is missing, foreign or out of place.
    """
    _check_whole_run(logs)
    out: dict[str, float | str] = {}
    for rule in RULES.values():
        try:
            samples_per_s = rule.of_steps(logs).samples_per_s
        except RuleError as error:
            out[rule.name] = str(error)
            continue
        usable = finite(samples_per_s) and samples_per_s > 0
        out[rule.name] = samples_per_s if usable else f"rule {rule.name}: got {samples_per_s}, expected a finite rate"
    return out


def over_runs(runs: Sequence[Mapping[str, float | str]]) -> tuple[CaseFigure, ...]:
    """The figure of a case by every rule, from what ``figures`` returned for each of its runs; empty without runs.

    A publisher's rule over runs ("7 runs, the median") needs at least as many runs. More are allowed: DLPerf's own logs
    list 6 where its rule says 5.
    """
    return tuple(case_figure(rule, runs) for rule in RULES if runs)


def case_figure(rule: str, runs: Sequence[Mapping[str, float | str]]) -> CaseFigure:
    """One rule's figure as in ``over_runs``. A rule that is not in RULES was not computed, so it has none."""
    found = [run_figure(rule, figures_of_run) for figures_of_run in runs]
    rates = tuple(float(each) for each in found if not isinstance(each, str))
    needed = RULES[rule].runs if rule in RULES else 1
    reason = next((each for each in found if isinstance(each, str)), "")
    if not reason and len(rates) < needed:
        reason = f"rule {rule} is the median of {needed} runs, {len(rates)} were made"
    if reason:
        return CaseFigure(rule, None, None, rates, reason)
    return CaseFigure(rule, statistics.median(rates), statistics.fmean(rates), rates)


def median_over_runs(rule: str, runs: Sequence[Mapping[str, float | str]]) -> float | str:
    """The figure of a case by one rule, or why there is none."""
    found = case_figure(rule, runs)
    return found.reason if found.samples_per_s is None else found.samples_per_s


def run_figure(rule: str, figures_of_run: Mapping[str, float | str]) -> float | str:
    """A run's samples/s by ``rule``, or why there are none. A figure that is not a positive number counts as none."""
    figure = figures_of_run.get(rule, f"rule {rule} was not computed")
    if isinstance(figure, str) or (finite(figure) and figure > 0):
        return figure
    return f"rule {rule} gave {figure!r}, which is not a throughput"


def step_seconds(logs: Sequence[StepLog]) -> tuple[float, ...]:
    """Seconds of each window step: the maximum over ranks, since the slowest holds all others."""
    windows = _windows(logs)
    return tuple(max(step.step_seconds for step in steps) for steps in zip(*windows, strict=True))


def samples_per_step(logs: Sequence[StepLog]) -> tuple[int, ...]:
    """The samples of all ranks in each window step."""
    return tuple(sum(step.samples for step in steps) for steps in zip(*_windows(logs), strict=True))


def window_seconds(logs: Sequence[StepLog]) -> float:
    """Wall time of the slowest rank over the window. Hosts' monotonic clocks are never mixed."""
    return max(window[-1].end - window[0].start for window in _windows(logs))


def reader_share(logs: Sequence[StepLog]) -> float:
    """Share of the window that the rank which waited most for data spent waiting."""
    return max(
        sum(step.reader_seconds for step in window) / (window[-1].end - window[0].start) for window in _windows(logs)
    )


def wall_clock(logs: Sequence[StepLog]) -> float:
    """Samples of all ranks / wall time of the slowest rank over the measured window, samples/s."""
    return sum(samples_per_step(logs)) / window_seconds(logs)


def median_step(logs: Sequence[StepLog]) -> float:
    """Samples of all ranks in a step / the seconds of the median step. Recorded comparisons are made by this rule.

    The median of 100 steps varies a third as much as their mean if one step in a hundred stalls (docs/verdicts.md,
    "How much speeds vary").
    """
    return statistics.median(samples_per_step(logs)) / statistics.median(step_seconds(logs))


def _of_window(samples_per_s: Callable[[Sequence[StepLog]], float]) -> Callable[[Sequence[StepLog]], RuleValue]:
    def of_steps(logs: Sequence[StepLog]) -> RuleValue:
        warmup = if_any(len(logs[0].warmup), "steps of warm-up")
        return RuleValue(samples_per_s(logs), len(logs[0].window), warmup)

    return of_steps


def _check_whole_run(logs: Sequence[StepLog]) -> None:
    """Raise RuleError unless ``logs`` are all ranks of one job: a lost rank would pass for a slower run."""
    about = "step logs of " + (", ".join(log.path for log in logs) or "a run")
    ranks = [log.header.rank for log in logs]
    sizes = sorted({log.header.world_size for log in logs})
    if not logs or sizes != [len(logs)] or ranks != list(range(len(logs))):
        raise RuleError(about, field="rank", got=f"ranks {ranks} of {sizes}", expected="one log a rank, in rank order")
    driven = sorted({log.header.cards_per_process for log in logs})
    if len(driven) > 1:
        expected = "as many cards a process in every rank"
        raise RuleError(about, field="cards_per_process", got=driven, expected=expected)
    if len({log.header.job_id for log in logs}) > 1:
        raise RuleError(about, field="job_id", got=[log.header.job_id for log in logs], expected="one job")


def _windows(logs: Sequence[StepLog]) -> list[tuple[Step, ...]]:
    windows = [log.window for log in logs]
    lengths = sorted({len(window) for window in windows})
    if not lengths or lengths[0] == 0 or len(lengths) > 1:
        raise RuleError(
            "step logs of " + ", ".join(log.path for log in logs),
            field="window",
            got=f"{lengths} steps",
            expected="the same number of window steps, at least 1, in every rank",
        )
    return windows


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            Rule(WALL_CLOCK, "samples of all ranks / wall time of the slowest", _of_window(wall_clock)),
            Rule(MEDIAN_STEP, 'docs/verdicts.md, "Measure": x = -log(median step seconds)', _of_window(median_step)),
            *PUBLISHERS_RULES,
        )
    }
)
