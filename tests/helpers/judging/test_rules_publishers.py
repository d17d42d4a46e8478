"""The publishers' rules from our step logs: on steps whose figure is known, NVIDIA's as the importer has it too."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.judging.rules.own import RULES, WALL_CLOCK, figures
from helpers.judging.rules.publishers import paddleclas_records
from helpers.logs.figures.rules import figure
from helpers.logs.importer import runs_of
from helpers.logs.source import open_log
from helpers.plan.perf_yaml import load_config
from helpers.trainers.contract.steplog import StepLog
from tests.helpers.judging.step_logs import first_hundred_then, log_of, logs_of

ROOT = Path(__file__).parents[3]
BATCH = 256


# --- PaddleClas (docs/published.md: cumulative seconds = batch_cost × (s − 4))


@settings(max_examples=10)
@given(st.lists(st.floats(0.01, 5), min_size=310, max_size=330), st.integers(1, 3))
def test_records_invert_as_the_methods_say(seconds: list[float], cards: int) -> None:
    records = paddleclas_records(logs_of(*(seconds for _ in range(cards)))).rates
    assert len(records) == len(seconds) // 10
    for number, record in enumerate(records, 1):
        step = 10 * number
        batch_cost = 256 * cards / record
        assert batch_cost * (step - 4) == pytest.approx(sum(seconds[4:step]))


def test_a_published_log_line_comes_out_again() -> None:
    # docs/published.md: "train step:20 ... batch_cost: 0.18624 s, ... ips: 1374.56075 samples/sec."
    cumulative_seconds = 0.18624 * (20 - 4)
    steps = [9.0] * 4 + [0.5] + [(cumulative_seconds - 0.5) / 15] * 15
    assert paddleclas_records([log_of(steps)]).rates[1] == pytest.approx(1374.56075, rel=2e-5)


def test_each_epoch_restarts_the_running_mean() -> None:
    slow, fast = [2.0] * 20, [1.0] * 20
    assert paddleclas_records([log_of([*slow, *fast], epoch_steps=20)]).rates == [128.0, 128.0, 256.0, 256.0]


def test_only_step_ten_of_an_epoch_prints() -> None:
    assert len(paddleclas_records([log_of([1.0] * 60, epoch_steps=15)]).rates) == 4


def test_the_time_between_steps_counts_in_records_too() -> None:
    log = log_of([1.0] * 10)
    steps = tuple(replace(step, start=step.start + 0.5) for step in log.steps)
    assert paddleclas_records([replace(log, steps=steps)]).rates == [256.0]


def test_rank_0_prints_for_all_cards() -> None:
    assert paddleclas_records(logs_of([1.0] * 10, [5.0] * 10)).rates == [512.0]


@pytest.mark.parametrize(("count", "dropped"), [(21, 5), (99, 5), (100, 5), (119, 5), (120, 6), (140, 7)])
def test_the_trimmed_rule_drops_five_percent_and_at_least_five_at_each_end(count: int, dropped: int) -> None:
    rates = [100.0 + number**2 for number in range(count)]
    found = figures([log_of(first_hundred_then(rates), epoch_steps=10)])
    assert found["paddleclas-trimmed"] == pytest.approx(statistics.fmean(rates[dropped:-dropped]))
    assert found["paddleclas-mean"] == pytest.approx(statistics.fmean(rates))


def test_the_trimmed_rule_sorts_before_it_drops() -> None:
    rates = [100.0 + number**2 for number in range(21)]
    found = figures([log_of(first_hundred_then(rates[::-1]), epoch_steps=10)])
    assert found["paddleclas-trimmed"] == pytest.approx(statistics.fmean(rates[5:-5]))


# --- FleetX: steps 21 to 120 counted from 0; DLPerf: the 100 after the first 20


AFTER_TWENTY = [7.0] * 20 + [1.0] * 50 + [3.0] * 50 + [7.0] * 20


# FleetX's counter begins at 0, and it times the steps above 20.
AFTER_TWENTY_ONE = [7.0, *AFTER_TWENTY]


def test_fleetx_takes_the_hundred_steps_above_the_twentieth_counted_from_0() -> None:
    assert figures([log_of(AFTER_TWENTY_ONE, batch=10)])["fleetx-20-100-median7"] == 10 * 100 / 200


def harness(waits: Sequence[float], runs: Sequence[float], batch: int) -> float:
    """FleetX's own loop (trainer.py, ``benchmark``), on a clock that only its parts move on."""
    now = total_time = 0.0
    for step, (wait, run) in enumerate(zip(waits, runs, strict=True)):
        now += wait
        start_time = now
        now += run
        if 20 < step <= 120:
            total_time += now - start_time
    return batch * 100 / total_time


@settings(max_examples=10)
@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0.1, 1)), min_size=121, max_size=130))
def test_fleetx_is_what_its_harness_printed_however_long_the_reader_took(parts: list[tuple[float, float]]) -> None:
    waits, runs = zip(*parts, strict=True)
    log = log_of([wait + run for wait, run in parts], batch=10)
    steps = tuple(replace(step, reader_seconds=wait) for step, wait in zip(log.steps, waits, strict=True))
    found = figures([replace(log, steps=steps)])
    assert found["fleetx-20-100-median7"] == pytest.approx(harness(waits, runs, 10))
    # The honest figure of the same run stands beside it.
    assert found[WALL_CLOCK] == pytest.approx(10 * len(parts) / sum(wait + run for wait, run in parts))


def test_fleetx_needs_time_beside_the_waits_for_data() -> None:
    why = str(figures([log_of([1.0] * 121, reader_seconds=1.0)])["fleetx-20-100-median7"])
    assert "got '0.0 seconds', expected more than 0" in why


def test_epochs_that_print_too_few_records_have_no_figure() -> None:
    found = figures([log_of([1.0] * 320, epoch_steps=15)])
    assert "got '11 records after the first 10', expected 21 or more" in str(found["paddleclas-trimmed"])
    assert isinstance(found["paddleclas-mean"], float)


def test_fleetx_waits_for_the_slowest_rank() -> None:
    logs = logs_of([1.0] * 121, [2.0] * 121, batch=10)
    assert figures(logs)["fleetx-20-100-median7"] == 2 * 10 * 100 / 200


def test_dlperf_log_is_the_mean_of_the_printed_rates() -> None:
    assert figures([log_of(AFTER_TWENTY, batch=12)])["dlperf-log"] == pytest.approx((12 + 4) / 2)


def test_dlperf_time_has_99_intervals() -> None:
    seconds = [7.0] * 20 + [50.0] + [1.0] * 99
    assert figures([log_of(seconds, batch=10)])["dlperf-time"] == 10 * 99 / 99
    seconds[119] = 2.0
    assert figures([log_of(seconds, batch=10)])["dlperf-time"] == 10 * 99 / 100


@pytest.mark.parametrize(
    ("rule", "runs"),
    [(WALL_CLOCK, 1), ("paddleclas-trimmed", 1), ("fleetx-20-100-median7", 7), ("dlperf-log", 5), ("dlperf-time", 5),
     ("dlperf-tf2", 5), ("ngc-pytorch-mean", 1)],
)  # fmt: skip
def test_a_rule_knows_its_publishers_number_of_runs(rule: str, runs: int) -> None:
    assert RULES[rule].runs == runs


# --- NVIDIA and DLPerf's TensorFlow 2


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
    (run,) = runs_of(open_log(path), {})
    for rule in ("ngc-pytorch-mean", "ngc-pytorch-summary", "ngc-pytorch-summary-compute"):
        assert found(rates, rule, cards) == pytest.approx(figure(run, rule).samples_per_s, abs=0.006)


def test_every_rule_of_a_protocol_of_perf_yaml_gets_the_steps_it_needs() -> None:
    protocols = load_config(ROOT / "helpers/plan/defaults.yaml").protocols.values()
    served = {rule for protocol in protocols for rule in protocol.rules}
    assert served >= {rule.name for rule in RULES.values() if rule.steps}
    for protocol in protocols:
        steps = protocol.warmup_steps + protocol.window_steps
        log: StepLog = log_of([0.5] * steps, batch=BATCH, warmup=protocol.warmup_steps)
        by_rule = figures([log])
        for rule in protocol.rules:
            assert rule == "unknown" or by_rule[rule] == pytest.approx(512.0), (protocol.name, rule)
            assert rule == "unknown" or protocol.runs >= RULES[rule].runs
