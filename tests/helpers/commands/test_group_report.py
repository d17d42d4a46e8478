"""``perfgate group-report`` over hand-made runs: DLPerf's text and JSON to the letter, and the table."""

from __future__ import annotations

import ast
import io
import json
import statistics
from pathlib import Path

import pytest

from helpers.commands.import_log import EXIT_UNREAD
from helpers.commands.main import EXIT_USAGE, main
from helpers.session.gate import EXIT_OK
from tests.helpers.logs.made_logs import fleetx_lines, time_history_lines, write

ONE = (310.0, 300.11, 305.25)
TWO = (590.5, 600.25)


def name(run: int, batch: int = 64) -> str:
    return f"rn50_b{batch}_fp32_{run}.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for case, rates in (("1n1g", ONE), ("1n2g", TWO)):
        for run, rate in enumerate(rates, 1):
            write(tmp_path / case / name(run), time_history_lines([1.0, *[rate] * 6]))
    return tmp_path


def report(*argv: object) -> tuple[int, str]:
    out = io.StringIO()
    status = main(["group-report", *map(str, argv)], out)
    return status, out.getvalue()


def test_a_copy_of_a_log_is_told(folder: Path) -> None:
    copy = folder / "1n2g" / name(3)
    copy.write_bytes((folder / "1n2g" / name(1)).read_bytes())
    status, text = report(folder)
    assert status == EXIT_OK
    assert text.splitlines()[-1].startswith(f"{copy}: the same bytes as {folder / '1n2g' / name(1)}: counted as a run")
    assert "'median_speed': 590.5," in text


def test_runs_that_differ_in_more_than_cards_have_no_speed_up(folder: Path) -> None:
    write(folder / "1n4g" / "rn50_b96_fp16_1.log", time_history_lines([1.0, *[2000.0] * 6]))
    status, text = report(folder)
    assert status == EXIT_OK
    assert text.splitlines()[-1] == "  1n4g: no speed-up: batch size 96, 1n1g 64; precision amp, 1n1g fp32"
    result = ast.literal_eval(text[text.index("{'rn50'") : text.index("\n\n")])
    assert ["speedup" in each for each in result["rn50"].values()] == [True, True, False]


def test_json_goes_alone_to_standard_output(folder: Path) -> None:
    status, told = report(folder, "--json", "-")
    assert (status, json.loads(told)["rn50"]["1n1g"]["median_speed"]) == (EXIT_OK, 305.25)


def test_the_text_and_the_json_are_dlperfs(folder: Path) -> None:
    target = folder / "result.json"
    status, text = report(folder, "--json", target)
    assert status == EXIT_OK
    first = f"{folder}/1n1g/rn50_b64_fp32"
    assert text.startswith(
        f"{first}_1.log {{1: 310.0}}\n"
        f"{first}_2.log {{1: 310.0, 2: 300.11}}\n"
        f"{first}_3.log {{1: 310.0, 2: 300.11, 3: 305.25}}\n"
        f"{folder}/1n2g/rn50_b64_fp32_1.log {{1: 590.5}}\n"
        f"{folder}/1n2g/rn50_b64_fp32_2.log {{1: 590.5, 2: 600.25}}\n"
        "{'rn50': {'1n1g': {'average_speed': 305.12,\n"
        "                   'batch_size_per_device': 64,\n"
        "                   'median_speed': 305.25,\n"
        "                   'speedup': 1.0},\n"
        "          '1n2g': {'average_speed': 595.38,\n"
        "                   'batch_size_per_device': 64,\n"
        "                   'median_speed': 595.38,\n"
        "                   'speedup': 1.95}}}\n"
        f"Saving result to {target}\n"
    )
    printed = text[text.index("{'rn50'") : text.index("Saving")]
    assert json.loads(target.read_text()) == ast.literal_eval(printed)


def test_people_get_a_table_with_runs_and_spread(folder: Path) -> None:
    _, text = report(folder)
    table = [line.split() for line in text.splitlines() if line.startswith(("folder", "1n1g", "1n2g"))]
    assert table == [
        ["folder", "cards", "batch", "runs", "median", "average", "spread", "speed-up", "of", "linear"],
        ["1n1g", "1", "64", "3", "305.25", "305.12", "1.68%", "1.00", "100%"],
        ["1n2g", "2", "64", "2", "595.38", "595.38", "0.82%", "1.95", "98%"],
    ]


def test_without_a_run_on_one_card_there_is_no_speedup(folder: Path) -> None:
    for each in (folder / "1n1g").iterdir():
        each.unlink()
    status, text = report(folder)
    assert status == EXIT_OK
    assert "speedup" not in text
    (line,) = [each for each in text.splitlines() if each.startswith("1n2g ")]
    assert line.split()[-2:] == ["-", "-"]


def test_fleetx_is_the_median_of_seven_runs_and_fewer_are_told(tmp_path: Path) -> None:
    seconds = [0.2, 0.21, 0.19, 0.2, 0.2, 0.22, 0.18]
    for run, each in enumerate(seconds, 1):
        write(tmp_path / "1x8" / f"vgg16_gpu8_b32_fp32_{run}.log", fleetx_lines(each, 32))
    argv = (tmp_path, "--model", "vgg16", "--precision", "fp32", "--batch-size", 32, "--cards", 8)
    status, text = report(*argv)
    assert status == EXIT_OK, text
    median = statistics.median(8 * 32 / each for each in seconds)
    (row,) = [line.split() for line in text.splitlines() if line.startswith("1x8 ")]
    assert float(row[4]) == pytest.approx(median, rel=1e-4)
    assert "fleetx-20-100-median7" in text
    assert "is the median of 7 runs" not in text
    (tmp_path / "1x8" / "vgg16_gpu8_b32_fp32_7.log").unlink()
    assert "1x8: rule fleetx-20-100-median7 is the median of 7 runs, 6 were made" in report(*argv)[1]


def test_a_log_without_a_figure_is_status_4_and_the_others_are_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "1n2g" / name(3), time_history_lines([1.0, 2.0]))
    write(folder / "1n2g" / name(4), ["nothing"])
    status, text = report(folder)
    assert status == EXIT_UNREAD
    assert capsys.readouterr().err.count("perfgate group-report: error: ") == 2
    assert "1n2g        2     64     2" in text


@pytest.mark.parametrize(
    ("path", "told"),
    [("1n1g/rn50_b32_fp32_4.log", "batch_size_per_card"), ("1n1g/rn50_b64_amp_4.log", "precision")],
)
def test_unlike_runs_in_one_group_are_refused(
    folder: Path, path: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / path, time_history_lines([1.0] * 7))
    assert report(folder) == (EXIT_USAGE, "")
    assert f"group 1n1g of rn50: field '{told}'" in capsys.readouterr().err


def test_a_folder_without_groups_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(tmp_path)[0] == EXIT_USAGE
    assert "expected folders by cards" in capsys.readouterr().err


def test_the_tenth_run_comes_after_the_ninth(tmp_path: Path) -> None:
    for run in (10, 9, 1):
        write(tmp_path / "1n1g" / name(run), time_history_lines([1.0, *[100.0 + run] * 6]))
    assert "{1: 101.0, 9: 109.0, 10: 110.0}" in report(tmp_path)[1]
