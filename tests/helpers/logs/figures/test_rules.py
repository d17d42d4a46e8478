"""The publishers' rules over hand-made records of logs, each against its definition written out here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest

from helpers.logs.figures.rules import RULES, figure, figures, usual_rule, warm_up_records
from helpers.logs.record import LogRun, RateOf, RecordField
from helpers.logs.settings import LogSetting
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.made_runs import rates, run, spec

RISING = [float(100 + each) for each in range(140)]


def value(given: LogRun, rule: str) -> float:
    found = figure(given, rule)
    assert found.samples_per_s is not None, found.reason
    return found.samples_per_s


def reason(given: LogRun, rule: str) -> str:
    found = figure(given, rule)
    assert (found.samples_per_s, found.used, found.unused) == (None, 0, ())
    return found.reason


def card_rates(values: Sequence[float]) -> LogRun:
    return rates(spec("paddleclas-trimmed", "paddleclas-mean", rate_of=RateOf.CARD), values)


def test_paddleclas_leaves_ten_records_out_and_counts_all_cards() -> None:
    found = figure(card_rates([1.0] * 10 + [100.0, 110.0, 120.0]), "paddleclas-mean")
    assert (found.samples_per_s, found.used, found.unused) == (220.0, 3, ("10 of warm-up",))
    trimmed = figure(card_rates([1.0] * 10 + RISING), "paddleclas-trimmed")
    assert trimmed.samples_per_s == 2 * statistics.fmean(RISING[7:-7])
    assert (trimmed.used, trimmed.unused) == (126, ("10 of warm-up", "the 7 lowest and the 7 highest"))


@pytest.mark.parametrize(
    ("records", "usual"), [(0, "paddleclas-trimmed"), (20, "paddleclas-mean"), (21, "paddleclas-trimmed")]
)
def test_the_mean_is_the_usual_rule_where_the_trimmed_one_gives_no_figure(records: int, usual: str) -> None:
    assert usual_rule(figures(card_rates([1.0] * 10 + RISING[:records]))) == usual


def test_the_number_left_out_is_a_parameter() -> None:
    found = figure(card_rates([1.0, 3.0, 5.0]), "paddleclas-mean:skip=1")
    assert (found.rule, found.samples_per_s) == ("paddleclas-mean:skip=1", 8.0)
    assert figure(card_rates(RISING), "paddleclas-mean:skip=10").rule == "paddleclas-mean"


@pytest.mark.parametrize(
    ("rule", "cards", "skipped"),
    [("ngc-tf-mean", "8", 5), ("ngc-pytorch-mean", "1", 9), ("ngc-pytorch-mean", "2", 8)],
)
def test_nvidias_means_say_in_their_names_how_many_records_they_leave_out(rule: str, cards: str, skipped: int) -> None:
    given = rates(spec(rule), RISING, settings={LogSetting.CARDS: cards})
    found = figure(given, rule)
    assert (found.rule, found.samples_per_s) == (f"{rule}:skip={skipped}", statistics.fmean(RISING[skipped:]))
    assert warm_up_records(given) == skipped


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ("ngc-tf-average", "average"), ("ngc-tf-summary", "train_throughput"),
        ("ngc-pytorch-summary", "summary_total"), ("ngc-pytorch-summary-compute", "summary_compute"),
    ],
)  # fmt: skip
def test_a_printed_figure_is_taken_as_it_stands_the_last_one_where_there_are_several(rule: str, key: str) -> None:
    found = figure(rates(spec(rule), RISING, printed={key: [(None, 11.5), (None, 12.5)]}), rule)
    assert (found.rule, found.samples_per_s, found.unused) == (rule, 12.5, ("1 printed before it",))
    assert "no such line in the log" in reason(rates(spec(rule), RISING), rule)


def test_tensorflow_prefers_the_scripts_own_figure_where_it_is_printed() -> None:
    format = spec("ngc-tf-mean", "ngc-tf-average", "ngc-tf-summary")
    own = rates(format, RISING, printed={"train_throughput": [(None, 12.5)]})
    assert usual_rule(figures(own)) == "ngc-tf-summary"
    assert usual_rule(figures(rates(format, RISING))) == "ngc-tf-mean:skip=5"


def test_mxnet_is_the_harmonic_mean_of_the_epochs_after_the_first_in_five_digits() -> None:
    columns = {RecordField.EPOCH: [0, 0, 1], RecordField.STEP: [19, 39, 19], RecordField.IMAGES_PER_S: [50, 90, 98]}
    epochs = [(2, 1444.4444), (0, 700.0), (1, 1333.3333), (1, 5.0)]
    given = run(spec("ngc-mxnet-epochs"), columns, printed={"epoch": epochs})
    assert value(given, "ngc-mxnet-epochs") == float(f"{2 / (1 / 1444.4444 + 1 / 1333.3333):.5g}") == 1386.7
    assert warm_up_records(given) == 2
    of_card = run(spec("ngc-mxnet-epochs", rate_of=RateOf.CARD), {}, printed={"epoch": epochs[:3]})
    assert value(of_card, "ngc-mxnet-epochs") == 2773.3


def test_a_summary_line_is_its_own_figure() -> None:
    given = run(spec("tipc-summary", is_summary=True), {RecordField.IMAGES_PER_S: [950.0]})
    assert value(given, "tipc-summary") == 950.0


# ---- DLPerf and FleetX


@pytest.mark.parametrize("first_step", [0, 1, 20])
def test_dlperf_log_is_the_mean_of_iterations_20_to_119(first_step: int) -> None:
    records = RISING[20:] if first_step == 20 else RISING
    given = rates(spec("dlperf-log"), records, first_step=first_step)
    assert value(given, "dlperf-log") == statistics.fmean(RISING[20:120])


def test_dlperf_rounds_as_its_scripts_do() -> None:
    assert value(rates(spec("dlperf-log"), [10.004] * 120), "dlperf-log") == 10.0


@pytest.mark.parametrize(
    ("rule", "steps", "told"),
    [
        ("dlperf-log", range(119), "99 records from iteration 20 on"),
        ("dlperf-log", (each for each in range(130) if each != 50), "no record after that of step 49"),
        ("dlperf-log", (each for each in range(140) if each != 20), "no record of iteration 20"),
        ("dlperf-log", range(0, 1400, 10), "no record after that of step 20"),
        ("fleetx-20-100-median7", (at for at in range(0, 200, 10) if at != 60), "no record after that of step 50"),
        ("fleetx-20-100-median7", range(119), "records of 99 steps"),
    ],
)  # fmt: skip
def test_a_window_with_a_hole_gives_no_figure(rule: str, steps: Sequence[int], told: str) -> None:
    numbers = [float(each) for each in steps]
    given = run(spec(rule), {RecordField.STEP: numbers, RecordField.IMAGES_PER_S: [10.0] * len(numbers)})
    assert told in reason(given, rule)


def test_dlperf_time_is_of_the_stamps() -> None:
    stamps = {index: 1000 + 0.5 * index + (3 if index > 60 else 0) for index in range(140)}
    given = rates(spec("dlperf-time"), RISING, stamps=stamps)
    assert value(given, "dlperf-time") == round(99 * 64 / (99 * 0.5 + 3), 2)
    assert "records without a time stamp" in reason(rates(spec("dlperf-time"), RISING), "dlperf-time")
    still = rates(spec("dlperf-time"), RISING, stamps=dict.fromkeys(range(140), 5.0))
    assert "got '0.0 seconds'" in reason(still, "dlperf-time")


def time_history(records: int, log_steps: int = 100, **more: object) -> LogRun:
    starts = [float(log_steps * each) for each in range(records)]
    columns = {
        RecordField.SPAN_START: starts,
        RecordField.SPAN_END: [each + log_steps for each in starts],
        RecordField.SPAN_SECONDS: [20.0] * records,
        RecordField.IMAGES_PER_S: [100.0 + each for each in range(records)],
    }
    return run(spec("dlperf-tf2"), columns, **more)


def test_time_history_is_of_iterations_100_to_600() -> None:
    found = figure(time_history(8), "dlperf-tf2")
    assert (found.samples_per_s, found.used, found.unused) == (103.0, 5, ("1 of warm-up", "2 after the window"))
    assert value(time_history(14, 50), "dlperf-tf2") == statistics.fmean(range(102, 112))
    assert "records of 400 of these iterations" in reason(time_history(5), "dlperf-tf2")
    assert warm_up_records(time_history(8)) == 1
    stamped = time_history(6, stamps={index: 30.0 * index for index in range(6)})
    assert value(stamped, "dlperf-time") == round(500 * 64 / 150, 2)


def test_fleetx_is_images_over_seconds_of_100_steps_after_20() -> None:
    given = rates(spec("fleetx-20-100-median7", record_covers=1), RISING)
    assert value(given, "fleetx-20-100-median7") == pytest.approx(statistics.harmonic_mean(RISING[20:120]))


# ---- the rules as such


@pytest.mark.parametrize("rule", ["mean", "ngc-tf-mean:skip", "ngc-tf-mean:skip=-1", "ngc-tf-mean:last=3",
                                  "dlperf-log:skip=3"])  # fmt: skip
def test_a_rule_that_is_not_known_is_refused(rule: str) -> None:
    with pytest.raises(LogError):
        figure(rates(spec(), RISING), rule)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_run_without_records_or_figures_gives_a_reason_and_no_figure(rule: str) -> None:
    columns: dict[RecordField, list[float]] = {RecordField.IMAGES_PER_S: [], RecordField.STEP: []}
    assert "expected" in reason(run(spec(rule), columns), rule)
    assert "got nan, expected a finite rate" in reason(card_rates([1.0] * 10 + [float("nan")]), "paddleclas-mean")
