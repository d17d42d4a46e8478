"""NVIDIA's rules from our step logs: on steps whose figure is known, and as the importer computes it from a log."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.judging.rules import RULES, figures
from helpers.logs.figures.rules import figure
from helpers.logs.importer import runs_of
from helpers.logs.sources.source import open_logs
from helpers.plan.perf_yaml import load_config
from helpers.trainers.contract.steplog import StepLog
from tests.helpers.judging.test_rules import log_of, logs_of

ROOT = Path(__file__).parents[3]
BATCH = 256


def seconds_of(rates: Sequence[float], cards: int = 1) -> list[float]:
    """Steps of one card whose rates of all ``cards`` are these."""
    return [BATCH * cards / rate for rate in rates]


def found(rates: Sequence[float], rule: str, cards: int = 1) -> float:
    samples_per_s = figures(logs_of(*[seconds_of(rates, cards)] * cards, batch=BATCH))[rule]
    assert isinstance(samples_per_s, float), samples_per_s
    return samples_per_s


RISING = [100.0 + number for number in range(1500)]


@pytest.mark.parametrize(("cards", "first"), [(1, 9), (2, 8), (8, 8)])
def test_pytorch_s_mean_is_of_the_printed_records_after_the_first(cards: int, first: int) -> None:
    assert found(RISING[:100], "ngc-pytorch-mean", cards) == pytest.approx(statistics.fmean(RISING[first:99]))


def test_pytorch_s_summary_is_of_all_hundred_iterations_the_first_among_them() -> None:
    rates = [50.0, *[800.0] * 99]
    assert found(rates, "ngc-pytorch-summary") == pytest.approx((50 + 99 * 800) / 100)
    # Those that follow count for nothing.
    assert found([*rates, *[1.0] * 400], "ngc-pytorch-summary") == pytest.approx((50 + 99 * 800) / 100)


def test_pytorch_s_compute_rate_leaves_the_wait_for_data_out() -> None:
    log = log_of([0.5] * 100, batch=BATCH, reader_seconds=0.1)
    by_rule = figures([log])
    assert by_rule["ngc-pytorch-summary-compute"] == pytest.approx(BATCH / 0.4)
    assert by_rule["ngc-pytorch-summary"] == pytest.approx(BATCH / 0.5)


def test_a_step_that_waited_all_its_time_has_no_compute_rate() -> None:
    log = log_of([0.5] * 100, batch=BATCH)
    waited = replace(log.steps[41], reader_seconds=0.5)
    by_rule = figures([replace(log, steps=(*log.steps[:41], waited, *log.steps[42:]))])
    assert "step 42 as long as its wait for data" in str(by_rule["ngc-pytorch-summary-compute"])
    assert by_rule["ngc-pytorch-summary"] == pytest.approx(512.0)


def test_tensorflow_s_mean_is_of_every_tenth_step_and_its_summary_of_every_step_after_200() -> None:
    assert found(RISING[:500], "ngc-tf-mean") == pytest.approx(statistics.fmean(RISING[250:500:10]))
    for rule in ("ngc-tf-summary", "ngc-tf-average"):
        assert found(RISING[:500], rule) == pytest.approx(statistics.fmean(RISING[200:500]))


def test_tensorflow_2_s_records_are_of_100_iterations_each_after_the_first_100() -> None:
    spans = [statistics.harmonic_mean(RISING[begin : begin + 100]) for begin in range(100, 600, 100)]
    assert found(RISING[:600], "dlperf-tf2") == pytest.approx(statistics.fmean(spans))


def test_mxnet_s_epochs_leave_their_first_50_iterations_out_and_the_first_epoch_whole() -> None:
    rates = [*[10.0] * 500, *[10.0] * 50, *[300.0] * 450, *[10.0] * 50, *[600.0] * 450]
    assert found(rates, "ngc-mxnet-epochs") == pytest.approx(400.0)


@pytest.mark.parametrize("cards", [1, 8])
def test_a_log_that_pytorch_s_script_would_write_of_the_same_steps_gives_the_same_figure(
    cards: int, tmp_path: Path
) -> None:
    """The importer reads the publishers' logs by these rules; ours are read from steps."""
    rates = [200.0, *(700.0 + 10 * (number % 7) for number in range(99))]
    path = tmp_path / f"pytorch_gpu{cards}_amp_bs{BATCH}.txt"
    lines = [f"20.858581 - PARAMETER arch : resnet50  batch_size : {BATCH}  world_size : {cards} "]
    lines += [
        f"21.771464 - Epoch: 0 Iteration: {at}  train.loss : 7.1  train.compute_ips : {rate:.2f} img/s "
        f"train.total_ips : {rate:.2f} img/s train.lr : 0.1 "
        for at, rate in enumerate(rates[:99], 1)
    ]
    mean = statistics.fmean(rates)
    lines += [f"59.206654 - Summary: train.loss : 6.2  train.compute_ips : {mean:.2f} img/s "]
    lines[-1] += f"train.total_ips : {mean:.2f} img/s train.lr : 0.1 "
    path.write_text("".join(f"DLL 2022-06-08 06:19:{line}\n" for line in lines))
    (log,) = open_logs(path)
    (run,) = runs_of(log, {})
    for rule in ("ngc-pytorch-mean", "ngc-pytorch-summary", "ngc-pytorch-summary-compute"):
        assert found(rates, rule, cards) == pytest.approx(figure(run, rule).samples_per_s, abs=0.006)


def test_every_rule_of_a_protocol_of_perf_yaml_gets_the_steps_it_needs() -> None:
    protocols = load_config(ROOT / "perf.yaml").protocols.values()
    served = {rule for protocol in protocols for rule in protocol.rules}
    assert served >= {rule.name for rule in RULES.values() if rule.steps}
    for protocol in protocols:
        steps = protocol.warmup_steps + protocol.window_steps
        log: StepLog = log_of([0.5] * steps, batch=BATCH, warmup=protocol.warmup_steps)
        by_rule = figures([log])
        for rule in protocol.rules:
            assert rule == "unknown" or by_rule[rule] == pytest.approx(512.0), (protocol.name, rule)
            assert rule == "unknown" or protocol.runs >= RULES[rule].runs
