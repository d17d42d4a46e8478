"""What an import says of a run beside its figures: reader share, spread, and each doubt where it belongs only."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import helpers.logs.figures.series
from helpers.logs.column import NumberColumn
from helpers.logs.figures.analysis import analyse, honest, reader_share
from helpers.logs.figures.doubts import by_stamps, doubts, drift_of
from helpers.logs.figures.rules import figure, figures
from helpers.logs.figures.series import running_seconds, stretches
from helpers.logs.record import Dropped, Line, LogRun, RateOf, RecordField, Stamp
from helpers.logs.settings import LogSetting
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.made_runs import paddleclas, rates, run, spec

RANDOM = random.Random(5)
STEADY = [100.0 + RANDOM.gauss(0, 0.5) for _ in range(65)]
TENSORFLOW = spec("ngc-tf-mean", record_covers=1)


def warnings(given: LogRun) -> tuple[str, ...]:
    return analyse(given).warnings


def one_warning(given: LogRun, beginning: str) -> str:
    (found,) = [each for each in warnings(given) if each.startswith(beginning)]
    return found


def test_a_steady_run_is_doubted_in_nothing() -> None:
    assert warnings(rates(TENSORFLOW, STEADY)) == ()


def test_everything_of_the_run_is_passed_on() -> None:
    given = rates(TENSORFLOW, STEADY)
    found = analyse(given)
    for name in ("source", "sha256", "number", "runs_in_file", "first_line", "last_line", "settings", "dropped"):
        assert getattr(found, name) == getattr(given, name)
    assert (found.format, found.usual) == ("made", "ngc-tf-mean:skip=5")
    assert found.honest == honest(given)
    assert found.figures == figures(given)


def test_a_rule_that_is_asked_for_is_the_figure_even_where_it_gives_none() -> None:
    found = analyse(rates(TENSORFLOW, STEADY), "ngc-tf-mean:skip=0")
    assert found.usual == "ngc-tf-mean:skip=0"
    figure = found.figure(found.usual)
    assert figure is not None
    assert figure.samples_per_s == pytest.approx(statistics.fmean(STEADY))
    missing = analyse(rates(TENSORFLOW, STEADY), "ngc-mxnet-epochs")
    assert missing.usual == "ngc-mxnet-epochs"
    figure = missing.figure("ngc-mxnet-epochs")
    assert figure is not None
    assert figure.samples_per_s is None
    assert len(missing.figures) == 2
    assert analyse(rates(TENSORFLOW, STEADY), "honest").usual == "honest"
    with pytest.raises(LogError):
        analyse(rates(TENSORFLOW, STEADY), "mean")


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
    assert reader_share(replace(given, columns=columns)) == (pytest.approx(waited / total), "")


def test_the_readers_share_of_pytorch_is_what_computing_alone_does_not_take() -> None:
    columns = {
        RecordField.STEP: [1.0, 2.0],
        RecordField.IMAGES_PER_S: [80.0, 40.0],
        RecordField.COMPUTE_IMAGES_PER_S: [100.0, 40.0],
    }
    share, reason = reader_share(run(spec("ngc-pytorch-mean"), columns))
    assert share == pytest.approx(1 - (1 / 100 + 1 / 40) / (1 / 80 + 1 / 40))
    assert reason == ""


def test_a_log_that_does_not_tell_the_readers_share_says_so() -> None:
    share, reason = reader_share(rates(TENSORFLOW, STEADY))
    assert share is None
    assert "do not state how long a step waited for data" in reason
    gap = {RecordField.STEP_SECONDS: [1.0], RecordField.READER_SECONDS: [float("nan")]}
    assert reader_share(run(spec(), gap))[0] is None


# ---- doubts


def test_few_records_are_told() -> None:
    assert one_warning(rates(TENSORFLOW, STEADY[:25]), "few") == ("few records: 20 after 5 of warm-up, fewer than 21")
    assert warnings(rates(TENSORFLOW, STEADY[:26])) == ()


def test_a_drift_is_told_and_scatter_is_none() -> None:
    falling = [rate * (1 - 0.001 * index) for index, rate in enumerate(STEADY)]
    told = one_warning(rates(TENSORFLOW, falling), "drift")
    assert told.startswith("drift: the last third of the run is 4.")
    assert "slower than the first" in told
    wild = [100 + RANDOM.gauss(0, 20) for _ in range(300)]
    assert drift_of(rates(TENSORFLOW, wild), 5) is None
    assert drift_of(rates(TENSORFLOW, falling[:8]), 5) is None


def test_drift_of_running_means_is_of_what_each_record_timed() -> None:
    """A slow start stays in a running mean to the end; the steps behind it are steady."""
    given = paddleclas([[0.2] * 5 + [1.0] * 60 + [0.2] * 600])
    assert drift_of(given, 10) is None
    assert drift_of(paddleclas([[0.2] * 300 + [0.21] * 300]), 10) is not None


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
    dropped = (Dropped(3, "ips: None", Line(12, "x")), Dropped(1, "not a number", Line(40, "x")))
    found = warnings(rates(TENSORFLOW, STEADY, cut="the last line has no end", dropped=dropped, notes=("a note",)))
    assert found == (
        "cut log: the last line has no end",
        "3 lines look like records and were not used: ips: None (line 12)",
        "1 line looks like a record and was not used: not a number (line 40)",
        "a note",
    )


@pytest.mark.parametrize(("printed", "count"), [(100.5, 0), (103.0, 1), (97.0, 1)])
def test_a_printed_summary_that_the_records_do_not_give_is_told(printed: float, count: int) -> None:
    found = warnings(rates(TENSORFLOW, STEADY, printed={"train_throughput": [(None, printed)]}))
    assert len(found) == count
    assert all(each.startswith("the script's own 'train_throughput' is ") for each in found)


def test_rules_that_disagree_are_told() -> None:
    format = spec("ngc-tf-summary", "ngc-tf-mean", record_covers=1)
    given = rates(format, STEADY, printed={"train_throughput": [(None, 105.0)]})
    assert one_warning(given, "the rules differ by ").endswith("ngc-tf-mean:skip=5 100, ngc-tf-summary 105 images/s")


def clocked(step_seconds: float, resolution: float = 0.001) -> LogRun:
    seconds = [step_seconds * each // resolution * resolution for each in range(65)]
    stamps = tuple(Stamp(index, each) for index, each in enumerate(seconds))
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
    assert doubts(agreed, (), honest(agreed), None) == ()


def test_a_run_without_records_is_analysed_all_the_same() -> None:
    empty: dict[RecordField, Sequence[float]] = {
        RecordField.EPOCH: [],
        RecordField.STEP: [],
        RecordField.IMAGES_PER_S: [],
    }
    for rule in ("paddleclas-trimmed", "ngc-mxnet-epochs", "dlperf-log", "fleetx-20-100-median7"):
        found = analyse(run(spec(rule), empty))
        assert found.honest.samples_per_s is None
        assert [each.samples_per_s for each in found.figures] == [None]


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
    """docs/measuring-rules.md: cumulative seconds = batch_cost x (s - 4)."""
    given = paddleclas([SLOW_THEN_FAST])
    found = honest(given)
    assert found.samples_per_s == pytest.approx(IMAGES / SECONDS)
    assert found.used == 40
    assert found.unused == ("the first 4 steps of the epoch, and the steps after the last record",)
    publishers = figure(given, "paddleclas-trimmed").samples_per_s
    assert publishers is not None
    assert abs(publishers / found.samples_per_s - 1) > 0.05


def test_each_epoch_counts_by_its_last_record_alone() -> None:
    given = paddleclas([SLOW_THEN_FAST, [9.0] * 5 + [0.1] * 16, [1.0] * 3, SLOW_THEN_FAST[:105]])
    images = 2 * 32 * (396 + 16 + 96)
    assert value(given) == pytest.approx(images / (SECONDS + 16 * 0.1 + 96 * 0.4))
    assert "the first 4 steps of 3 epochs" in honest(given).unused[0]


def test_the_records_up_to_step_4_of_the_first_generation_are_left_out() -> None:
    """It prints every step, and those before step 5 are the mean since step 0."""
    steps = [float(each) for each in range(8)]
    means = [9.0, 9.0, 9.0, 9.0, 9.0, 0.5, 0.45, 0.4]
    columns = {
        RecordField.EPOCH: [0.0] * 8,
        RecordField.STEP: steps,
        RecordField.IMAGES_PER_S: [32 / each for each in means],
    }
    found = honest(run(spec("paddleclas-mean", rate_of=RateOf.CARD, running_mean=5), columns))
    assert found.samples_per_s == pytest.approx(2 * 32 / 0.4)
    assert (found.used, found.unused[0]) == (3, "5 up to step 4 of an epoch, which are timed otherwise")


def test_running_means_are_read_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    given = paddleclas([SLOW_THEN_FAST, SLOW_THEN_FAST[:205], [1.0] * 90])
    whole = [list(part) for part in zip(*((each.steps, each.cost) for each in stretches(given)), strict=True)]
    seconds = running_seconds(given, RecordField.STEP_SECONDS)
    for size in (1, 2, 7):
        monkeypatch.setattr(helpers.logs.figures.series, "BLOCK", size)
        parts = [(each.steps, each.cost) for each in stretches(given)]
        assert len(parts) > 1
        assert [np.concatenate(each).tolist() for each in zip(*parts, strict=True)] == [
            np.concatenate(each).tolist() for each in whole
        ]
        assert running_seconds(given, RecordField.STEP_SECONDS) == pytest.approx(seconds)
    assert seconds == pytest.approx(SECONDS + 100 * 0.4 + 96 * 0.2 + 76 * 1.0)


def test_a_stretch_from_the_middle_has_its_own_time_only() -> None:
    given = paddleclas([SLOW_THEN_FAST])
    (part,) = stretches(given, 20, 22)
    assert part.steps.tolist() == [10.0, 10.0]
    assert part.rates().tolist() == pytest.approx([2 * 32 / 0.2] * 2)


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


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (rates(spec("ngc-tf-mean"), [1.0] * 5), "5 records, all of warm-up"),
        (rates(spec("ngc-tf-mean"), []), "got 'no records'"),
        (paddleclas([[1.0] * 9]), "no records"),
        (
            run(
                spec("dlperf-log"), {RecordField.STEP: [30.0], RecordField.STEP_SECONDS: [1.0]}, {LogSetting.CARDS: "?"}
            ),
            "cards",
        ),
    ],
)
def test_what_is_missing_is_told(given: LogRun, told: str) -> None:
    found = honest(given)
    assert found.samples_per_s is None
    assert told in found.reason


# ---- by the clock


def stamps(seconds: list[float]) -> tuple[Stamp, ...]:
    return tuple(Stamp(index, each) for index, each in enumerate(seconds))


def test_time_stamps_tell_the_same_stretch() -> None:
    values = [1.0] * 5 + [64.0] * 20
    clock = [1000.0 + 1.5 * each for each in range(25)]
    found = by_stamps(rates(spec("ngc-tf-mean"), values, stamps=stamps(clock)))
    assert found is not None
    assert (found.first, found.last, found.seconds) == (5, 24, 28.5)
    assert found.samples_per_s == pytest.approx(64 / 1.5)
    assert found.records_samples_per_s == pytest.approx(64.0)
    assert found.difference == pytest.approx(1 / 1.5 - 1)


def test_stamps_of_another_epoch_are_not_compared() -> None:
    columns = {
        RecordField.EPOCH: [0.0, 0.0, 0.0, 1.0],
        RecordField.STEP: [0.0, 1.0, 2.0, 0.0],
        RecordField.IMAGES_PER_S: [64.0] * 4,
    }
    found = by_stamps(run(spec(), columns, stamps=stamps([0.5, 1.5, 2.5, 60.0])))
    assert found is not None and (found.first, found.last) == (0, 2)


def test_records_without_a_step_have_no_stretch() -> None:
    columns = {RecordField.STEP: [math.nan] * 4, RecordField.IMAGES_PER_S: [64.0] * 4}
    assert by_stamps(run(spec(), columns, stamps=stamps([0.5, 1.5, 2.5, 60.0]))) is None


@pytest.mark.parametrize("clock", [[], [1.0], [5.0] * 25, [25.0 - each for each in range(25)]])
def test_stamps_that_tell_nothing_are_no_reason_to_doubt(clock: list[float]) -> None:
    assert by_stamps(rates(spec("ngc-tf-mean"), [64.0] * 25, stamps=stamps(clock))) is None


def test_a_column_of_many_blocks_gives_the_same_figure() -> None:
    size = helpers.logs.figures.series.BLOCK + 100
    values = np.random.default_rng(1).uniform(50, 150, size)
    given = rates(spec("ngc-tf-mean", record_covers=1), [1.0])
    long = NumberColumn()
    long.append(values)
    steps = NumberColumn()
    steps.append(np.arange(size, dtype=np.float64))
    columns = {RecordField.STEP: steps, RecordField.IMAGES_PER_S: long}
    big = LogRun(**{**vars(given), "columns": columns})
    assert value(big) == pytest.approx(float(1 / np.mean(1 / values[5:])), rel=1e-9)


def test_running_means_that_contradict_each_other_tell_no_time() -> None:
    """By the last record all of the epoch took no time, though the first took some."""
    format = spec("paddleclas-mean", rate_of=RateOf.CARD, running_mean=5, name="paddleclas")
    columns = {RecordField.EPOCH: [0.0, 0.0], RecordField.STEP: [10.0, 20.0], RecordField.IMAGES_PER_S: [1.0, 1e90]}
    found = honest(run(format, columns))
    assert found.samples_per_s is None
    assert "expected more than 0" in found.reason
    window = {
        RecordField.EPOCH: [0.0] * 3,
        RecordField.STEP: [24.0, 74.0, 124.0],
        RecordField.IMAGES_PER_S: [1.0, 1.0, 1e90],
    }
    assert "expected more than 0" in figure(run(format, window), "fleetx-20-100-median7").reason
