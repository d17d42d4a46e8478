"""Logs of a made format: what is a record, what was dropped, where a run begins, and what belongs to which."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from helpers.logs.reader import AGAIN, CUT, NO_RECORD, PREFIXED, number_of, read_log
from helpers.logs.record import FormatSpec, LogRun, RecordField
from helpers.logs.settings import LogSetting, Stated
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.reading_doubles import (
    NO_FINAL,
    PLAIN,
    SAID,
    drops,
    rates,
    record,
    records,
    text_log,
)

BEGIN = "== begin =="
NO_CARDS = {each: SAID[each] for each in SAID if each is not LogSetting.CARDS}


def read(*lines: str, spec: FormatSpec = NO_FINAL, asked: Mapping[LogSetting, Stated] = SAID) -> tuple[LogRun, ...]:
    return read_log(text_log(*lines), spec, asked)


def read_one(*lines: str, spec: FormatSpec = NO_FINAL) -> LogRun:
    (run,) = read(*lines, spec=spec)
    return run


def places(runs: tuple[LogRun, ...]) -> list[tuple[int, int, int, int, int]]:
    return [(run.number, run.runs_in_file, run.first_line, run.last_line, run.records) for run in runs]


def test_records_become_columns_in_their_order() -> None:
    run = read_one("some text", record(1, 0, 10.5), "more text", record(2, 0, "1.25e2"), record(1, 1, 7))
    assert rates(run) == [10.5, 125.0, 7.0]
    assert list(run.columns[RecordField.EPOCH]) == [0, 0, 1]
    assert list(run.columns[RecordField.STEP]) == [1, 2, 1]
    assert (run.records, run.first_line, run.last_line, run.dropped) == (3, 1, 5, ())


def test_a_record_that_lacks_a_field_has_nan_in_its_column() -> None:
    run = read_one(record(1), record(2) + " wait 0.25", record(3))
    waits = run.columns[RecordField.READER_SECONDS]
    assert math.isnan(waits[0]) and math.isnan(waits[2]) and waits[1] == 0.25
    assert run.dropped == ()


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (record(2, rate="0"), "images_per_s: 0 or less"),
        (record(2, rate="-3.5"), "images_per_s: 0 or less"),
        (record(2, rate="1e-320"), "images_per_s: 0 or less"),
        (record(2, rate="nan"), "images_per_s: no finite number"),
        (record(2, rate="-inf"), "images_per_s: no finite number"),
        (record(2, rate="1e308"), "images_per_s: no finite number"),
        (record(2, rate="127.0.0.1"), "images_per_s: no finite number"),
        (record(2) + " wait -0.5", "reader_seconds: below 0"),
        ("rate: None", NO_RECORD),
        ("127.0.0.1 has the rate: 12.5", NO_RECORD),
    ],
)
def test_what_is_no_rate_is_dropped_with_its_reason(last: str, reason: str) -> None:
    run = read_one(record(1), last)
    assert rates(run) == [100.5]
    assert drops(run) == {reason: (1, 2)}
    assert run.dropped[0].first.text == last


def test_two_records_in_one_line_are_both_read() -> None:
    assert rates(read_one(record(1, rate=5) + " " + record(2, rate=6))) == [5, 6]


def test_a_printed_figure_is_kept_and_no_dropped_record() -> None:
    lines = (record(1), "end of e0: 99.5", record(1, 1), "end of e1: 98.5", "average rate: 97.25", "end of e2: x")
    run = read_one(*lines, spec=PLAIN)
    found = {name: [(each.samples_per_s, each.line, each.epoch) for each in run.printed[name]] for name in run.printed}
    assert found == {"epoch": [(99.5, 2, 0), (98.5, 4, 1)], "average": [(97.25, 5, None)]}
    assert (run.dropped, run.cut) == ((), "")
    assert (read_one("average rate: 55.5", spec=PLAIN).records) == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [("2,899.125", 2899.125), ("2899,125", 2899.125), ("1,234,567", 1234567.0), ("12,5", 12.5), ("0,125", 0.125),
     ("2,899", math.inf), ("1.234,5", math.inf), ("1,23,4", math.inf), ("12.5", 12.5), ("1_0", math.inf)],
)  # fmt: skip
def test_a_separator_is_read_where_it_can_mean_one_thing_only(text: str, number: float) -> None:
    assert number_of(text.encode()) == number


# ---- ranks and steps


def test_what_other_ranks_print_is_dropped_and_counted() -> None:
    again = [record(step, 0, 100 * rank + step) for step in range(1, 6) for rank in range(4)]
    behind = [record(1), record(2), record(3, rate=7), record(2, rate=9), record(4), record(3, rate=9)]
    prefixed = [f"[1,{rank}]<stdout>:{record(step, rate=rank + 1)}" for step in (1, 2) for rank in (1, 0)]
    first = [record(1), record(2), record(1), record(2), record(3)]
    found = [(rates(run), drops(run)) for run in (read_one(*lines) for lines in (again, behind, prefixed, first))]
    assert found == [
        ([1, 2, 3, 4, 5], {AGAIN: (15, 2)}),
        ([100.5, 100.5, 7, 100.5], {AGAIN: (2, 4)}),
        ([1, 1], {PREFIXED: (2, 1)}),
        ([100.5] * 3, {AGAIN: (2, 3)}),
    ]


def test_steps_that_go_back_are_an_error_that_names_the_line() -> None:
    with pytest.raises(LogError) as error:
        read(*records(1, 30), record(12), record(13))
    assert error.value.about == "made.log: line 30"
    assert error.value.got == "an earlier step"


def test_the_first_stamps_and_the_last_are_kept() -> None:
    times = [f"2022-12-02 10:{at // 60:02d}:{at % 60:02d}" for at in range(300)]
    run = read_one(*(record(at + 1, time=time) for at, time in enumerate(times)))
    assert list(run.stamps) == [*range(256), 299]
    assert run.stamps[299] - run.stamps[0] == 299
    assert (run.began, read_one(record(1), record(2)).stamps) == ("2022-12-02T10:00:00", {})


# ---- the end of a log


@pytest.mark.parametrize(("last", "used"), [(record(2, rate="100.125"), 1), (record(2, rate="7") + " images/s", 2)])
def test_a_record_that_may_end_within_its_number_is_dropped(last: str, used: int) -> None:
    (run,) = read_log(text_log(record(1), last, end=""), NO_FINAL, SAID)
    assert (run.records, run.cut) == (used, "the last line has no end")
    assert drops(run) == ({} if used == 2 else {CUT: (1, 2)})


def test_a_log_that_ends_early_is_told() -> None:
    whole = [*records(1, 9), *records(1, 9, epoch=1)]
    assert read_one(*whole).cut == ""
    cut = read_one(*whole, *records(1, 4, epoch=2))
    assert cut.cut == "the last epoch, 2, ends at step 3; epoch 1 at step 8"


# ---- configuration


def test_what_was_asked_for_fills_what_the_log_does_not_say() -> None:
    (run,) = read("setting cards=4", record(1), asked=NO_CARDS)
    assert run.settings[LogSetting.CARDS] == Stated("4", "line 1: setting cards=4")
    assert run.stated(LogSetting.MODEL) == "resnet50v1.5"
    with pytest.raises(LogError) as error:
        read("setting cards=4", record(1))
    assert error.value.field == "cards"


def test_a_log_without_records_is_an_error() -> None:
    for lines in (["nothing", "rate: None"], [BEGIN, "text", BEGIN]):
        with pytest.raises(LogError, match="expected records of the format plain"):
            read(*lines)


# ---- several runs


def test_a_start_line_begins_a_run_with_its_own_configuration_ranks_and_drops() -> None:
    first = ["text", BEGIN, "setting cards=1", *records(1, 4), "rate: None", "end"]
    second = [BEGIN, "setting cards=8", *records(1, 3), f"[1,3]<stdout>:{record(1)}"]
    seen: list[frozenset[int]] = []
    spec = replace(NO_FINAL, configure=lambda context: (seen.append(context.ranks), NO_FINAL.configure(context))[1])
    runs = read(*first, *second, spec=spec, asked=NO_CARDS)
    assert places(runs) == [(1, 2, 1, 8, 3), (2, 2, 9, 13, 2)]
    assert [rates(run) for run in runs] == [[101, 102, 103], [101, 102]]
    assert [run.stated(LogSetting.CARDS) for run in runs] == ["1", "8"]
    assert [drops(run) for run in runs] == [{NO_RECORD: (1, 7)}, {PREFIXED: (1, 13)}]
    assert (seen, [run.notes for run in runs]) == ([frozenset(), {3}], [(), ()])


def test_steps_that_begin_anew_are_a_new_run_with_a_note_and_the_lines_before_it() -> None:
    runs = read("setting cards=1", *records(5, 9), "setting cards=2", *records(5, 8), asked=NO_CARDS)
    assert places(runs) == [(1, 2, 1, 6, 4), (2, 2, 7, 9, 3)]
    assert [len(run.notes) for run in runs] == [0, 1]
    # The first run cannot know that the line is not its own: here the last one said counts.
    assert [run.stated(LogSetting.CARDS) for run in runs] == ["2", "2"]


def test_a_run_that_begins_without_a_record_is_told_at_the_last() -> None:
    run = read_one(BEGIN, *records(1, 3), BEGIN, "Traceback")
    assert run.notes == ("line 4: a run begins that has no record",)
    assert (run.runs_in_file, run.last_line) == (1, 5)


def test_a_record_that_is_a_start_itself_begins_a_run_each() -> None:
    runs = read(record(1), record(2), "text", record(3), spec=replace(NO_FINAL, starts=(NO_FINAL.record,)))
    assert [(run.first_line, run.records) for run in runs] == [(1, 1), (2, 1), (4, 1)]


def test_what_is_kept_of_a_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.logs.reader._MOST_RUNS", 5)
    with pytest.raises(LogError, match=r"another run at line 26', expected at most 5 runs"):
        read(*records(1, 6) * 9)
    monkeypatch.setattr("helpers.logs.reader._HEAD_LINES", 3)
    monkeypatch.setattr("helpers.logs.reader._AFTER_LINES", 2)
    seen: list[list[int]] = []

    def configure(context: object) -> dict[LogSetting, Stated]:
        seen.append([line.number for line in context.lines])  # type: ignore[attr-defined]
        return {}

    read(*["before"] * 9, record(1), *["after"] * 9, spec=replace(NO_FINAL, configure=configure))
    assert seen == [[1, 2, 3, 11, 12]]
