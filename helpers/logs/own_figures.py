"""What the step logs of one run come to: every rule's figure, the spread, and what is to be doubted."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from helpers.judging.rules import (
    COUNTED_STEPS,
    MEDIAN_STEP,
    PADDLECLAS_SKIPPED_RECORDS,
    RULES,
    SKIPPED_STEPS,
    WALL_CLOCK,
    figures,
    paddleclas_ends,
    paddleclas_records,
    samples_per_step,
    step_seconds,
)
from helpers.judging.rules_publishers import ngc_pytorch_skipped
from helpers.judging.statistics import number
from helpers.logs.imported import RuleFigure, Spread
from helpers.trainers.contract.job import SLOWDOWN_FACT
from helpers.trainers.contract.steplog import StepLog

Logs = Sequence[StepLog]
# How many steps or records a rule used, and which it left out.
Used = tuple[int, tuple[str, ...]]

# Fewer steps than the shortest window say little of a step's scatter.
_FEW_STEPS = 30
_SLOW_LAST = 0.10


def rule_figures(logs: Logs) -> tuple[RuleFigure, ...]:
    """By every rule of ours and of the publishers; where one cannot be computed, its reason."""
    return tuple(_figure(name, samples_per_s, logs) for name, samples_per_s in figures(logs).items())


def spread_of(logs: Logs) -> Spread | None:
    """Of the window's steps; None where there is none."""
    rates = _rates(logs)
    if not rates:
        return None
    variation = statistics.stdev(rates) / statistics.fmean(rates) if len(rates) > 1 else 0.0
    return Spread(len(rates), statistics.median(rates), variation, min(rates), max(rates))


def doubts(logs: Logs) -> tuple[str, ...]:
    return tuple(_doubts(logs, _rates(logs)))


def _doubts(logs: Logs, rates: Sequence[float]) -> Iterator[str]:
    for log in logs:
        if share := log.header.facts.get(SLOWDOWN_FACT):
            rank = log.header.rank
            yield f"rank {rank} was slowed down on purpose, by {share} of each step: no measurement of its case"
    if len(rates) < _FEW_STEPS:
        yield f"few steps: {len(rates)} in the measured window, fewer than {_FEW_STEPS}"
    if len(rates) > 2 and rates[-1] / statistics.median(rates) - 1 < -_SLOW_LAST:
        below = rates[-1] / statistics.median(rates) - 1
        yield f"slow last step: {number(rates[-1])} images/s, {below:+.1%} from the median"


def _rates(logs: Logs) -> list[float]:
    if not all(log.window for log in logs):
        return []
    return [images / seconds for images, seconds in zip(samples_per_step(logs), step_seconds(logs), strict=True)]


def _figure(name: str, samples_per_s: float | str, logs: Logs) -> RuleFigure:
    how = RULES[name].source
    if isinstance(samples_per_s, str):
        return RuleFigure(name, None, how=how, reason=samples_per_s)
    used, unused = _USED[name](logs)
    return RuleFigure(name, samples_per_s, used, unused, how)


def _window(logs: Logs) -> Used:
    warmup = len(logs[0].warmup)
    return len(logs[0].window), (f"{warmup} steps of warm-up",) if warmup else ()


def _paddleclas(ends_of: Callable[[int], int]) -> Callable[[Logs], Used]:
    def used(logs: Logs) -> Used:
        left = len(paddleclas_records(logs)) - PADDLECLAS_SKIPPED_RECORDS
        ends = ends_of(left)
        told = (f"{PADDLECLAS_SKIPPED_RECORDS} records of warm-up",)
        return left - 2 * ends, (*told, f"the {ends} lowest and the {ends} highest") if ends else told

    return used


def _counted(steps: int) -> Callable[[Logs], Used]:
    skipped = SKIPPED_STEPS + COUNTED_STEPS - steps
    return _of_first(skipped + steps, steps, f"{skipped} steps of warm-up")


def _of_first(steps: int, counted: int, *left_out: str) -> Callable[[Logs], Used]:
    """Of a rule that takes ``counted`` steps, records or epochs of a run's first ``steps``."""

    def used(logs: Logs) -> Used:
        behind = len(logs[0].steps) - steps
        return counted, (*left_out, f"{behind} steps behind them") if behind else left_out

    return used


def _pytorch_mean(logs: Logs) -> Used:
    skipped = ngc_pytorch_skipped(len(logs))
    return _of_first(100, 99 - skipped, f"{skipped} steps of warm-up", "the 100th")(logs)


_USED: Mapping[str, Callable[[Logs], Used]] = MappingProxyType(
    {
        WALL_CLOCK: _window,
        MEDIAN_STEP: _window,
        "paddleclas-mean": _paddleclas(lambda _: 0),
        "paddleclas-trimmed": _paddleclas(paddleclas_ends),
        "fleetx-20-100-median7": _counted(COUNTED_STEPS),
        "dlperf-log": _counted(COUNTED_STEPS),
        "dlperf-time": _counted(COUNTED_STEPS - 1),
        "dlperf-tf2": _of_first(600, 500, "100 steps of warm-up"),
        "ngc-tf-mean": _of_first(500, 25, "200 steps and 5 records of warm-up", "9 of 10 steps, which are no record"),
        "ngc-tf-average": _of_first(500, 300, "200 steps of warm-up"),
        "ngc-tf-summary": _of_first(500, 300, "200 steps of warm-up"),
        "ngc-pytorch-mean": _pytorch_mean,
        "ngc-pytorch-summary": _of_first(100, 100),
        "ngc-pytorch-summary-compute": _of_first(100, 100),
        "ngc-mxnet-epochs": _of_first(1500, 2, "1 epoch of warm-up", "the first 50 steps of each epoch"),
    }
)
