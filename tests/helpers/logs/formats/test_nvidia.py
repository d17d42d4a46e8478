"""The logs of NVIDIA's scripts as FormatSpecs: what a record is, what it says, and what the script prints itself."""

from __future__ import annotations

import pytest

from helpers.logs.formats import FORMATS
from tests.for_each import for_each
from tests.helpers.logs.nvidia_lines import (
    MLLOG,
    MXNET_PARAMETERS,
    PYTORCH_PARAMETERS,
    RECORDS,
    TENSORFLOW_PARAMETERS,
)

NAMES = sorted(RECORDS)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_found_once_in_its_own_format_only(name: str) -> None:
    for line, expected in RECORDS[name]:
        data = f"{line}\n{line}\n".encode()
        found = [match.groupdict() for match in FORMATS[name].record.finditer(data)]
        fields = {key: value.decode() for key, value in found[0].items() if value is not None}
        assert (len(found), fields) == (2, expected)
        assert data.count(FORMATS[name].marker) == 2
        assert [each.name for each in FORMATS.values() if each.record.search(data)] == [name]


@for_each("name", NAMES)
@for_each("text", ["None", "nan", "inf", "127.0.0.1", "12:30:01", "12ab", ""])
def test_what_is_no_number_is_no_record(name: str, text: str) -> None:
    line, expected = RECORDS[name][0]
    changed = line.replace(expected["images_per_s"], text)
    assert FORMATS[name].record.search(changed.encode()) is None
    assert FORMATS[name].marker.decode() in changed


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
def test_the_figures_that_the_script_prints_itself_are_no_records(
    name: str, figure: str, text: str, epoch: bytes | None
) -> None:
    found = {key: match for key, each in FORMATS[name].printed.items() if (match := each.search(text.encode()))}
    assert list(found) == [figure]
    assert (found[figure]["images_per_s"], found[figure].groupdict().get("epoch")) == (b"71.5", epoch)
    assert [spec.name for spec in FORMATS.values() if spec.record.search(text.encode())] == []


@pytest.mark.parametrize(
    ("name", "line", "starts"),
    [
        ("nvidia-tensorflow", TENSORFLOW_PARAMETERS, True),
        ("nvidia-tensorflow", ":::NVLOGv0.2.3 None 1600000000.5 (runner.py:123) TF AMP is activated", True),
        ("nvidia-tensorflow", ":::NVLOGv0.2.3 None 1600000000.5 (runner.py:236) XLA is activated", False),
        ("nvidia-pytorch", PYTORCH_PARAMETERS, True),
        ("nvidia-pytorch", "DLL 2022-03-04 05:06:07.1 - PARAMETER model.num_classes : 1000  model.trt : False ", False),
        ("nvidia-mxnet", MXNET_PARAMETERS, True),
        ("nvidia-mllog", MLLOG.format(key="run_start", value="null"), True),
    ],
)  # fmt: skip
def test_what_begins_a_run(name: str, line: str, starts: bool) -> None:
    assert any(pattern.search(line.encode()) for pattern in FORMATS[name].starts) is starts
