"""Paddle's formats on made-up lines of each generation: records, what is no record, printed figures, configuration."""

from __future__ import annotations

import re

import pytest

from helpers.logs.formats import FORMATS
from helpers.logs.formats.fleet import FLEETX_TRAINER
from tests.for_each import for_each

_SPECS = {name: spec for name, spec in FORMATS.items() if spec.configure.__module__.endswith((".paddleclas", ".fleet"))}

# One made-up line of each format, and what it says.
_STATIC = (
    b"[2031/02/03 04:05:06] ppcls INFO: epoch:3   train step:40   lr: 0.100000, loss:  6.5000 top1:  0.0100 "
    b"top5:  0.0500 batch_cost: 0.25000 s, reader_cost: 0.00125 s, ips: 512.00000 samples/sec."
)
_LINES: dict[str, tuple[bytes, dict[str, bytes | None]]] = {
    "paddleclas": (
        _STATIC + b" max_mem_reserved: 1234 max_mem_allocated: 1000",
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
def test_a_record_and_its_marker(name: str) -> None:
    line, groups = _LINES[name]
    match = _SPECS[name].record.search(line)
    assert match is not None and match.groupdict() == groups
    assert line.count(_SPECS[name].marker) == 1


@pytest.mark.parametrize("name", _LINES)
def test_no_other_format_takes_the_line(name: str) -> None:
    line, _ = _LINES[name]
    assert [each for each, spec in _SPECS.items() if spec.marker in line and spec.record.search(line)] == [name]


@pytest.mark.parametrize("name", _LINES)
def test_records_are_found_line_by_line(name: str) -> None:
    line, groups = _LINES[name]
    log = b"\n".join([b"epoch:1 something", line, line[: len(line) // 2], line, b""])
    found = [match.groupdict() for match in _SPECS[name].record.finditer(log)]
    assert found == [groups, groups]


@for_each("name", _LINES)
@for_each("value", [b"nan", b"None", b"inf", b"127.0.0.1", b""])
def test_what_is_no_number_is_no_record(name: str, value: bytes) -> None:
    line, groups = _LINES[name]
    main = groups.get("images_per_s") or groups.get("step_seconds") or groups["steps_per_s"]
    assert main is not None
    wrong = re.sub(rb"(?<![\d.])" + re.escape(main) + rb"(?![\d.])", value, line)
    assert wrong != line
    assert _SPECS[name].record.search(wrong) is None
    assert _SPECS[name].marker in wrong


@pytest.mark.parametrize("number", [b"1e3", b"1.5E+03", b"512", b"512.", b"-3.5"])
def test_every_notation_of_a_number(number: bytes) -> None:
    match = _SPECS["paddleclas"].record.search(_STATIC.replace(b"512.00000", number))
    assert match is not None and match["images_per_s"] == number


def test_the_stamp_is_taken_where_the_line_has_it() -> None:
    record = _SPECS["paddleclas"].record
    for prefix in (b"2031-02-03 04:05:06 INFO: ", b"[2031/02/03 04:05:06] root INFO: ", b""):
        match = record.search(prefix + _STATIC.split(b"INFO: ")[1])
        assert match is not None and match["time"] is None and match["step"] == b"40"


def test_lines_of_an_epochs_end_and_of_evaluation_are_no_records() -> None:
    others = [
        b"[2031/02/03 04:05:06] ppcls INFO: END epoch:3   train  loss:  6.0 batch_cost: 0.25 s, ips: 500.0 images/sec.",
        b"2031-02-03 04:05:06 INFO: valid step:10   batch_cost: 0.25 s, reader_cost: 0.1 s, ips: 500.0 images/sec.",
        b"[2031/02/03 04:05:06] ppcls INFO: [Train][Epoch 2/9][Avg]top1: 0.01, loss: 6.5",
        b"[2031/02/03 04:05:06] ppcls INFO: [Eval][Epoch 2][Iter: 0/9]loss: 6.5, batch_cost: 1.0s, reader_cost: 0.9, "
        b"ips: 64.0 images/sec",
    ]
    for line in others:
        assert [name for name, spec in _SPECS.items() if spec.marker in line] == []


def test_the_figures_that_a_script_prints_itself() -> None:
    static = (
        _SPECS["paddleclas"]
        .printed["epoch"]
        .search(
            b"INFO: END epoch:2   train top1: 0.05 batch_cost: 0.2 s, batch_cost_sum: 9.0 s, ips: 640.25 images/sec."
        )
    )
    assert static is not None and (static["epoch"], static["images_per_s"]) == (b"2", b"640.25")
    assert _SPECS["paddleclas"].printed["epoch"].search(b"END epoch:2   train batch_cost_sum: 9.0 s,") is None


def test_a_summary_in_another_unit_or_without_one_is_not_read() -> None:
    line, _ = _LINES["tipc"]
    record = _SPECS["tipc"].record
    assert record.search(line.replace(b"samples/s", b"ms/iteration")) is None
    assert record.search(line.replace(b'"speed_unit": "samples/s", ', b"")) is None


def test_fleetxs_trainer_prints_steps_per_second() -> None:
    line, _ = _LINES["fleetx-trainer"]
    assert FLEETX_TRAINER.record.search(line.replace(b"4.100000", b"nan")) is None
    older = FLEETX_TRAINER.record.search(line.replace(b"epoch id: 2", b"worker_index: 0"))
    assert older is not None and older["epoch"] is None
