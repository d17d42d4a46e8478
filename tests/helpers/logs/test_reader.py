"""Logs of a made format: what is a record, what was dropped and why, and that blocks do not matter."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.logs.reader import read_log
from helpers.logs.record import FormatSpec, LogRun, RateOf, RecordField, Stamp
from helpers.logs.settings import LogSetting, Stated
from helpers.logs.values import number_of
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.reading_doubles import (
    NO_FINAL,
    PLAIN,
    SAID,
    STEPLESS,
    TextLog,
    drops,
    rates,
    record,
    records,
    text_log,
)


def read(*lines: str, spec: FormatSpec = PLAIN) -> tuple[LogRun, ...]:
    return read_log(text_log(*lines), spec, SAID)


def read_one(*lines: str, spec: FormatSpec = PLAIN) -> LogRun:
    (run,) = read(*lines, spec=spec)
    return run


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
    ("rate", "reason"),
    [
        ("0", "images_per_s: 0 or less"),
        ("-3.5", "images_per_s: 0 or less"),
        ("nan", "images_per_s: no finite number"),
        ("inf", "images_per_s: no finite number"),
        ("-inf", "images_per_s: no finite number"),
        ("1e999", "images_per_s: no finite number"),
        ("1e308", "images_per_s: no finite number"),
        ("1e-320", "images_per_s: 0 or less"),
        ("None", "images_per_s: no finite number"),
        ("127.0.0.1", "images_per_s: no finite number"),
    ],
)
def test_a_rate_that_is_none_is_dropped_with_its_reason(rate: str, reason: str) -> None:
    run = read_one(record(1), record(2, rate=rate), record(3), record(4, rate=rate))
    assert rates(run) == [100.5, 100.5]
    assert drops(run) == {reason: (2, 2)}
    assert run.dropped[0].first.text == record(2, rate=rate)


def test_a_negative_wait_is_dropped_and_none_at_all_is_not() -> None:
    run = read_one(record(1) + " wait 0.0", record(2) + " wait -0.5")
    assert rates(run) == [100.5]
    assert drops(run) == {"reader_seconds: below 0": (1, 2)}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("rate: None", "no value: None"),
        ("launcher rate: 127.0.0.1 ", "an address, no rate"),
        ("the rate: nan", "no number: nan or inf"),
        ("e0 rate: 12.5", "not a whole record"),
        ("127.0.0.1 has the rate: 12.5", "not a whole record"),
    ],
)
def test_a_line_with_the_marker_that_is_no_record_is_dropped_with_its_reason(line: str, reason: str) -> None:
    run = read_one(line, *records(1, 4))
    assert drops(run) == {reason: (1, 1)}
    assert len(rates(run)) == 3


def test_a_printed_figure_is_kept_and_no_dropped_record() -> None:
    run = read_one(record(1), "end of e0: 99.5", record(1, 1), "end of e1: 98.5", "average rate: 97.25", "end of e2: x")
    assert [(each.samples_per_s, each.line, each.epoch) for each in run.printed["epoch"]] == [
        (99.5, 2, 0),
        (98.5, 4, 1),
    ]
    assert [(each.samples_per_s, each.line, each.epoch) for each in run.printed["average"]] == [(97.25, 5, None)]
    assert (run.dropped, run.cut) == ((), "")


def test_every_rank_that_prints_a_step_again_is_dropped() -> None:
    lines = [record(step, 0, 100 * rank + step) for step in range(1, 6) for rank in range(4)]
    run = read_one(*lines)
    assert rates(run) == [1, 2, 3, 4, 5]
    assert drops(run) == {"the same step again: of another rank": (15, 2)}


def test_a_rank_may_be_some_records_behind() -> None:
    run = read_one(record(1), record(2), record(3, rate=7), record(2, rate=9), record(4), record(3, rate=9))
    assert rates(run) == [100.5, 100.5, 7, 100.5]
    assert drops(run) == {"the same step again: of another rank": (2, 4)}


def test_a_rank_whose_lines_came_late_is_told_by_its_time_stamps() -> None:
    early = [record(step, time=f"2022-12-02 18:10:{step:02d}") for step in range(1, 40)]
    run = read_one(*early, *early, record(40, time="2022-12-02 18:10:40"))
    assert run.records == 40
    assert drops(run) == {"the same step again: of another rank": (39, 40)}


def test_a_log_that_began_long_before_is_another_run() -> None:
    late = [record(step, time=f"2022-12-02 18:10:{step:02d}") for step in range(1, 40)]
    for hour, runs in (("17", 2), ("18", 1)):
        early = [record(step, time=f"2022-12-02 {hour}:09:{step:02d}") for step in range(1, 40)]
        early = early if hour == "17" else [each.replace("18:09", "18:10") for each in early]
        assert len(read(*late, *early)) == runs


def test_steps_that_go_back_are_an_error_that_names_the_line() -> None:
    with pytest.raises(LogError) as error:
        read(*records(1, 30), record(12), record(13))
    text = str(error.value)
    assert "made.log: line 30" in text
    assert "got 'e0 s12 rate: 100.5'" in text
    assert "a step after step 29" in text
    assert "split the log, or keep one rank's lines" in text


def test_a_log_without_steps_is_read_in_its_order() -> None:
    run = read_one("rate: 3", "rate: 1", "rate: 3", spec=STEPLESS)
    assert rates(run) == [3, 1, 3]


def test_a_run_may_begin_in_a_later_epoch() -> None:
    run = read_one(*records(50, 53, epoch=7), *records(0, 3, epoch=8))
    assert run.records == 6


def test_the_first_stamps_and_the_last_are_kept() -> None:
    times = [f"2022-12-02 {10 + at // 3600}:{at // 60 % 60:02d}:{at % 60:02d}" for at in range(300)]
    run = read_one(*(record(at + 1, time=time) for at, time in enumerate(times)))
    assert len(run.stamps) == 257
    assert [each.index for each in run.stamps[:3]] == [0, 1, 2]
    assert run.stamps[-1] == Stamp(299, run.stamps[0].seconds + 299)
    assert read_one(record(1), record(2)).stamps == ()


# ---- the end of a log


def cut_log(last: str, spec: FormatSpec = NO_FINAL) -> LogRun:
    (run,) = read_log(TextLog(f"{record(1)}\n{last}".encode()), spec, SAID)
    return run


def test_a_record_that_ends_within_its_number_is_dropped() -> None:
    run = cut_log(record(2, rate="10"))
    assert rates(run) == [100.5]
    assert drops(run) == {"cut: the last line ends within its number": (1, 2)}
    assert run.cut == "the last line has no end"


@pytest.mark.parametrize("rate", ["100.125", "30961.748404142203"])
def test_a_record_whose_lost_digits_cannot_show_is_used(rate: str) -> None:
    run = cut_log(record(2, rate=rate))
    assert rates(run) == [100.5, float(rate)]
    assert (run.dropped, run.cut) == ((), "the last line has no end")


def test_a_record_behind_whose_number_something_stands_is_used() -> None:
    assert rates(cut_log(record(2, rate="7") + " images/s")) == [100.5, 7.0]


def test_a_whole_log_is_not_cut() -> None:
    assert read_one(*records(1, 9), *records(1, 9, epoch=1), spec=NO_FINAL).cut == ""


def test_an_epoch_that_ends_early_is_told() -> None:
    run = read_one(*records(1, 9), *records(1, 9, epoch=1), *records(1, 4, epoch=2), spec=NO_FINAL)
    assert run.cut == "the last epoch, 2, ends at step 3; epoch 1 at step 8"


def test_the_scripts_missing_last_figure_is_told() -> None:
    assert read_one(*records(1, 9)).cut == "the script's own figure at its end (average) is missing"


# ---- configuration


def test_what_was_asked_for_fills_what_the_log_does_not_say() -> None:
    asked = {each: SAID[each] for each in SAID if each is not LogSetting.CARDS}
    (run,) = read_log(text_log("setting cards=4", record(1)), PLAIN, asked)
    assert run.stated(LogSetting.CARDS) == "4"
    assert run.settings[LogSetting.CARDS].where == "line 1: setting cards=4"
    assert run.stated(LogSetting.MODEL) == "resnet50v1.5"


def test_a_contradiction_names_both() -> None:
    asked = {**SAID, LogSetting.CARDS: Stated("8", "--cards")}
    with pytest.raises(
        LogError, match=r"field 'cards': got '8 \(--cards\)', expected '4', which the log says \(line 1:"
    ):
        read_log(text_log("setting cards=4", record(1)), PLAIN, asked)


def test_all_missing_settings_are_named_with_their_options() -> None:
    with pytest.raises(LogError) as error:
        read_log(text_log("setting model=vgg16", record(1)), PLAIN, {})
    assert "field 'framework, precision, batch_size_per_card, cards'" in str(error.value)
    assert "Give --framework, --precision, --batch-size, --cards" in str(error.value)


def test_lines_before_the_first_record_count_behind_megabytes_of_other_text() -> None:
    noise = ["x" * 80] * 20_000
    asked = {each: SAID[each] for each in SAID if each is not LogSetting.CARDS}
    (run,) = read_log(text_log(*noise, "setting cards=4", *noise[:100], record(1)), PLAIN, asked)
    assert run.stated(LogSetting.CARDS) == "4"


def test_a_log_without_records_says_what_was_looked_for() -> None:
    with pytest.raises(LogError, match=r"records of the format plain: lines 'eN sN rate: N'") as error:
        read("nothing", "rate: None")
    assert "1 dropped (no value: None), the first is line 2: rate: None" in str(error.value)


def test_a_log_with_only_the_scripts_own_figure_is_a_run_without_records() -> None:
    run = read_one("average rate: 55.5")
    assert (run.records, run.printed["average"][0].samples_per_s) == (0, 55.5)


# ---- ranks by mpirun's prefixes


def test_records_of_other_ranks_are_counted_as_dropped() -> None:
    lines = [f"[1,{rank}]<stdout>:{record(step, rate=rank + 1)}" for step in (1, 2) for rank in (1, 0)]
    run = read_one(*lines)
    assert rates(run) == [1, 1]
    assert drops(run) == {"of another rank, by mpirun's prefix": (2, 1)}
    assert run.dropped[0].first.text == record(1, rate=2)


def test_each_run_has_the_ranks_of_its_own_lines() -> None:
    found = []

    def configure(context: object) -> dict[LogSetting, Stated]:
        found.append(getattr(context, "ranks", None))
        return {}

    one = ["== begin ==", f"[1,0]<stdout>:{record(1)}"]
    four = ["== begin ==", *(f"[1,{rank}]<stdout>:{record(1)}" for rank in range(4))]
    runs = read(*one, *four, *one, spec=replace(PLAIN, configure=configure))
    assert found == [{0}, {0, 1, 2, 3}, {0}]
    assert [drops(run) for run in runs] == [{}, {"of another rank, by mpirun's prefix": (3, 5)}, {}]


# ---- a second format in the same log

OTHER = FormatSpec(
    name="other",
    title="another format",
    marker=b"speed=",
    record=re.compile(rb"speed=(?P<images_per_s>[\d.]+)"),
    looked_for="lines 'speed=N'",
    rate_of=RateOf.JOB,
    configure=lambda context: {},
    rules=(),
)


def test_a_record_of_a_rival_makes_the_log_ambiguous() -> None:
    log = text_log(*records(1, 2000), "speed=5", "speed=6")
    with pytest.raises(LogError) as error:
        read_log(log, PLAIN, SAID, (PLAIN, OTHER))
    assert "plain, line 1: e0 s1 rate: 101; other, line 2000: speed=5" in str(error.value)
    assert "Give --log-format plain or other, or split the log" in str(error.value)
    assert read_log(log, PLAIN, SAID)[0].records == 1999


def test_a_rival_without_its_proof_is_none() -> None:
    unproven = replace(OTHER, proofs=(re.compile(rb"other's banner"),))
    log = text_log(*records(1, 3), "speed=5", *records(3, 5))
    assert read_log(log, PLAIN, SAID, (unproven,))[0].records == 4
    with pytest.raises(LogError, match="records of several formats"):
        read_log(text_log(*records(1, 3), "speed=5", "other's banner"), PLAIN, SAID, (unproven,))


# ---- blocks do not matter

LINES = st.lists(
    st.one_of(
        st.builds(record, st.integers(1, 12), st.integers(0, 1), st.sampled_from([5, 7.25, "nan", "0", "None"])),
        st.sampled_from(["== begin ==", "launcher of it", "end of e0: 5", "text", "", "rate: None", "average rate: 3"]),
    ),
    max_size=60,
)


def told(log: TextLog) -> object:
    try:
        runs = read_log(log, PLAIN, SAID)
    except LogError as error:
        return str(error)
    return [
        (
            {each: [str(value) for value in column] for each, column in run.columns.items()},
            run.first_line,
            run.last_line,
            run.printed,
            sorted(run.dropped, key=lambda each: each.reason),
            run.notes,
            run.cut,
        )
        for run in runs
    ]


@given(lines=LINES, rising=st.booleans(), block_bytes=st.integers(1, 300), last_end=st.booleans())
def test_what_is_read_does_not_depend_on_where_blocks_are_divided(
    lines: Sequence[str], rising: bool, block_bytes: int, last_end: bool
) -> None:
    if rising:
        lines = [record(at + 1) if line.startswith("e") and "s" in line[:4] else line for at, line in enumerate(lines)]
    data = "".join(f"{line}\n" for line in lines).encode()
    data = data if last_end else data[:-1]
    whole = told(TextLog(data))
    assert told(TextLog(data, block_bytes=block_bytes)) == whole


@pytest.mark.parametrize(
    ("text", "number"),
    [("2,899.125", 2899.125), ("2899,125", 2899.125), ("1,234,567", 1234567.0), ("12,5", 12.5), ("0,125", 0.125),
     ("2,899", math.inf), ("1.234,5", math.inf), ("1,23,4", math.inf), ("12.5", 12.5), ("1_0", math.inf)],
)  # fmt: skip
def test_a_separator_is_read_where_it_can_mean_one_thing_only(text: str, number: float) -> None:
    assert number_of(text.encode()) == number


def test_two_records_in_one_line_are_both_read() -> None:
    assert rates(read_one(record(1, rate=5) + " " + record(2, rate=6))) == [5, 6]
