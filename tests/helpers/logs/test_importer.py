"""From a file to its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.logs.settings import LogSetting, Stated
from tests.helpers.logs.made_logs import fleetx_trainer_lines, paddleclas_lines, tensorflow_lines, tipc_line, write
from tests.helpers.logs.one_file import import_file

RATES = [500.0 + each for each in range(30)]
MEAN = sum(RATES[5:]) / 25


def test_two_runs_of_a_file_are_two_results(tmp_path: Path) -> None:
    lines = [*tensorflow_lines(RATES), *tensorflow_lines([each * 2 for each in RATES])]
    found = import_file(write(tmp_path / "tf_gpu2.txt", lines), {})
    assert [(each.number, each.runs_in_file) for each in found] == [(1, 2), (2, 2)]
    figures = [each.figure(each.usual) for each in found]
    assert [each.samples_per_s for each in figures if each is not None] == [MEAN, 2 * MEAN]


def test_a_card_that_only_an_option_names_has_its_tf32(tmp_path: Path) -> None:
    lines = [each.replace("amp : True", "amp : False") for each in tensorflow_lines(RATES)]
    log = write(tmp_path / "tf_gpu2.txt", lines)
    for gpu, precision in (("A100", "tf32"), ("V100", "fp32")):
        (found,) = import_file(log, {LogSetting.GPU: Stated(gpu, "--gpu")})
        assert found.settings[LogSetting.PRECISION].value == precision
    (named,) = import_file(write(tmp_path / "A100" / "tf_gpu2.txt", lines), {})
    assert named.settings[LogSetting.PRECISION].value == "tf32"


@pytest.mark.parametrize("rate", ["0.0", "-4.0"])
def test_a_step_that_took_no_time_is_no_record(rate: str, tmp_path: Path) -> None:
    lines = fleetx_trainer_lines([4.0] * 60)
    lines[30] = lines[30].replace("speed: 4.0", f"speed: {rate}")
    (found,) = import_file(write(tmp_path / "vgg16_1n8g_bs32_fp32.log", lines), {})
    assert [(each.count, each.first.number) for each in found.dropped] == [(1, 31)]


def test_a_format_without_a_publishers_rule_gives_the_honest_figure(tmp_path: Path) -> None:
    lines = [
        f':::MLLOG {{"namespace": "", "time_ms": 17000{60 * at:05}000, "event_type": "POINT_IN_TIME", "key": '
        f'"tracked_stats", "value": {{"throughput": {rate}}}, "metadata": {{"file": "x.py", "epoch_num": {at}}}}}'
        for at, rate in enumerate([14000.0, 15000.0, 16000.0])
    ]
    (found,) = import_file(write(tmp_path / "resnet50_mxnet_8gpu_bs256_amp.log", lines), {})
    figure = found.figure(found.usual)
    assert (found.format, found.usual) == ("nvidia-mllog", "honest")
    assert figure is not None and figure.samples_per_s == pytest.approx(3 / (1 / 14e3 + 1 / 15e3 + 1 / 16e3))
    assert not any("nan" in each for each in found.warnings)


@pytest.mark.parametrize("last", [True, False])
def test_a_summary_line_beside_records_is_no_run(last: bool, tmp_path: Path) -> None:
    records = paddleclas_lines([0.125] * 40)
    lines = [*records, tipc_line(900.5)] if last else [tipc_line(900.5), *records]
    (found,) = import_file(write(tmp_path / "resnet50_gpu2_fp32_bs32.txt", lines), {})
    assert (found.format, found.usual) == ("paddleclas", "paddleclas-trimmed")
