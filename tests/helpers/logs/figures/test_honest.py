"""The honest figure: images / seconds, whatever the publisher's rule makes of the same records."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

import helpers.logs.figures.series
from helpers.logs.column import NumberColumn
from helpers.logs.figures.analysis import honest
from helpers.logs.figures.doubts import by_stamps
from helpers.logs.figures.rules import figure
from helpers.logs.figures.series import running_seconds, stretches
from helpers.logs.record import LogRun, RateOf, RecordField, Stamp
from helpers.logs.settings import LogSetting
from tests.helpers.logs.made_runs import paddleclas, rates, run, spec

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
