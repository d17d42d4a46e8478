"""Paddle's formats on made-up lines of each generation: records, what is no record, printed figures."""

from __future__ import annotations

import re

import pytest

from helpers.logs.formats import FORMATS
from tests.for_each import for_each

# One made-up line of each format, and what it says.
_LINES: dict[str, tuple[bytes, dict[str, bytes | None]]] = {
    "paddleclas": (
        b"[2031/02/03 04:05:06] ppcls INFO: epoch:3   train step:40   lr: 0.100000, loss:  6.5000 top1:  0.0100 "
        b"top5:  0.0500 batch_cost: 0.25000 s, reader_cost: 0.00125 s, ips: 512.00000 samples/sec. mem_reserved: 12",
        {
            "time": b"2031/02/03 04:05:06",
            "epoch": b"3",
            "step": b"40",
            "step_seconds": b"0.25000",
            "reader_seconds": b"0.00125",
            "images_per_s": b"512.00000",
        },
    ),
    "paddleclas-dynamic": (
        b"[2031/02/03 04:05:06] ppcls INFO: [Train][Epoch 2/9][Iter: 30/77]lr(Piecewise): 0.10000000, top1: 0.01000, "
        b"loss: 6.50000, batch_cost: 0.50000s, reader_cost: 0.01000, ips: 128.00000 samples/s, eta: 1 day, 2:03:04, "
        b"max_mem_reserved: 12.00 MB",
        {
            "time": b"2031/02/03 04:05:06",
            "epoch": b"2",
            "step": b"30",
            "step_seconds": b"0.50000",
            "reader_seconds": b"0.01000",
            "images_per_s": b"128.00000",
        },
    ),
    "paddleclas-dynamic-2021": (
        b"2031-02-03 04:05:06 INFO: epoch:1  , train step:20  , top1: 0.01000, top5: 0.05000, loss: 6.50000, "
        b"lr: 0.100000, batch_cost: 0.20000 s, reader_cost: 0.00100 s, ips: 320.00000 images/sec, eta: 0:01:02",
        {
            "time": b"2031-02-03 04:05:06",
            "epoch": b"1",
            "step": b"20",
            "step_seconds": b"0.20000",
            "reader_seconds": b"0.00100",
            "images_per_s": b"320.00000",
        },
    ),
    "fleetx-trainer": (
        b"epoch id: 2, step31, train_loss: 6.500000, total time cost = 5.250000, step per second: 4.000000, "
        b"speed: 4.100000",
        {"epoch": b"2", "step": b"31", "steps_per_s": b"4.100000"},
    ),
    "tipc": (
        b'{"model_branch": "main", "model_name": "ResNet50_bs64_fp32_DP", "batch_size": 64, "fp_item": "fp16", '
        b'"run_mode": "DP", "ips": 2048.5, "speed_unit": "samples/s", "device_num": "N2C16", "frame_version": "2.5.1"}',
        {"images_per_s": b"2048.5"},
    ),
}


@pytest.mark.parametrize("name", _LINES)
def test_a_record_is_found_once_in_its_own_format_only(name: str) -> None:
    line, groups = _LINES[name]
    log = b"\n".join([b"epoch:1 something", line, line[: len(line) // 2], line, b""])
    assert [match.groupdict() for match in FORMATS[name].record.finditer(log)] == [groups, groups]
    assert line.count(FORMATS[name].marker) == 1
    assert [each for each, spec in FORMATS.items() if spec.marker in line and spec.record.search(line)] == [name]


@for_each("name", _LINES)
@for_each("value", [b"nan", b"None", b"inf", b"127.0.0.1", b""])
def test_what_is_no_number_is_no_record(name: str, value: bytes) -> None:
    line, groups = _LINES[name]
    main = groups.get("images_per_s") or groups["steps_per_s"]
    assert main is not None
    wrong = re.sub(rb"(?<![\d.])" + re.escape(main) + rb"(?![\d.])", value, line)
    assert wrong != line
    assert FORMATS[name].record.search(wrong) is None
    assert FORMATS[name].marker in wrong


def test_the_stamp_is_taken_where_the_line_has_it() -> None:
    for prefix in (b"2031-02-03 04:05:06 INFO: ", b"[2031/02/03 04:05:06] root INFO: ", b""):
        match = FORMATS["paddleclas"].record.search(prefix + _LINES["paddleclas"][0].split(b"INFO: ")[1])
        assert match is not None and (match["time"], match["step"]) == (None, b"40")


def test_the_lines_of_an_epochs_end_and_of_evaluation_are_no_records() -> None:
    end = b"INFO: END epoch:2   train top1: 0.05 batch_cost: 0.2 s, batch_cost_sum: 9.0 s, ips: 640.25 images/sec."
    others = [
        end,
        b"2031-02-03 04:05:06 INFO: valid step:10   batch_cost: 0.25 s, reader_cost: 0.1 s, ips: 500.0 images/sec.",
        b"[2031/02/03 04:05:06] ppcls INFO: [Eval][Epoch 2][Iter: 0/9]loss: 6.5, batch_cost: 1.0s, reader_cost: 0.9, "
        b"ips: 64.0 images/sec",
    ]
    assert [name for line in others for name, spec in FORMATS.items() if spec.marker in line] == []
    match = FORMATS["paddleclas"].printed["epoch"].search(end)
    assert match is not None and (match["epoch"], match["images_per_s"]) == (b"2", b"640.25")


def test_a_summary_in_another_unit_or_without_one_is_not_read() -> None:
    line, record = _LINES["tipc"][0], FORMATS["tipc"].record
    assert record.search(line.replace(b"samples/s", b"ms/iteration")) is None
    assert record.search(line.replace(b'"speed_unit": "samples/s", ', b"")) is None
