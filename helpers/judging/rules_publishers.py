"""What every measuring rule is made of: a function of a run's step logs, and the error where it gives no figure.

The rules of NVIDIA's scripts and of DLPerf's TensorFlow 2, from our step logs

docs/measuring-rules.md, "What throughput means in each source".

Each script prints rates of its first process, times the processes, and its rule is a mean of them. They count from the
first step, whatever a log calls warm-up. What is counted and left out stands here once, for helpers/logs too.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.steplog import Step, StepLog


class RuleError(SuiteError):
    """The rule cannot be computed from these logs; never replaced by another rule's figure."""


RunRule = Callable[[Sequence[StepLog]], float]


@dataclass(frozen=True)
class Rule:
    """A run's throughput by ``run``; the case's is the median of ``runs`` runs or more (1: of whatever was run).

    ``steps``: the first steps of a run, warm-up among them, without which it gives no figure; 0: the window's alone.
    """

    name: str
    source: str
    run: RunRule
    runs: int = 1
    steps: int = 0


def too_short(rule: str, logs: Sequence[StepLog], needed: int) -> RuleError:
    return RuleError(
        f"rule {rule}",
        got=f"{min(len(log.steps) for log in logs)} steps",
        expected=f"{needed} or more",
        remedy="Lengthen the window of the protocol in perf.yaml",
    )


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


def ngc_pytorch_skipped(cards: int) -> int:
    """Records that the publisher left out at the start; fitted, not documented."""
    return 9 if cards == 1 else 8


def mxnet_mean(epoch_rates: Sequence[float]) -> float:
    """Of all epochs' rates, in order; at least one after the warm-up. The publisher prints 5 digits of it."""
    return statistics.harmonic_mean(epoch_rates[MXNET_WARM_UP_EPOCHS:])


def _ngc_tf_mean(logs: Sequence[StepLog]) -> float:
    steps = _first(logs, "ngc-tf-mean", NGC_TF_STEPS)
    records = _own_rates(steps[NGC_TF_WARM_UP_STEPS::_NGC_TF_INTERVAL], logs)
    return statistics.fmean(records[NGC_TF_SKIPPED_RECORDS:])


def _ngc_tf_all(name: str) -> RunRule:
    """Mean of the rates of every step after warm-up, which either version of the script prints at its end."""

    def run(logs: Sequence[StepLog]) -> float:
        return statistics.fmean(_own_rates(_first(logs, name, NGC_TF_STEPS)[NGC_TF_WARM_UP_STEPS:], logs))

    return run


def _ngc_pytorch_mean(logs: Sequence[StepLog]) -> float:
    steps = _first(logs, "ngc-pytorch-mean", _NGC_PYTORCH_ITERATIONS)[:_NGC_PYTORCH_PRINTED]
    return statistics.fmean(_turn_rates(steps, logs)[ngc_pytorch_skipped(len(logs)) :])


def _ngc_pytorch_summary(logs: Sequence[StepLog]) -> float:
    return statistics.fmean(_turn_rates(_first(logs, "ngc-pytorch-summary", _NGC_PYTORCH_ITERATIONS), logs))


def _ngc_pytorch_compute(logs: Sequence[StepLog]) -> float:
    """Without the seconds in which the script waited for data; ours are the host's wait."""
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
    """Of each turn of a script's loop: from the end of the step before, for it reads the clock once a turn."""
    return [steps[0].step_seconds, *(step.end - before.end for before, step in itertools.pairwise(steps))]


NGC_RULES = (
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
    ),
    Rule(
        "ngc-mxnet-epochs",
        "Perf: harmonic mean of epochs 2 and 3 of 500 iterations, each without its first 50",
        _ngc_mxnet_epochs,
        1,
        _MXNET_EPOCHS * _MXNET_EPOCH_STEPS,
    ),
)
