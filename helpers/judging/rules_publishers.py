"""The publishers' measuring rules, computed from our step logs, and the parts of every rule.

docs/measuring-rules.md, "What throughput means in each source". PaddleClas, FleetX and DLPerf count steps or records of
them. Each of NVIDIA's scripts, and DLPerf's for TensorFlow 2, prints the rates of its first process times the number of
processes, and its rule is a mean of these. All count from the first step, whatever a log calls warm-up. What is counted
and what is left out is defined here only, also for helpers/logs.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.steplog import Step, StepLog

_PADDLECLAS_PRINT_INTERVAL = 10
PADDLECLAS_SKIPPED_RECORDS = 10
# The records of 310 steps after the skipped ones. A trimmed mean of fewer would be the mean of a handful.
PADDLECLAS_TRIMMED_RECORDS = 21
# PaddleClas restarts its running mean at step 5 of an epoch, so a record at step s covers s - 4 steps.
_PADDLECLAS_FIRST_TIMED_STEP = 5
SKIPPED_STEPS = 20
COUNTED_STEPS = 100
# TensorFlow 1: a record every 10 steps from step 200 (counted from 0) to 490, of that step alone.
NGC_TF_WARM_UP_STEPS, NGC_TF_STEPS, _NGC_TF_INTERVAL = 200, 500, 10
NGC_TF_SKIPPED_RECORDS = 5
# PyTorch: of 100 iterations 99 are printed; the summary is the mean of all (its logs give the 100th by it: 812.0 after
# 99 of 802.97 make 803.06).
_NGC_PYTORCH_ITERATIONS = 100
_NGC_PYTORCH_PRINTED = 99
# MXNet: 3 epochs, of which the first is warm-up; an epoch's rate leaves its first tenth out, at most 100 iterations.
MXNET_WARM_UP_EPOCHS = 1
_MXNET_EPOCHS, _MXNET_EPOCH_STEPS, _MXNET_EPOCH_SKIPPED = 3, 500, 50
# TensorFlow 2's TimeHistory: a record every 100 steps; those of iterations 100 to 600.
TF2_SKIPPED_STEPS, TF2_LAST_STEP, _TF2_INTERVAL = 100, 600, 100


class RuleError(SuiteError):
    """The rule cannot be computed from these logs; never replaced by another rule's figure."""


RunRule = Callable[[Sequence[StepLog]], float]


@dataclass(frozen=True)
class Rule:
    """How a publisher, or the suite, computes samples/s from step logs."""

    name: str
    # Where the rule is stated, or how it computes.
    source: str
    # A run's samples/s from the logs of all its ranks.
    run: RunRule
    # The case's figure is the median of at least so many runs.
    runs: int = 1
    # How many first steps of a run, with warm-up, the figure needs; 0 if only the window counts.
    steps: int = 0
    # Whether the waits for data count in its seconds.
    counts_waits: bool = True


def cards_of(logs: Sequence[StepLog]) -> int:
    """The cards of the job whose ranks these logs are."""
    return sum(log.header.cards_per_process for log in logs)


def too_short(rule: str, logs: Sequence[StepLog], needed: int) -> RuleError:
    return RuleError(
        f"rule {rule}",
        got=f"{min(len(log.steps) for log in logs)} steps",
        expected=f"{needed} or more",
        remedy="Lengthen the window of the protocol in perf.yaml",
    )


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
    """Samples of all ranks / the seconds of their steps without the waits for data, by the rank with most of them.

    FleetX's ``MultiGPUTrainer.benchmark`` (commit 296e0d7, python/fleetx/applications/trainer.py) adds up the host's
    seconds around ``exe.run`` alone: batch to the card, training, loss back to the host, and not the wait for the
    batch. It does so in steps 21 to 120, counted from 0, and divides 100 by the sum. Our steps follow each other
    without a gap, so their sum without the waits is the same.
    """
    rule = "fleetx-20-100-median7"
    if min(len(log.steps) for log in logs) < _FLEETX_LAST_STEP:
        raise too_short(rule, logs, _FLEETX_LAST_STEP)
    counted = [log.steps[_FLEETX_LAST_STEP - COUNTED_STEPS : _FLEETX_LAST_STEP] for log in logs]
    seconds = [math.fsum(step.step_seconds - step.reader_seconds for step in steps) for steps in counted]
    if min(seconds) <= 0:
        raise RuleError(f"rule {rule}", got="steps as long as their waits for data", expected="time to compute")
    return sum(step.samples for steps in counted for step in steps) / max(seconds)


def _dlperf_log(logs: Sequence[StepLog]) -> float:
    steps = _after_twenty(logs, "dlperf-log")
    return statistics.fmean(
        sum(step.samples for step in rank_steps) / rank_steps[0].step_seconds for rank_steps in steps
    )


def _dlperf_time(logs: Sequence[StepLog]) -> float:
    steps = _after_twenty(logs, "dlperf-time")
    global_batch = sum(step.samples for step in steps[0])
    return global_batch * (COUNTED_STEPS - 1) / (steps[-1][0].end - steps[0][0].end)


def _too_few_records(rule: str, logs: Sequence[StepLog], needed: int) -> RuleError:
    """The error if there are fewer than ``needed`` records of PaddleClas: an epoch prints one after every 10th step,
    and none for the rest."""
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
    """How many steps of one epoch PaddleClas needs to print so many records after the skipped ones."""
    return _PADDLECLAS_PRINT_INTERVAL * (PADDLECLAS_SKIPPED_RECORDS + records)


def ngc_pytorch_skipped(cards: int) -> int:
    """Records that the publisher left out at the start; fitted, not documented."""
    return 9 if cards == 1 else 8


def mxnet_mean(epoch_rates: Sequence[float]) -> float:
    """The publisher's mean of all epochs' rates, which are in order; at least one must follow the warm-up. The
    publisher prints 5 digits of it."""
    return statistics.harmonic_mean(epoch_rates[MXNET_WARM_UP_EPOCHS:])


def _ngc_tf_mean(logs: Sequence[StepLog]) -> float:
    steps = _first(logs, "ngc-tf-mean", NGC_TF_STEPS)
    records = _own_rates(steps[NGC_TF_WARM_UP_STEPS::_NGC_TF_INTERVAL], logs)
    return statistics.fmean(records[NGC_TF_SKIPPED_RECORDS:])


def _ngc_tf_all(name: str) -> RunRule:
    """The mean of the rates of all steps after warm-up, which both versions of the script print at their end."""

    def run(logs: Sequence[StepLog]) -> float:
        return statistics.fmean(_own_rates(_first(logs, name, NGC_TF_STEPS)[NGC_TF_WARM_UP_STEPS:], logs))

    return run


def _ngc_pytorch_mean(logs: Sequence[StepLog]) -> float:
    steps = _first(logs, "ngc-pytorch-mean", _NGC_PYTORCH_ITERATIONS)[:_NGC_PYTORCH_PRINTED]
    return statistics.fmean(_turn_rates(steps, logs)[ngc_pytorch_skipped(cards_of(logs)) :])


def _ngc_pytorch_summary(logs: Sequence[StepLog]) -> float:
    return statistics.fmean(_turn_rates(_first(logs, "ngc-pytorch-summary", _NGC_PYTORCH_ITERATIONS), logs))


def _ngc_pytorch_compute(logs: Sequence[StepLog]) -> float:
    """The mean rate without the seconds in which the script waits for data. Here they are those in which the host
    waits."""
    rule = "ngc-pytorch-summary-compute"
    steps = _first(logs, rule, _NGC_PYTORCH_ITERATIONS)
    seconds = [taken - step.reader_seconds for taken, step in zip(_turn_seconds(steps), steps, strict=True)]
    if waited := [number for number, left in enumerate(seconds, 1) if left <= 0]:
        raise RuleError(
            f"rule {rule}", got=f"step {waited[0]} as long as its wait for data", expected="time to compute"
        )
    rates = [step.samples * len(logs) / left for step, left in zip(steps, seconds, strict=True)]
    return statistics.fmean(rates)


def _ngc_mxnet_epochs(logs: Sequence[StepLog]) -> float:
    steps = _first(logs, "ngc-mxnet-epochs", _MXNET_EPOCHS * _MXNET_EPOCH_STEPS)
    seconds = _turn_seconds(steps)
    rates = []
    for begin in range(0, len(steps), _MXNET_EPOCH_STEPS):
        counted = slice(begin + _MXNET_EPOCH_SKIPPED, begin + _MXNET_EPOCH_STEPS)
        rates.append(sum(step.samples for step in steps[counted]) * len(logs) / sum(seconds[counted]))
    return mxnet_mean(rates)


def _dlperf_tf2(logs: Sequence[StepLog]) -> float:
    steps = _first(logs, "dlperf-tf2", TF2_LAST_STEP)
    seconds = _turn_seconds(steps)
    spans = [slice(begin, begin + _TF2_INTERVAL) for begin in range(TF2_SKIPPED_STEPS, TF2_LAST_STEP, _TF2_INTERVAL)]
    return statistics.fmean(
        sum(step.samples for step in steps[span]) * len(logs) / sum(seconds[span]) for span in spans
    )


def _first(logs: Sequence[StepLog], rule: str, count: int) -> tuple[Step, ...]:
    """The first ``count`` steps of the first rank, which prints."""
    if len(logs[0].steps) < count:
        raise too_short(rule, logs, count)
    return logs[0].steps[:count]


def _own_rates(steps: Sequence[Step], logs: Sequence[StepLog]) -> list[float]:
    return [step.samples * len(logs) / step.step_seconds for step in steps]


def _turn_rates(steps: Sequence[Step], logs: Sequence[StepLog]) -> list[float]:
    return [step.samples * len(logs) / taken for step, taken in zip(steps, _turn_seconds(steps), strict=True)]


def _turn_seconds(steps: Sequence[Step]) -> list[float]:
    """The seconds of each turn of a script's loop. A turn begins at the end of the step before, because the script
    reads the clock once a turn."""
    return [steps[0].step_seconds, *(step.end - before.end for before, step in itertools.pairwise(steps))]


_PADDLECLAS = "Perf ResNet50V1.5 page: average after warm-up"
_LAST_STEP = SKIPPED_STEPS + COUNTED_STEPS
# Its step 120, counted from 0.
_FLEETX_LAST_STEP = _LAST_STEP + 1
PUBLISHERS_RULES = (
    Rule("paddleclas-trimmed", _PADDLECLAS, _paddleclas_trimmed, steps=_steps_of(PADDLECLAS_TRIMMED_RECORDS)),
    Rule("paddleclas-mean", _PADDLECLAS, _paddleclas_mean, steps=_steps_of(1)),
    Rule(
        "fleetx-20-100-median7",
        "FleetX VGG16: exe.run of steps 21-120 counted from 0, without waiting for data; median of 7 runs",
        _fleetx,
        7,
        _FLEETX_LAST_STEP,
        counts_waits=False,
    ),
    Rule("dlperf-log", "DLPerf: mean of logged rates, iterations 20-119, median of 5", _dlperf_log, 5, _LAST_STEP),
    Rule("dlperf-time", "DLPerf: global batch x 99 / (t[100] - t[1]), median of 5", _dlperf_time, 5, _LAST_STEP),
    Rule(
        "dlperf-tf2",
        "DLPerf: mean of TimeHistory's rates of iterations 100-600, median of 5",
        _dlperf_tf2,
        5,
        TF2_LAST_STEP,
    ),
    Rule("ngc-tf-mean", "Perf: mean of total_ips at steps 250, 260 ... 490", _ngc_tf_mean, 1, NGC_TF_STEPS),
    Rule("ngc-tf-average", "Perf: 'Average total_ips', steps 200-499", _ngc_tf_all("ngc-tf-average"), 1, NGC_TF_STEPS),
    Rule("ngc-tf-summary", "Perf: 'train_throughput', steps 200-499", _ngc_tf_all("ngc-tf-summary"), 1, NGC_TF_STEPS),
    Rule(
        "ngc-pytorch-mean",
        "Perf: mean of train.total_ips, iterations 10-99 on one card, 9-99 on several",
        _ngc_pytorch_mean,
        1,
        _NGC_PYTORCH_ITERATIONS,
    ),
    Rule(
        "ngc-pytorch-summary",
        "Perf: 'Summary: train.total_ips', iterations 1-100",
        _ngc_pytorch_summary,
        1,
        _NGC_PYTORCH_ITERATIONS,
    ),
    Rule(
        "ngc-pytorch-summary-compute",
        "Perf: 'Summary: train.compute_ips', iterations 1-100 without waiting for data",
        _ngc_pytorch_compute,
        1,
        _NGC_PYTORCH_ITERATIONS,
        counts_waits=False,
    ),
    Rule(
        "ngc-mxnet-epochs",
        "Perf: harmonic mean of epochs 2 and 3 of 500 iterations, each without its first 50",
        _ngc_mxnet_epochs,
        1,
        _MXNET_EPOCHS * _MXNET_EPOCH_STEPS,
    ),
)
