"""Measuring rules: how a run's step logs become samples/s, ours and the publishers'.

Every rule is a pure function of the step logs of all ranks of one run, followed by a rule over runs
(docs/measuring-rules.md, "What throughput means in each source"). Ours, ``wall-clock``, is samples of
all ranks over the wall time of the slowest rank in the measured window.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from helpers.judging.rules_publishers import NGC_RULES, Rule, too_short
from helpers.judging.rules_publishers import RuleError as RuleError
from helpers.trainers.contract.job import finite
from helpers.trainers.contract.steplog import Step, StepLog

WALL_CLOCK = "wall-clock"
MEDIAN_STEP = "median-step"

_PADDLECLAS_PRINT_INTERVAL = 10
PADDLECLAS_SKIPPED_RECORDS = 10
# What 310 steps leave; a trimmed mean of fewer would be one of a handful of the middle.
PADDLECLAS_TRIMMED_RECORDS = 21
# PaddleClas restarts its running mean at step 5 of an epoch, so a record at step s covers s - 4 steps.
_PADDLECLAS_FIRST_TIMED_STEP = 5
SKIPPED_STEPS = 20
COUNTED_STEPS = 100


@dataclass(frozen=True)
class CaseFigure:
    """A case's samples/s by one rule: ``samples_per_s`` is the median over runs, ``average_samples_per_s`` their mean.

    Both are None where the rule does not apply, and ``reason`` says why. ``run_samples_per_s`` holds the runs
    that the rule could be computed for, also then.
    """

    rule: str
    samples_per_s: float | None
    average_samples_per_s: float | None
    run_samples_per_s: tuple[float, ...]
    reason: str = ""


def figures(logs: Sequence[StepLog]) -> dict[str, float | str]:
    """Every rule's samples/s for one run; where a rule does not apply, the reason in words.

    ``logs`` are those of all ranks in rank order; RuleError where one is missing, foreign or out of place.
    """
    _check_whole_run(logs)
    out: dict[str, float | str] = {}
    for rule in RULES.values():
        try:
            samples_per_s = rule.run(logs)
        except RuleError as error:
            out[rule.name] = str(error)
            continue
        usable = finite(samples_per_s) and samples_per_s > 0
        out[rule.name] = samples_per_s if usable else f"rule {rule.name}: got {samples_per_s}, expected a finite rate"
    return out


def over_runs(runs: Sequence[Mapping[str, float | str]]) -> tuple[CaseFigure, ...]:
    """Every rule's figure of a case from what ``figures`` gave for each of its runs; nothing for no runs.

    A publisher's rule over runs ("7 runs, the median") is not kept by fewer; by more it is (DLPerf's own logs
    list 6 of 5).
    """
    return tuple(case_figure(rule, runs) for rule in RULES if runs)


def case_figure(rule: str, runs: Sequence[Mapping[str, float | str]]) -> CaseFigure:
    """One rule's figure as in ``over_runs``; a rule that is not in RULES was not computed, so it has none."""
    told = [run_figure(rule, figures_of_run) for figures_of_run in runs]
    rates = tuple(float(each) for each in told if not isinstance(each, str))
    needed = RULES[rule].runs if rule in RULES else 1
    reason = next((each for each in told if isinstance(each, str)), "")
    if not reason and len(rates) < needed:
        reason = f"rule {rule} is the median of {needed} runs, {len(rates)} were made"
    if reason:
        return CaseFigure(rule, None, None, rates, reason)
    return CaseFigure(rule, statistics.median(rates), statistics.fmean(rates), rates)


def median_over_runs(rule: str, runs: Sequence[Mapping[str, float | str]]) -> float | str:
    """One rule's figure of a case, or why there is none."""
    found = case_figure(rule, runs)
    return found.reason if found.samples_per_s is None else found.samples_per_s


def run_figure(rule: str, figures_of_run: Mapping[str, float | str]) -> float | str:
    """A run's samples/s by ``rule``, or why there is none; what is no positive number is none."""
    figure = figures_of_run.get(rule, f"rule {rule} was not computed")
    if isinstance(figure, str) or (finite(figure) and figure > 0):
        return figure
    return f"rule {rule} gave {figure!r}, which is no throughput"


def step_seconds(logs: Sequence[StepLog]) -> tuple[float, ...]:
    """Seconds of each window step: the maximum over ranks, since the slowest holds all others."""
    windows = _windows(logs)
    return tuple(max(step.step_seconds for step in steps) for steps in zip(*windows, strict=True))


def samples_per_step(logs: Sequence[StepLog]) -> tuple[int, ...]:
    """Images of all ranks in each window step."""
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
    """Images of all ranks in a step / the median step's seconds: what recorded comparisons are made by.

    The median of 100 steps varies a third as much as their mean where one step in a hundred stalls (docs/verdicts.md,
    "What is known about the noise").
    """
    return statistics.median(samples_per_step(logs)) / statistics.median(step_seconds(logs))


def paddleclas_records(logs: Sequence[StepLog]) -> list[float]:
    """The ``ips`` PaddleClas would print every 10 steps, times cards: batch / running mean of batch seconds.

    Rank 0 prints. The running mean restarts at step 5 of each epoch
    (docs/measuring-rules.md, "What throughput means in each source").
    """
    records: list[float] = []
    timed: list[float] = []
    before: Step | None = None
    for step in logs[0].steps:
        if step.step == _PADDLECLAS_FIRST_TIMED_STEP:
            timed = []
        # From the end of the step before: PaddleClas reads the clock once per turn of its loop.
        timed.append(step.end - (step.start if before is None else before.end))
        before = step
        if step.step % _PADDLECLAS_PRINT_INTERVAL == 0:
            records.append(step.samples / statistics.fmean(timed) * len(logs))
    return records


def _paddleclas_mean(logs: Sequence[StepLog]) -> float:
    records = paddleclas_records(logs)[PADDLECLAS_SKIPPED_RECORDS:]
    if not records:
        raise _too_few_records("paddleclas-mean", logs, PADDLECLAS_SKIPPED_RECORDS + 1)
    return statistics.fmean(records)


def _paddleclas_trimmed(logs: Sequence[StepLog]) -> float:
    records = sorted(paddleclas_records(logs)[PADDLECLAS_SKIPPED_RECORDS:])
    dropped = paddleclas_ends(len(records))
    if len(records) < PADDLECLAS_TRIMMED_RECORDS:
        needed = PADDLECLAS_SKIPPED_RECORDS + PADDLECLAS_TRIMMED_RECORDS
        raise _too_few_records("paddleclas-trimmed", logs, needed)
    return statistics.fmean(records[dropped:-dropped])


def paddleclas_ends(records: int) -> int:
    """How many of the sorted ``records`` PaddleClas's trimmed mean drops at each end."""
    return max(int(0.05 * records), 5)


def _after_twenty(logs: Sequence[StepLog], rule: str) -> list[tuple[Step, ...]]:
    """Steps 21 to 120 of every rank, whatever the log calls warm-up: the publishers count from the first step."""
    last = SKIPPED_STEPS + COUNTED_STEPS
    if min(len(log.steps) for log in logs) < last:
        raise too_short(rule, logs, last)
    return list(zip(*(log.steps[SKIPPED_STEPS:last] for log in logs), strict=True))


def _fleetx(logs: Sequence[StepLog]) -> float:
    steps = _after_twenty(logs, "fleetx-20-100-median7")
    seconds = max(last.end - first.start for first, last in zip(steps[0], steps[-1], strict=True))
    return sum(step.samples for rank_steps in steps for step in rank_steps) / seconds


def _dlperf_log(logs: Sequence[StepLog]) -> float:
    steps = _after_twenty(logs, "dlperf-log")
    return statistics.fmean(
        sum(step.samples for step in rank_steps) / rank_steps[0].step_seconds for rank_steps in steps
    )


def _dlperf_time(logs: Sequence[StepLog]) -> float:
    steps = _after_twenty(logs, "dlperf-time")
    global_batch = sum(step.samples for step in steps[0])
    return global_batch * (COUNTED_STEPS - 1) / (steps[-1][0].end - steps[0][0].end)


def _check_whole_run(logs: Sequence[StepLog]) -> None:
    """A lost rank would pass for a slower run, and the publishers' rules read rank 0."""
    about = "step logs of " + (", ".join(log.path for log in logs) or "a run")
    ranks = [log.header.rank for log in logs]
    sizes = sorted({log.header.world_size for log in logs})
    if not logs or sizes != [len(logs)] or ranks != list(range(len(logs))):
        raise RuleError(about, field="rank", got=f"ranks {ranks} of {sizes}", expected="one log a rank, in rank order")
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


def _too_few_records(rule: str, logs: Sequence[StepLog], needed: int) -> RuleError:
    """For ``needed`` records of PaddleClas: an epoch prints one after each 10th of its steps, none for its rest."""
    interval, steps = _PADDLECLAS_PRINT_INTERVAL, logs[0].steps
    if len({step.epoch for step in steps}) < 2:
        return too_short(rule, logs, interval * needed)
    epoch_steps = max(step.step for step in steps)
    if epoch_steps < interval:
        return RuleError(
            f"rule {rule}",
            got=f"epochs of {epoch_steps} steps, which print no record",
            expected=f"epochs of {interval} steps or more",
            remedy="Train from more images with --data, or with fewer images a step",
        )
    epochs, left = divmod(needed - 1, epoch_steps // interval)
    return too_short(rule, logs, epochs * epoch_steps + (left + 1) * interval)


def _steps_of(records: int) -> int:
    """Of one epoch, for so many of PaddleClas's records after those it skips."""
    return _PADDLECLAS_PRINT_INTERVAL * (PADDLECLAS_SKIPPED_RECORDS + records)


_PADDLECLAS = "Perf ResNet50V1.5 page: average after warm-up"
_LAST_STEP = SKIPPED_STEPS + COUNTED_STEPS
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            Rule(WALL_CLOCK, "samples of all ranks / wall time of the slowest", wall_clock),
            Rule(MEDIAN_STEP, 'docs/verdicts.md, "Measure": x = -log(median step seconds)', median_step),
            Rule("paddleclas-trimmed", _PADDLECLAS, _paddleclas_trimmed, steps=_steps_of(PADDLECLAS_TRIMMED_RECORDS)),
            Rule("paddleclas-mean", _PADDLECLAS, _paddleclas_mean, steps=_steps_of(1)),
            Rule("fleetx-20-100-median7", "FleetX VGG16: skip 20, next 100, median of 7 runs", _fleetx, 7, _LAST_STEP),
            Rule(
                "dlperf-log", "DLPerf: mean of logged rates, iterations 20-119, median of 5", _dlperf_log, 5, _LAST_STEP
            ),
            Rule(
                "dlperf-time", "DLPerf: global batch x 99 / (t[100] - t[1]), median of 5", _dlperf_time, 5, _LAST_STEP
            ),
            *NGC_RULES,
        )
    }
)
