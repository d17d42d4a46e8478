"""What an import says of a run beside its figures: reader share, spread, and each doubt where it belongs only."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from helpers.logs.figures.analysis import analyse, honest, reader_share
from helpers.logs.figures.doubts import doubts, drift_of
from helpers.logs.figures.rules import figures
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
    assert "do not tell how long a step waited for data" in reason
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
    assert "-20.0% from the 32 of the records between: they do not hold all of the time" in slow
    fast = one_warning(clocked(1.5), "by the time stamps")
    assert "they tell more time than passed" in fast
    # Whole seconds over two minutes: 1 second is 0.8%.
    assert warnings(clocked(2.03, resolution=1.0)) == ()


def test_a_batch_size_that_the_records_contradict_is_told() -> None:
    columns = {
        RecordField.IMAGES_PER_S: [320.0] * 40,
        RecordField.STEP_SECONDS: [0.2] * 40,
        RecordField.STEP: list(range(40)),
    }
    format = spec("paddleclas-mean", rate_of=RateOf.CARD)
    assert "64 images a card and step, the configuration says 32 (line 1)" in one_warning(
        run(format, columns), "the rec"
    )
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
