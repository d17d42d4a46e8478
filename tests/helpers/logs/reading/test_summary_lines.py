"""TIPC's line: alone a run's only figure, behind records a figure that was printed of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.logs.importer import import_file
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.made_logs import paddleclas_lines, tipc_line, write

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
    assert error.value.lines[1].startswith("  40 records of paddleclas, line 2: [2031")
    assert error.value.lines[2].startswith("  1 records of fleetx, line 1: Pass 1")
    assert error.value.lines[3] == "Give --format paddleclas or fleetx, or split the log"
