"""Logs in the forms of public ones, with numbers of their own: a figure only with a known rule, and true messages."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import EXIT_USAGE, main
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.made_logs import paddleclas_lines, write
from tests.helpers.logs.one_file import import_file

CASES = Path(__file__).parent / "cases"


def asked(*argv: str) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    status = main(["import-log", *argv, "--json"], out)
    return status, json.loads(out.getvalue() or "{}")


def run_of(*argv: str) -> dict[str, Any]:
    status, told = asked(*argv)
    assert status == EXIT_OK, told
    (run,) = told["runs"]
    return dict(run)


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert asked(*argv)[0] == EXIT_USAGE
    return capsys.readouterr().err


MLPERF = ("--framework", "pytorch", "--precision", "amp")


def test_mlperfs_ssd_prints_one_cards_rate() -> None:
    run = run_of(str(CASES / "47-mlperf-ssd.txt"), *MLPERF, "--cards", "8", "--batch-size", "32")
    # 256 images of all cards in 0.2807 s.
    assert run["images_per_s"] == pytest.approx(256 / 0.2807, rel=1e-3)
    assert run["unit"] == "images/s"


def test_a_benchmark_of_other_samples_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal(capsys, str(CASES / "49-mlperf-gpt3.txt"), *MLPERF, "--cards", "64", "--batch-size", "24")
    assert "gpt3" in told and "it is not known what they count" in told


@pytest.mark.parametrize("number", ["2,899.125", "2899,125"])
def test_a_number_with_a_certain_separator_is_read(number: str, tmp_path: Path) -> None:
    text = (CASES / "27-tipc-comma.log").read_text().replace("2,899.125", number)
    assert run_of(str(write(tmp_path / "a.log", text.splitlines())))["images_per_s"] == 2899.125


def test_a_number_with_an_uncertain_separator_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (CASES / "27-tipc-comma.log").read_text().replace("2,899.125", "2,899")
    assert "1 dropped (images_per_s: no finite number)" in refusal(
        capsys, str(write(tmp_path / "a.log", text.splitlines()))
    )


def test_means_that_are_reset_are_told_from_the_records() -> None:
    run = run_of(str(CASES / "30-develop-lastslow.log"))
    assert run["honest"]["images_per_s"] == pytest.approx(633.5, abs=0.05)
    assert any(each.startswith("means of their own") for each in run["warnings"])


def test_processes_are_counted_and_not_the_devices_that_they_may_use() -> None:
    run = run_of(str(CASES / "50b-nproc.log"))
    assert run["settings"]["cards"]["value"] == "2"
    assert run["images_per_s"] == pytest.approx(640.531, abs=0.0005)


OF_RESNET = ("--framework", "mxnet", "--model", "resnet50v1.5", "--precision", "amp", "--cards", "8")


def test_a_batch_size_that_the_global_one_contradicts_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(CASES / "20-mlperf21.txt")
    told = refusal(capsys, log, *OF_RESNET, "--batch-size", "256")
    assert "got '256 (--batch-size) on 8 cards (--cards)'" in told and "3264" in told
    assert run_of(log, *OF_RESNET)["settings"]["batch_size_per_card"]["value"] == "408"
    assert "got '7 cards (--cards)'" in refusal(capsys, log, *OF_RESNET[:-1], "7")


@pytest.mark.parametrize("option", [("--batch-size", "32"), ("--cards", "3")])
def test_what_an_option_contradicts_is_refused_by_paddleclas_too(
    option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = [f"[2031/02/03 04:05:06] ppcls INFO: {line}" for line in ("TRAIN : ", "    batch_size : 256")]
    log = write(tmp_path / "a.log", [*head, *paddleclas_lines([0.125] * 40)])
    options = {"--framework": "paddle", "--model": "vgg16", "--precision": "fp32", "--cards": "4", **dict([option])}
    assert "which the log says" in refusal(capsys, str(log), *(text for pair in options.items() for text in pair))


def test_a_figure_of_0_is_told_and_not_used(tmp_path: Path) -> None:
    log = CASES / "13-dle834-zero.log"
    run = run_of(str(log), "--cards", "1")
    assert any("'train_throughput' is 0 (line 102), and is not used" in each for each in run["warnings"])
    assert not any("cut log" in each for each in run["warnings"])
    alone = write(tmp_path / "a.log", log.read_text().splitlines()[-1:])
    options = ("--cards", "1", "--batch-size", "8", "--model", "vgg16", "--precision", "fp32")
    status, told = asked(str(alone), *options)
    assert (status, told["runs"][0]["images_per_s"]) == (EXIT_NOT_JUDGED, None)
    assert told["runs"][0]["warnings"] == ["the script's own 'train_throughput' is 0 (line 1), and is not used"]


def test_the_step_since_which_a_mean_runs_is_said_once() -> None:
    options = ("--framework", "paddle", "--model", "vgg16", "--precision", "fp32", "--cards", "1", "--batch-size", "64")
    run = run_of(str(CASES / "36-paddleclas20.log"), *options)
    assert "since step 10 of its epoch" in " ".join(run["warnings"])
    assert "before step 10 of each epoch" in run["honest"]["unused"][0]


@pytest.mark.parametrize("log", sorted(CASES.glob("unread-*.log")), ids=lambda path: path.stem)
def test_a_log_that_is_not_read_shows_its_rates(log: Path) -> None:
    with pytest.raises(LogError, match="The lines that come closest") as error:
        import_file(log, {})
    assert re.search(r"line \d+: .*\d", str(error.value))


def test_a_record_without_a_step_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    rates = [100.0] * 10 + [200.0] * 20
    lines = [f":::NVLOGv0.2.3 resnet 16000000{n:02}.5 (a.py:60) total_ips: {rate}" for n, rate in enumerate(rates)]
    name = "resnet50_tf_gpu1_amp_bs32.log"
    alone, twice = (
        run_of(str(write(tmp_path / str(times) / name, [line for line in lines for _ in range(times)])))
        for times in (1, 2)
    )
    assert [run["honest"]["images_per_s"] for run in (alone, twice)] == [alone["honest"]["images_per_s"]] * 2
    assert twice["images_per_s"] == alone["images_per_s"]


def test_records_of_which_most_cannot_be_read_give_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = ["950.5", "1,120"] * 20 + ["1,130"]
    lines = [f"DLL 2031-02-03 04:05:{n:02}.5 - (0, {200 + n}) total_ips : {rate}" for n, rate in enumerate(rates)]
    log = write(tmp_path / "resnet50_tf_gpu1_amp_bs32.log", lines)
    assert "got '21 records that cannot be read, and 20 that can'" in refusal(capsys, str(log))
