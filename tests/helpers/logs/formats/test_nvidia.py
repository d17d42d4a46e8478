"""The logs of NVIDIA's scripts as FormatSpecs: what a record is, what it says, and what the run's configuration is."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.logs.formats import FORMATS
from helpers.logs.reader import read_log
from helpers.logs.record import FormatSpec, RunContext
from helpers.logs.settings import LogSetting
from helpers.logs.source import open_log
from tests.for_each import for_each
from tests.helpers.logs.nvidia_lines import (
    MLLOG,
    MXNET_PARAMETERS,
    PYTORCH_PARAMETERS,
    RECORDS,
    TENSORFLOW_PARAMETERS,
)

NAMES = sorted(RECORDS)


def fields(spec: FormatSpec, line: str) -> dict[str, str]:
    match = spec.record.search(line.encode())
    assert match is not None, line
    return {name: value.decode() for name, value in match.groupdict().items() if value is not None}


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_found_once_in_its_own_format_only(name: str) -> None:
    for line, expected in RECORDS[name]:
        assert fields(FORMATS[name], line) == expected
        data = (line + "\n" + line + "\n").encode()
        assert len(FORMATS[name].record.findall(data)) == 2 == data.count(FORMATS[name].marker)
        others = [each.name for each in FORMATS.values() if each.record.search(data)]
        assert others == [name]


@for_each("name", NAMES)
@for_each("number", ["7", "7.", ".5", "1.5e+03", "2E3", "-4.25", "+6.5"])
def test_every_notation_of_a_number(name: str, number: str) -> None:
    line, expected = RECORDS[name][0]
    assert fields(FORMATS[name], line.replace(expected["images_per_s"], number))["images_per_s"] == number


@for_each("name", NAMES)
@for_each("text", ["None", "null", "nan", "NaN", "inf", "127.0.0.1", "12:30:01", "12ab", ""])
def test_what_is_no_number_is_no_record(name: str, text: str) -> None:
    line, expected = RECORDS[name][0]
    changed = line.replace(expected["images_per_s"], text)
    assert FORMATS[name].record.search(changed.encode()) is None
    assert FORMATS[name].marker.decode() in changed


@pytest.mark.parametrize("name", NAMES)
def test_a_record_never_goes_over_a_lines_end(name: str) -> None:
    line = RECORDS[name][0][0].encode()
    for at in range(1, len(line)):
        for match in FORMATS[name].record.finditer(line[:at] + b"\n" + line[at:]):
            assert b"\n" not in match[0]


@pytest.mark.parametrize(
    "text",
    [
        "DLL 2022-03-04 05:06:07.123456 - Epoch: 0  train.loss : 6.5  train.total_ips : 4000.25 img/s",
        "DLL 2022-03-04 05:06:07.123456 - Summary: train.loss : 6.5 None train.total_ips : 4000.25 images/s",
        "DLL 2022-03-04 05:06:07.123456 - Epoch: 0 Iteration: 9 Validation Iteration: 2  val.total_ips : 90.0 img/s",
        "DLL 2022-03-04 05:06:07.123456 - Epoch: 1  train.loss : 6.5  train.ips : 4000.25 images/s",
        ":::NVLOGv0.2.3 resnet 1600000000.123456789 (benchmark_hooks.py:66) Average total_ips: 4000.25",
        "DLL 2022-03-04 05:06:07.123456 - () train_throughput : 4000.25 images/s",
        # NVIDIA's PaddlePaddle script, which is none of these.
        "DLL 2022-03-04 05:06:07.123456 - Epoch: 0 Iteration: 10  train.loss : 6.5  train.top1 : 0.0  train.ips : 40.2",
    ],
)
def test_other_figures_are_no_records(text: str) -> None:
    assert [spec.name for spec in FORMATS.values() if spec.record.search(text.encode())] == []


@pytest.mark.parametrize(
    ("name", "figure", "text", "epoch"),
    [
        ("nvidia-tensorflow", "average", ":::NVLOG resnet 16.5 (hooks.py:66) Average total_ips: 71.5", None),
        ("nvidia-tensorflow", "train_throughput", "- () train_throughput : 71.5 images/s", None),
        ("nvidia-pytorch", "summary_total", "- Summary: train.loss : 6  train.total_ips : 71.5 img/s", None),
        ("nvidia-pytorch", "summary_compute", "- Summary: lr : 0.1  train.compute_ips : 71.5 img/s", None),
        ("nvidia-pytorch", "epoch", "- Epoch: 3  train.loss : 6  train.total_ips : 71.5 img/s", b"3"),
        ("nvidia-mxnet", "epoch", "- Epoch: 3  train.loss : 6  train.ips : 71.5 images/s", b"3"),
        ("nvidia-mxnet", "summary_ips", "- Summary: train.loss : 6  train.ips : 71.5 ", None),
    ],
)  # fmt: skip
def test_the_figures_that_the_script_prints_itself(name: str, figure: str, text: str, epoch: bytes | None) -> None:
    found = {key: each.search(text.encode()) for key, each in FORMATS[name].printed.items()}
    assert [key for key, match in found.items() if match] == [figure]
    match = found[figure]
    assert match is not None
    assert match["images_per_s"] == b"71.5"
    assert match.groupdict().get("epoch") == epoch


def test_a_pytorch_summary_of_both_figures_gives_both() -> None:
    text = b"- Summary: train.loss : 6 None train.compute_ips : 80.5 images/s train.total_ips : 79.5 images/s lr : 1 "
    printed = FORMATS["nvidia-pytorch"].printed
    found = {name: each["images_per_s"] for name in printed if (each := printed[name].search(text))}
    assert found == {"summary_total": b"79.5", "summary_compute": b"80.5"}


@pytest.mark.parametrize(
    ("name", "line", "starts"),
    [
        ("nvidia-tensorflow", TENSORFLOW_PARAMETERS, True),
        ("nvidia-tensorflow", ":::NVLOGv0.2.3 None 1600000000.5 (runner.py:123) TF AMP is activated", True),
        ("nvidia-tensorflow", ":::NVLOGv0.2.3 None 1600000000.5 (resnet.py:93) Model HParams:", True),
        ("nvidia-tensorflow", ":::NVLOGv0.2.3 None 1600000000.5 (runner.py:236) XLA is activated", False),
        ("nvidia-pytorch", PYTORCH_PARAMETERS, True),
        ("nvidia-pytorch", "DLL 2022-03-04 05:06:07.1 - PARAMETER model.num_classes : 1000  model.trt : False ", False),
        ("nvidia-mxnet", MXNET_PARAMETERS, True),
        ("nvidia-mllog", MLLOG.format(key="run_start", value="null"), True),
    ],
)  # fmt: skip
def test_what_begins_a_run(name: str, line: str, starts: bool) -> None:
    data = ("before\n" + line + "\nafter\n").encode()
    assert any(pattern.search(data) for pattern in FORMATS[name].starts) is starts


def test_empty_context_says_the_framework_alone() -> None:
    for name in RECORDS:
        spec = FORMATS[name]
        found = {setting.value: said.value for setting, said in spec.configure(RunContext("a.log", ())).items()}
        framework = {"tensorflow": "tensorflow", "pytorch": "pytorch", "mxnet": "mxnet"}.get(name.split("-")[1])
        assert found == ({"framework": framework} if framework else {})


def test_two_runs_of_one_file_are_read_as_two(tmp_path: Path) -> None:
    """Through the reader: one card, then four, whose other ranks' lines are not the job's."""
    first = (
        MXNET_PARAMETERS.replace("[0, 1, 2, 3]", "[0]").replace("384", "96").replace("disp", "dllogger_log : r-1,96  d")
    )
    second = MXNET_PARAMETERS.replace("disp", "dllogger_log : r-4,96  d")
    step = "DLL 2022-03-04 05:06:{0}7.5 - Epoch: {0} Iteration: 19  train.loss : 6.5  train.ips : {1}.5  train.lr : 0 "
    epoch = "DLL 2022-03-04 05:06:{0}8.5 - Epoch: {0}  train.loss : 6.5  train.ips : {1}.25 "
    lines = [f"[1,0]<stdout>:{first}"]
    for parameters, rate in ((None, 100), (second, 400)):
        lines += [f"[1,0]<stdout>:{parameters}", "[1,3]<stderr>:noise"] if parameters else []
        for number in (0, 1):
            lines += [f"[1,0]<stdout>:{each.format(number, rate + number)}" for each in (step, epoch)]
    path = tmp_path / "mxnet_gpu1_gpu4_bs96.txt"
    path.write_text("\n".join(lines) + "\n")
    runs = read_log(open_log(path), FORMATS["nvidia-mxnet"], {})
    found = [(run.stated(LogSetting.CARDS), run.stated(LogSetting.BATCH_SIZE_PER_CARD), run.records) for run in runs]
    assert found == [("1", "96", 2), ("4", "96", 2)]
    assert [[each.samples_per_s for each in run.printed["epoch"]] for run in runs] == [
        [100.25, 101.25],
        [400.25, 401.25],
    ]
    assert [run.dropped for run in runs] == [(), ()]
