"""Runs of one log: where they begin, what belongs to which, and what is told of those without records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.logs.reader import read_log
from helpers.logs.record import FormatSpec, LogRun, RunContext
from helpers.logs.settings import LogSetting, Stated
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.made_logs import paddleclas_lines, tipc_line, write
from tests.helpers.logs.one_file import import_file
from tests.helpers.logs.reading_doubles import (
    NO_FINAL,
    PLAIN,
    SAID,
    STEPLESS,
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


def places(runs: tuple[LogRun, ...]) -> list[tuple[int, int, int, int, int]]:
    return [(run.number, run.runs_in_file, run.first_line, run.last_line, run.records) for run in runs]


def test_a_start_line_begins_a_run() -> None:
    runs = read("text", BEGIN, *records(1, 4), "end", BEGIN, *records(1, 3))
    assert places(runs) == [(1, 2, 1, 6, 3), (2, 2, 7, 9, 2)]
    assert [rates(run) for run in runs] == [[101, 102, 103], [101, 102]]
    assert [run.notes for run in runs] == [(), ()]


def test_a_run_reads_its_configuration_from_its_own_lines() -> None:
    lines = [BEGIN, "setting cards=1", *records(1, 3), "setting nodes=1", BEGIN, "setting cards=8", *records(1, 3)]
    runs = read(*lines, asked=NO_CARDS)
    assert [run.stated(LogSetting.CARDS) for run in runs] == ["1", "8"]
    assert [run.stated(LogSetting.NODES) for run in runs] == ["1", None]


def test_what_was_dropped_and_printed_is_told_of_its_run() -> None:
    first, second = read(record(1), "rate: None", "average rate: 5", BEGIN, record(1), record(1), spec=PLAIN)
    assert drops(first) == {"no value: None": (1, 2)}
    assert drops(second) == {"the same step again: of another rank": (1, 6)}
    assert (len(first.printed["average"]), second.printed) == (1, {})
    assert (first.cut, second.cut) == ("", "the script's own figure at its end (average) is missing")


def test_steps_that_begin_anew_are_a_new_run_with_a_note() -> None:
    runs = read(*records(5, 9), "the end", "bye", *records(5, 8), *records(5, 20))
    assert places(runs) == [(1, 3, 1, 6, 4), (2, 3, 7, 9, 3), (3, 3, 10, 24, 15)]
    assert runs[0].notes == ()
    assert runs[1].notes == ("line 7: steps start again, though no line announces a run: taken for a new run",)


def test_a_run_that_no_line_announces_has_the_lines_behind_the_last_record_too() -> None:
    runs = read("setting cards=1", *records(1, 9), "setting cards=2", *records(1, 9), "bye", asked=NO_CARDS)
    # The first run cannot know that the line is not its own: here the last one said counts.
    assert [run.stated(LogSetting.CARDS) for run in runs] == ["2", "2"]


def test_a_first_step_again_within_a_record_is_another_ranks() -> None:
    (run,) = read(record(1), record(2), record(1), record(2), record(3))
    assert run.records == 3


def test_a_first_step_a_start_up_later_is_a_new_run() -> None:
    def timed(minute: int) -> list[str]:
        return [record(step, time=f"2022-12-02 10:{minute:02d}:{step:02d}") for step in (1, 2)]

    runs = read(*timed(0), *timed(5))
    assert [run.records for run in runs] == [2, 2]


def test_a_first_step_at_once_is_another_ranks() -> None:
    times = ["2022-12-02 10:00:10", "2022-12-02 10:00:20", "2022-12-02 10:00:30"]
    lines = [record(step, time=times[step - 1]) for step in (1, 2, 3)]
    (run,) = read(*lines, record(1, time=times[2]), record(4, time="2022-12-02 10:00:40"))
    assert run.records == 4
    assert drops(run) == {"the same step again: of another rank": (1, 4)}


def test_a_run_that_begins_without_a_record_is_told_at_the_last() -> None:
    (run,) = read(BEGIN, *records(1, 3), BEGIN, "Traceback")
    assert run.notes == ("line 4: a run begins that has no record",)
    assert (run.runs_in_file, run.last_line) == (1, 5)


def test_runs_without_any_record_are_an_error() -> None:
    with pytest.raises(LogError, match="There is none"):
        read(BEGIN, "text", BEGIN)


def test_a_record_that_is_a_start_itself_begins_a_run_each() -> None:
    spec = replace(STEPLESS, starts=(STEPLESS.record,))
    runs = read("text", "rate: 1", "rate: 2", "text", "rate: 3", spec=spec)
    assert [(run.first_line, rates(run)) for run in runs] == [(1, [1.0]), (3, [2.0]), (5, [3.0])]


def test_only_the_last_run_is_cut_by_a_missing_line_end() -> None:
    log = replace(text_log(), data=f"{record(1)}\n{BEGIN}\n{record(1, rate='100.125')}".encode())
    assert [run.cut for run in read_log(log, NO_FINAL, SAID)] == ["", "the last line has no end"]


def test_too_many_runs_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.logs.reader._MOST_RUNS", 5)
    with pytest.raises(LogError, match=r"another run at line 26', expected at most 5 runs"):
        read(*records(1, 6) * 9)


def test_the_configuration_lines_of_all_runs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.logs.reader._CONTEXT_BYTES", 1000)
    with pytest.raises(LogError, match="Split the log between its runs"):
        read(*[BEGIN, "x" * 200, record(1)] * 9)


def test_the_configuration_lines_of_one_run_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.logs.reader._HEAD_LINES", 3)
    monkeypatch.setattr("helpers.logs.reader._BEFORE_LINES", 2)
    monkeypatch.setattr("helpers.logs.reader._AFTER_LINES", 2)
    seen: list[RunContext] = []

    def configure(context: RunContext) -> dict[LogSetting, Stated]:
        seen.append(context)
        return {}

    lines = [f"b{at:02d}-cut" for at in range(20)]
    read(*lines, record(1), "a1", "a2", "a3", spec=replace(NO_FINAL, configure=configure))
    assert [line.text for line in seen[0].lines] == ["b00-cut", "b01-cut", "b02-cut", "b18-cut", "b19-cut", "a1", "a2"]
    assert [line.number for line in seen[0].lines] == [1, 2, 3, 19, 20, 22, 23]
    assert (seen[0].name, seen[0].runs_in_file) == ("folder/made.log", 1)
    assert seen[0].first_record is not None
    assert (seen[0].first_record.number, seen[0].first_record.text) == (21, record(1))


# ---- tIPC's line

RECORDS = paddleclas_lines([0.125] * 40)
RATE = 2 * 32 / 0.125


def test_each_line_is_a_run(tmp_path: Path) -> None:
    log = write(tmp_path / "speed.txt", [tipc_line(900.5), tipc_line(1800.5, cards=4)])
    found = import_file(log, {})
    assert [each.format for each in found] == ["tipc", "tipc"]
    figures = [each.figure(each.usual) for each in found]
    assert [each.samples_per_s for each in figures if each] == [900.5, 1800.5]
    assert [(each.first_line, each.last_line) for each in found] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("format", ["auto", "paddleclas"])
@pytest.mark.parametrize("lines", [[*RECORDS, tipc_line(RATE)], [tipc_line(RATE), *RECORDS]])
def test_behind_records_it_is_a_printed_figure(lines: list[str], format: str, tmp_path: Path) -> None:
    (found,) = import_file(write(tmp_path / "resnet50_gpu2_fp32_bs32.txt", lines), {}, format)
    assert (found.format, found.usual) == ("paddleclas", "paddleclas-trimmed")
    summary = found.figure("tipc-summary")
    assert summary is not None and summary.samples_per_s == RATE
    assert not any("TIPC" in each for each in found.warnings)


def test_a_summary_that_is_not_the_records_is_told(tmp_path: Path) -> None:
    (found,) = import_file(write(tmp_path / "resnet50_gpu2_fp32_bs32.txt", [*RECORDS, tipc_line(2 * RATE)]), {})
    (told,) = (each for each in found.warnings if "TIPC" in each)
    assert "'summary line of TIPC' is 1024 images/s (line 41), +100.0%" in told


def test_a_log_without_such_a_line_has_no_such_figure(tmp_path: Path) -> None:
    log = write(tmp_path / "resnet50_gpu2_fp32_bs32.txt", RECORDS)
    (found,) = import_file(log, {})
    assert found.figure("tipc-summary") is None
    (asked,) = import_file(log, {}, rule="tipc-summary")
    figure = asked.figure("tipc-summary")
    assert figure is not None and figure.samples_per_s is None
    assert "no such line in the log" in figure.reason


def test_two_formats_of_records_stay_ambiguous_beside_it(tmp_path: Path) -> None:
    other = "Pass 1, trainbatch 30, loss 6.5, acc1 0.0, time 0.2500 sec, speed 128.00"
    with pytest.raises(LogError, match="several formats") as error:
        import_file(write(tmp_path / "a.txt", [other, *RECORDS, tipc_line(RATE)]), {})
    assert error.value.lines[0] == f"{tmp_path / 'a.txt'}: records of several formats"
    assert error.value.lines[1].startswith("  fleetx, line 1: Pass 1")
    assert error.value.lines[2].startswith("  paddleclas, line 2: [2031")
    assert error.value.lines[3] == "Give --log-format fleetx or paddleclas, or split the log"
