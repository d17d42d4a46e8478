"""The publishers' rules over hand-made runs, each against its definition written out here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest

from helpers.logs.figures.rules import RULES, figure, figures, usual_rule, warm_up_records
from helpers.logs.record import LogRun, RateOf, RecordField
from helpers.logs.settings import LogSetting
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.made_runs import rates, run, spec

ONE_CARD = {LogSetting.CARDS: "1"}
RISING = [float(100 + each) for each in range(140)]


def value(given: LogRun, rule: str) -> float:
    found = figure(given, rule)
    assert found.samples_per_s is not None, found.reason
    return found.samples_per_s


def reason(given: LogRun, rule: str) -> str:
    found = figure(given, rule)
    assert found.samples_per_s is None
    assert (found.used, found.unused) == (0, ())
    return found.reason


# ---- PaddleClas


def card_rates(values: Sequence[float], **more: object) -> LogRun:
    format = spec("paddleclas-trimmed", "paddleclas-mean", rate_of=RateOf.CARD)
    return rates(format, values, **more)


def test_paddleclas_mean_leaves_ten_records_out_and_counts_all_cards() -> None:
    given = card_rates([1.0] * 10 + [100.0, 110.0, 120.0])
    found = figure(given, "paddleclas-mean")
    assert (found.samples_per_s, found.used, found.unused) == (220.0, 3, ("10 of warm-up",))


def test_paddleclas_trimmed_drops_five_or_five_percent_at_each_end() -> None:
    few = card_rates([1.0] * 10 + RISING[:21])
    assert value(few, "paddleclas-trimmed") == 2 * statistics.fmean(sorted(RISING[:21])[5:-5])
    many = card_rates([1.0] * 10 + RISING)
    found = figure(many, "paddleclas-trimmed")
    assert found.samples_per_s == 2 * statistics.fmean(RISING[7:-7])
    assert (found.used, found.unused) == (126, ("10 of warm-up", "the 7 lowest and the 7 highest"))


def test_of_fewer_than_21_records_the_mean_is_the_usual_rule() -> None:
    given = card_rates([1.0] * 10 + RISING[:20])
    assert "got '20 records after the first 10', expected 21 or more" in reason(given, "paddleclas-trimmed")
    assert usual_rule(figures(given)) == "paddleclas-mean"
    assert usual_rule(figures(card_rates([1.0] * 10 + RISING[:21]))) == "paddleclas-trimmed"


def test_ten_records_give_no_figure_and_the_first_rule_stays_the_usual_one() -> None:
    given = card_rates([1.0] * 10)
    assert "0 records after the first 10" in reason(given, "paddleclas-mean")
    assert usual_rule(figures(given)) == "paddleclas-trimmed"


def test_the_number_left_out_is_a_parameter() -> None:
    given = card_rates([1.0, 3.0, 5.0])
    found = figure(given, "paddleclas-mean:skip=1")
    assert (found.rule, found.samples_per_s) == ("paddleclas-mean:skip=1", 8.0)
    assert figure(card_rates(RISING), "paddleclas-mean:skip=10").rule == "paddleclas-mean"


# ---- NVIDIA


def test_the_tensorflow_mean_leaves_five_records_out_and_says_so_in_its_name() -> None:
    given = rates(spec("ngc-tf-mean"), [1.0] * 5 + [30.0, 50.0])
    found = figure(given, "ngc-tf-mean")
    assert (found.rule, found.samples_per_s, found.used) == ("ngc-tf-mean:skip=5", 40.0, 2)
    assert value(given, "ngc-tf-mean:skip=6") == 50.0


@pytest.mark.parametrize(("cards", "skipped"), [("1", 9), ("2", 8), ("32", 8)])
def test_the_pytorch_mean_leaves_out_nine_records_of_one_card_and_eight_of_several(cards: str, skipped: int) -> None:
    given = rates(spec("ngc-pytorch-mean"), RISING, settings={LogSetting.CARDS: cards})
    found = figure(given, "ngc-pytorch-mean")
    assert found.rule == f"ngc-pytorch-mean:skip={skipped}"
    assert found.samples_per_s == statistics.fmean(RISING[skipped:])
    assert warm_up_records(given) == skipped


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ("ngc-tf-average", "average"), ("ngc-tf-summary", "train_throughput"),
        ("ngc-pytorch-summary", "summary_total"), ("ngc-pytorch-summary-compute", "summary_compute"),
    ],
)  # fmt: skip
def test_a_printed_figure_is_taken_as_it_stands_the_last_one_where_there_are_several(rule: str, key: str) -> None:
    given = rates(spec(rule), RISING, printed={key: [(None, 11.5), (None, 12.5)]})
    found = figure(given, rule)
    assert (found.rule, found.samples_per_s, found.unused) == (rule, 12.5, ("1 printed before it",))
    assert "no such line in the log" in reason(rates(spec(rule), RISING), rule)


def test_tensorflow_prefers_the_scripts_own_figure_where_it_is_printed() -> None:
    format = spec("ngc-tf-mean", "ngc-tf-average", "ngc-tf-summary")
    own = rates(format, RISING, printed={"train_throughput": [(None, 12.5)]})
    assert usual_rule(figures(own)) == "ngc-tf-summary"
    assert usual_rule(figures(rates(format, RISING))) == "ngc-tf-mean:skip=5"


def mxnet(*epochs: tuple[int, float]) -> LogRun:
    columns = {
        RecordField.EPOCH: [0, 0, 1, 1],
        RecordField.STEP: [19, 39, 19, 39],
        RecordField.IMAGES_PER_S: [50.0, 90.0, 100.0, 98.0],
    }
    return run(spec("ngc-mxnet-epochs"), columns, printed={"epoch": epochs})


def test_mxnet_is_the_harmonic_mean_of_the_epochs_after_the_first_in_five_digits() -> None:
    given = mxnet((2, 1444.4444), (0, 700.0), (1, 1333.3333))
    assert value(given, "ngc-mxnet-epochs") == float(f"{2 / (1 / 1444.4444 + 1 / 1333.3333):.5g}")
    assert value(given, "ngc-mxnet-epochs") == 1386.7
    assert "1 epochs with a figure" in reason(mxnet((0, 700.0)), "ngc-mxnet-epochs")
    assert warm_up_records(given) == 2


def test_a_summary_line_is_its_own_figure() -> None:
    given = run(spec("tipc-summary", is_summary=True), {RecordField.IMAGES_PER_S: [900.0, 950.0]})
    found = figure(given, "tipc-summary")
    assert (found.samples_per_s, found.unused) == (950.0, ("1 printed before it",))


def test_epochs_of_one_card_are_of_all_cards() -> None:
    format = spec("ngc-mxnet-epochs", rate_of=RateOf.CARD)
    given = run(format, {}, {LogSetting.CARDS: "8"}, printed={"epoch": [(0, 50.0), (1, 100.0)]})
    assert value(given, "ngc-mxnet-epochs") == 800.0


# ---- DLPerf and FleetX


def test_dlperf_log_is_the_mean_of_iterations_20_to_119() -> None:
    whole = rates(spec("dlperf-log"), RISING)
    assert value(whole, "dlperf-log") == statistics.fmean(RISING[20:120])
    from_20 = rates(spec("dlperf-log"), RISING[20:], first_step=20)
    found = figure(from_20, "dlperf-log")
    assert found.samples_per_s == statistics.fmean(RISING[20:120])
    assert found.unused == ("20 after the window",)
    from_1 = rates(spec("dlperf-log"), RISING, first_step=1)
    assert value(from_1, "dlperf-log") == statistics.fmean(RISING[20:120])


def test_dlperf_rounds_as_its_scripts_do() -> None:
    given = rates(spec("dlperf-log", name="dlperf-tensorflow1"), [10.004] * 120)
    assert value(given, "dlperf-log") == 10.0


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (range(119), "99 records from iteration 20 on"),
        ((each for each in range(130) if each != 50), "no record after that of step 49"),
        ((each for each in range(140) if each != 20), "no record of iteration 20"),
        (range(0, 1400, 10), "no record after that of step 20"),
    ],
)
def test_a_window_with_a_hole_gives_no_figure(steps: Sequence[int], told: str) -> None:
    numbers = [float(each) for each in steps]
    given = run(spec("dlperf-log"), {RecordField.STEP: numbers, RecordField.IMAGES_PER_S: [10.0] * len(numbers)})
    assert told in reason(given, "dlperf-log")


def test_dlperf_time_is_of_the_stamps() -> None:
    stamps = {index: 1000 + 0.5 * index + (3 if index > 60 else 0) for index in range(140)}
    tensorflow = rates(spec("dlperf-time", name="dlperf-tensorflow1"), RISING, stamps=stamps)
    assert value(tensorflow, "dlperf-time") == round(99 * 64 / (99 * 0.5 + 3), 2)
    bare = rates(spec("dlperf-time"), RISING)
    assert "records without a time stamp" in reason(bare, "dlperf-time")
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
    return run(spec("dlperf-tf2", name="dlperf-tensorflow2"), columns, **more)


def test_dlperf_tf2_is_of_iterations_100_to_600() -> None:
    found = figure(time_history(8), "dlperf-tf2")
    assert (found.samples_per_s, found.used) == (103.0, 5)
    assert found.unused == ("1 of warm-up", "2 after the window")
    assert value(time_history(14, 50), "dlperf-tf2") == statistics.fmean(range(102, 112))
    assert "records of 400 of these iterations" in reason(time_history(5), "dlperf-tf2")
    assert warm_up_records(time_history(8)) == 1


def test_dlperf_time_of_time_history_is_of_the_stamps_of_steps_100_and_600() -> None:
    given = time_history(6, stamps={index: 30.0 * index for index in range(6)})
    assert value(given, "dlperf-time") == round(500 * 64 / 150, 2)


def test_fleetx_is_images_over_seconds_of_100_steps_after_20() -> None:
    given = rates(spec("fleetx-20-100-median7", record_covers=1), RISING)
    assert value(given, "fleetx-20-100-median7") == pytest.approx(statistics.harmonic_mean(RISING[20:120]))
    assert "records of 99 steps" in reason(
        rates(spec("fleetx-20-100-median7", record_covers=1), RISING[:119]), "fleetx-20-100-median7"
    )


def test_fleetx_of_records_every_ten_steps_counts_the_steps_they_are_the_mean_of() -> None:
    """Step 0 stands alone, so the window begins behind step 20 and holds the ten records from step 30 to 120."""
    steps = [float(each) for each in range(0, 200, 10)]
    columns = {RecordField.EPOCH: [0.0] * 20, RecordField.STEP: steps, RecordField.IMAGES_PER_S: RISING[:20]}
    found = figure(run(spec("fleetx-20-100-median7", rate_of=RateOf.CARD), columns), "fleetx-20-100-median7")
    assert found.samples_per_s == pytest.approx(2 * statistics.harmonic_mean(RISING[3:13]))
    assert (found.used, found.unused) == (10, ("3 of warm-up", "7 after the window"))


def test_fleetx_refuses_a_hole() -> None:
    steps = [float(each) for each in range(0, 200, 10) if each != 60]
    columns = {RecordField.EPOCH: [0.0] * 19, RecordField.STEP: steps, RecordField.IMAGES_PER_S: RISING[:19]}
    told = reason(run(spec("fleetx-20-100-median7"), columns), "fleetx-20-100-median7")
    assert "no record after that of step 50" in told


# ---- the rules as such


@pytest.mark.parametrize("rule", ["", "mean", "ngc-tf-mean:skip", "ngc-tf-mean:skip=-1", "ngc-tf-mean:skip=x",
                                  "ngc-tf-mean:last=3", "dlperf-log:skip=3"])  # fmt: skip
def test_a_rule_that_is_not_known_is_refused(rule: str) -> None:
    with pytest.raises(LogError):
        figure(rates(spec(), RISING), rule)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_run_without_records_or_figures_gives_a_reason_and_no_figure(rule: str) -> None:
    columns: dict[RecordField, list[float]] = {RecordField.IMAGES_PER_S: [], RecordField.STEP: []}
    assert "expected" in reason(run(spec(rule), columns), rule)


def test_a_record_that_is_no_rate_spoils_the_figure_openly() -> None:
    given = card_rates([1.0] * 10 + [float("nan")] * 3)
    assert "got nan, expected a finite rate" in reason(given, "paddleclas-mean")
