"""What an import says of a run beside its figures: reader share, spread, and each doubt where it belongs only."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from helpers.logs.figures.analysis import analyse
from helpers.logs.figures.rules import figure, figures
from helpers.logs.figures.series import Means, means_of
from helpers.logs.record import Dropped, Line, LogRun, RateOf, RecordField, RuleFigure
from helpers.logs.settings import LogSetting
from tests.helpers.logs.made_runs import paddleclas, rates, run, spec

RANDOM = random.Random(5)
STEADY = [100.0 + RANDOM.gauss(0, 0.5) for _ in range(65)]
TENSORFLOW = spec("ngc-tf-mean", record_covers=1)


def honest(given: LogRun) -> RuleFigure:
    return analyse(given).honest


def reader_share(given: LogRun) -> float | None:
    return analyse(given).reader_share


def warnings(given: LogRun) -> tuple[str, ...]:
    return analyse(given).warnings


def one_warning(given: LogRun, beginning: str) -> str:
    (found,) = [each for each in warnings(given) if each.startswith(beginning)]
    return found


def test_a_steady_run_is_doubted_in_nothing() -> None:
    assert warnings(rates(TENSORFLOW, STEADY)) == ()


def test_a_rule_that_is_asked_for_is_the_figure_even_where_it_gives_none() -> None:
    found = analyse(rates(TENSORFLOW, STEADY), "ngc-tf-mean:skip=0").usual_figure
    assert found is not None and found.samples_per_s == pytest.approx(statistics.fmean(STEADY))
    missing = analyse(rates(TENSORFLOW, STEADY), "ngc-mxnet-epochs").usual_figure
    assert missing is not None and (missing.rule, missing.samples_per_s) == ("ngc-mxnet-epochs", None)
    assert analyse(rates(TENSORFLOW, STEADY), "honest").usual == "honest"


def test_the_spread_is_of_the_records_after_warm_up() -> None:
    spread = analyse(rates(TENSORFLOW, [1.0] * 5 + STEADY)).spread
    assert spread is not None
    assert spread.records == len(STEADY)
    assert spread.median_samples_per_s == pytest.approx(statistics.median(STEADY))
    assert spread.variation == pytest.approx(statistics.stdev(STEADY) / statistics.fmean(STEADY))
    assert (spread.lowest_samples_per_s, spread.highest_samples_per_s) == (min(STEADY), max(STEADY))
    assert analyse(rates(TENSORFLOW, [])).spread is None
    short = analyse(rates(TENSORFLOW, [7.0])).spread
    assert short is not None
    assert (short.records, short.variation) == (1, 0.0)


# ---- reader share


def test_the_readers_share_of_running_means_is_that_of_the_epochs_last_records() -> None:
    given = paddleclas([[1.0] * 31, [2.0] * 21])
    waits = [9.0, 9.0, 0.1, 9.0, 0.4]
    columns = {
        **given.columns,
        RecordField.READER_SECONDS: run(spec(), {RecordField.STEP: waits}).columns[RecordField.STEP],
    }
    waited, total = 0.1 * 26 + 0.4 * 16, 1.0 * 26 + 2.0 * 16
    assert reader_share(replace(given, columns=columns)) == pytest.approx(waited / total)


def test_the_readers_share_of_pytorch_is_what_computing_alone_does_not_take() -> None:
    columns = {
        RecordField.STEP: [1.0, 2.0],
        RecordField.IMAGES_PER_S: [80.0, 40.0],
        RecordField.COMPUTE_IMAGES_PER_S: [100.0, 40.0],
    }
    assert reader_share(run(spec("ngc-pytorch-mean"), columns)) == pytest.approx(
        1 - (1 / 100 + 1 / 40) / (1 / 80 + 1 / 40)
    )


# ---- doubts


def test_few_records_are_told() -> None:
    assert one_warning(rates(TENSORFLOW, STEADY[:25]), "few") == ("few records: 20 after 5 of warm-up, fewer than 21")
    assert warnings(rates(TENSORFLOW, STEADY[:26])) == ()


def test_a_slow_last_record_is_told() -> None:
    told = one_warning(rates(TENSORFLOW, [*STEADY, 17.0]), "slow last")
    assert told.startswith("slow last record: 17 images/s, -83.0% from the median")


def test_running_means_are_told_with_what_they_cost() -> None:
    seconds = [0.1] * 5 + [0.4] * 100 + [0.2] * 400
    given = paddleclas([seconds])
    told = one_warning(given, "running means")
    publishers = figures(given)[0].samples_per_s
    assert publishers is not None
    cost = 64 * 496 / sum(seconds[5:501]) / publishers - 1
    assert cost > 0.1
    assert told.endswith(f"not images / seconds: the honest figure is {cost:+.2%} from paddleclas-trimmed")


def test_a_cut_log_and_dropped_lines_are_told() -> None:
    dropped = (Dropped(3, "not a whole record", Line(12, "x")),)
    found = warnings(rates(TENSORFLOW, STEADY, cut="the last line has no end", dropped=dropped, notes=("a note",)))
    assert [each.split(":")[0] for each in found] == [
        "cut log",
        "3 lines look like records and were not used",
        "a note",
    ]


@pytest.mark.parametrize(("printed", "count"), [(100.5, 0), (103.0, 1), (97.0, 1)])
def test_a_printed_summary_that_the_records_do_not_give_is_told(printed: float, count: int) -> None:
    found = warnings(rates(TENSORFLOW, STEADY, printed={"train_throughput": [(None, printed)]}))
    assert len(found) == count
    assert all(each.startswith("the script's own 'train_throughput' is ") for each in found)


def clocked(step_seconds: float, resolution: float = 0.001) -> LogRun:
    seconds = [step_seconds * each // resolution * resolution for each in range(65)]
    stamps = dict(enumerate(seconds))
    return rates(TENSORFLOW, [64.0 / 2] * 65, stamps=stamps)


def test_time_stamps_that_disagree_by_more_than_they_resolve_are_told() -> None:
    assert warnings(clocked(2.0)) == ()
    slow = one_warning(clocked(2.5), "by the time stamps of records 6 and 65")
    assert "-20.0% from the 32 of the records between: they leave out some of the time" in slow
    fast = one_warning(clocked(1.5), "by the time stamps")
    assert "they state more time than passed" in fast
    # Whole seconds over two minutes: 1 second is 0.8%.
    assert warnings(clocked(2.03, resolution=1.0)) == ()


def test_a_batch_size_that_the_records_contradict_is_told() -> None:
    columns = {
        RecordField.IMAGES_PER_S: [320.0] * 40,
        RecordField.STEP_SECONDS: [0.2] * 40,
        RecordField.STEP: list(range(40)),
    }
    format = spec("paddleclas-mean", rate_of=RateOf.CARD)
    assert "64 a card and step, the configuration says 32 (line 1)" in one_warning(run(format, columns), "the rec")
    agreed = run(format, columns, {LogSetting.BATCH_SIZE_PER_CARD: "64"})
    assert warnings(agreed) == ()


def test_a_summary_of_a_whole_run_has_its_figure_and_nothing_beside_it() -> None:
    found = analyse(run(spec("tipc-summary", is_summary=True), {RecordField.IMAGES_PER_S: [900.0]}))
    assert (found.usual, found.honest.samples_per_s, found.spread, found.warnings) == ("tipc-summary", None, None, ())


# ---- the honest figure

SLOW_THEN_FAST = [9.0] * 5 + [0.4] * 100 + [0.2] * 296
# Of steps 5 to 400, the last that has a record.
IMAGES, SECONDS = 2 * 32 * 396, 100 * 0.4 + 296 * 0.2


def value(given: LogRun) -> float:
    found = honest(given)
    assert found.samples_per_s is not None, found.reason
    return found.samples_per_s


def test_a_running_mean_is_turned_back_into_images_and_seconds() -> None:
    """docs/published.md: cumulative seconds = batch_cost x (s - 4)."""
    given = paddleclas([SLOW_THEN_FAST])
    found = honest(given)
    assert found.samples_per_s == pytest.approx(IMAGES / SECONDS)
    assert found.used == 40
    assert found.unused == ("the steps before step 5 of each epoch, and the steps after the last record",)
    publishers = figure(given, "paddleclas-trimmed").samples_per_s
    assert publishers is not None
    assert abs(publishers / found.samples_per_s - 1) > 0.05


def test_each_epoch_counts_by_its_last_record_alone() -> None:
    given = paddleclas([SLOW_THEN_FAST, [9.0] * 5 + [0.1] * 16, [1.0] * 3, SLOW_THEN_FAST[:105]])
    images = 2 * 32 * (396 + 16 + 96)
    assert value(given) == pytest.approx(images / (SECONDS + 16 * 0.1 + 96 * 0.4))


def test_rates_of_equal_steps_have_their_harmonic_mean_after_warm_up() -> None:
    values = [1.0] * 5 + [100.0, 50.0, 200.0]
    found = honest(rates(spec("ngc-tf-mean", record_covers=1), values))
    assert found.samples_per_s == pytest.approx(statistics.harmonic_mean(values[5:]))
    assert (found.used, found.unused) == (3, ("5 of warm-up",))


def test_a_record_weighs_as_many_steps_as_it_is_the_mean_of() -> None:
    """The record of step 0 is of one step; where one was dropped, the next is still the mean of ten."""
    steps = [0.0, 10.0, 20.0, 40.0]
    columns = {
        RecordField.EPOCH: [0.0] * 4,
        RecordField.STEP: steps,
        RecordField.IMAGES_PER_S: [5.0, 100.0, 50.0, 200.0],
    }
    seconds = 1 / 5 + 10 / 100 + 10 / 50 + 10 / 200
    assert value(run(spec(), columns)) == pytest.approx(31 / seconds)


def test_seconds_of_steps_without_a_rate_are_enough() -> None:
    steps = [float(each) for each in range(25)]
    given = run(
        spec("dlperf-log"),
        {RecordField.STEP: steps, RecordField.STEP_SECONDS: [9.0] * 20 + [0.5, 0.5, 0.5, 0.25, 0.25]},
    )
    assert value(given) == pytest.approx(5 * 64 / 2.0)


def test_time_history_is_images_over_seconds_after_its_first_record() -> None:
    columns = {
        RecordField.SPAN_START: [0.0, 100.0, 200.0],
        RecordField.SPAN_END: [100.0, 200.0, 260.0],
        RecordField.SPAN_SECONDS: [500.0, 40.0, 20.0],
        RecordField.IMAGES_PER_S: [1.0, 160.0, 192.0],
    }
    assert value(run(spec("dlperf-tf2"), columns)) == pytest.approx(160 * 64 / 60)


def test_mxnet_counts_the_records_after_the_first_epoch_and_epochs_where_there_are_none() -> None:
    columns = {
        RecordField.EPOCH: [0, 0, 1, 1],
        RecordField.STEP: [19, 39, 19, 39],
        RecordField.IMAGES_PER_S: [5, 50, 100, 300],
    }
    assert value(run(spec("ngc-mxnet-epochs"), columns)) == pytest.approx(150)
    bare = run(spec("ngc-mxnet-epochs"), {}, printed={"epoch": [(0, 5), (1, 100), (2, 300)]})
    assert (value(bare), honest(bare).used) == (pytest.approx(150), 2)


def test_a_summary_of_a_whole_run_permits_no_honest_figure() -> None:
    found = honest(run(spec(is_summary=True), {RecordField.IMAGES_PER_S: [900.0]}))
    assert found.samples_per_s is None
    assert "got 'one figure for the whole run', expected records of steps, or seconds" in found.reason


# ---- by the clock


def test_stamps_of_another_epoch_are_not_compared() -> None:
    columns = {
        RecordField.EPOCH: [0.0, 0.0, 0.0, 1.0],
        RecordField.STEP: [0.0, 1.0, 2.0, 0.0],
        RecordField.IMAGES_PER_S: [64.0] * 4,
    }
    stamps = dict(enumerate([0.5, 2.5, 4.5, 60.0]))
    told = one_warning(run(spec(), columns, stamps=stamps), "by the time stamps of records 1 and 3, 4 s apart")
    assert "-50.0% from the 64" in told


# ---- whether means run on or are reset at every record


def windows(seconds: Sequence[float], *, reset: bool, may_reset: bool = True, since: int = 5) -> LogRun:
    """Records of an epoch of steps that took so many seconds, as PaddleClas' dynamic graph prints them."""
    made = paddleclas([seconds])
    if reset:
        means = [statistics.fmean(seconds[max(step - 9, since) : step + 1]) for step in range(10, len(seconds), 10)]
        columns = {
            **made.columns,
            RecordField.IMAGES_PER_S: [32 / each for each in means],
            RecordField.STEP_SECONDS: means,
        }
        made = replace(made, columns=columns)
    return replace(made, format=replace(made.format, running_mean=since, may_reset=may_reset))


def noisy(steps: int, share: float, seed: int, last: float = 1.0) -> list[float]:
    draw = random.Random(seed)
    return [0.2 * (1 + draw.gauss(0, share)) for _ in range(steps - 10)] + [0.2 * last] * 10


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.003, 0.03])
@pytest.mark.parametrize("last", [1.0, 3.0, 0.5])
def test_the_records_tell_whether_their_means_are_reset(share: float, seed: int, last: float) -> None:
    seconds = noisy(601, share, seed, last)
    true = 2 * 32 * 596 / sum(seconds[5:])
    running, own = windows(seconds, reset=False), windows(seconds, reset=True)
    assert (means_of(running), means_of(own)) == (Means.RUNNING, Means.RESET)
    assert value(running) == pytest.approx(true)
    assert value(own) == pytest.approx(true)
    assert any(each.startswith("means of their own") for each in warnings(own))
    assert any(each.startswith("running means") for each in warnings(running))


def test_where_the_records_do_not_tell_and_it_matters_there_is_no_figure() -> None:
    found = honest(windows([0.2] * 21 + [0.6] * 10, reset=True))
    assert found.samples_per_s is None
    assert "means of which nothing shows" in found.reason
    assert value(windows([0.2] * 31, reset=True)) == pytest.approx(2 * 32 / 0.2)


@pytest.mark.parametrize("reset", [False, True])
def test_few_records_that_do_not_tell_give_the_lower_figure_and_say_so(reset: bool) -> None:
    seconds = noisy(121, 0.003, seed=3)
    given = windows(seconds, reset=reset)
    assert (given.records, means_of(given)) == (12, Means.EITHER)
    means, first = given.columns[RecordField.STEP_SECONDS], given.columns[RecordField.STEP][0]
    steps = [first - 4, *[10] * 11]
    if_reset = 2 * 32 * sum(steps) / sum(each * mean for each, mean in zip(steps, means, strict=True))
    assert value(given) == pytest.approx(min(if_reset, 2 * 32 / means[-1]))
    assert if_reset != pytest.approx(2 * 32 / means[-1])
    (told,) = (each for each in warnings(given) if "means" in each)
    between = "of which 10 stand between others of their epoch and 20 should"
    assert told.startswith(f"running or reset means: 12 records, {between}, do not show")


def test_many_records_of_short_epochs_tell_no_more() -> None:
    made = paddleclas([noisy(51, 0.003, seed) for seed in range(5)])
    given = replace(made, format=replace(made.format, running_mean=5, may_reset=True))
    (told,) = (each for each in warnings(given) if "means" in each)
    between = "of which 15 stand between others of their epoch and 20 should"
    assert told.startswith(f"running or reset means: 25 records, {between}, do not show")


def test_running_means_whose_difference_is_no_time_are_reset_in_any_format() -> None:
    format = spec("paddleclas-mean", rate_of=RateOf.CARD, running_mean=5, name="paddleclas")
    columns = {RecordField.EPOCH: [0.0, 0.0], RecordField.STEP: [14.0, 24.0], RecordField.IMAGES_PER_S: [1.0, 1e3]}
    given = run(format, columns)
    assert means_of(given) is Means.RESET
    assert value(given) == pytest.approx(2 * 20 / (10 / 1.0 + 10 / 1e3))


def test_spans_of_no_step_have_no_median_step_and_cost_no_other_figure() -> None:
    starts = [float(each) for each in range(199)]
    columns = {
        RecordField.SPAN_START: starts,
        RecordField.SPAN_END: [start + (1 if start < 100 else 0) for start in starts],
        RecordField.SPAN_SECONDS: [0.2] * 199,
        RecordField.IMAGES_PER_S: [100.0] * 199,
    }
    found = analyse(run(spec("dlperf-tf2"), columns))
    assert found.median_step.samples_per_s is None
    assert "no step after warm-up" in found.median_step.reason
