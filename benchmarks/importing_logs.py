"""Logs of any size, made by repeating records of hand-made samples: steps, epochs and clocks go on as in a real log."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

START = datetime(2023, 7, 28, 6, 54)
_RECORD_STEPS, _EPOCH_RECORDS = 10, 500
_MXNET_CARDS = 8


@dataclass(frozen=True)
class Sample:
    """A format's log. Batches have 256 images a card."""

    format: str
    # What the command line states of it.
    framework: str
    cards: int
    # The log begins with ``head``; then each epoch has its ``records`` and what is printed ``after`` them.
    head: str
    records: Callable[[int], list[str]]
    after: Callable[[int], str]


@dataclass(frozen=True)
class Written:
    lines: int
    records: int
    size_bytes: int


def write_log(path: Path, sample: Sample, size_bytes: int) -> Written:
    """A log of whole epochs, of at least ``size_bytes``."""
    lines, records, epoch = sample.head.count("\n"), 0, 0
    with path.open("wb") as file:
        file.write(sample.head.encode())
        while file.tell() < size_bytes:
            new, after = sample.records(epoch), sample.after(epoch)
            file.write(("".join(new) + after).encode())
            lines += len(new) + after.count("\n")
            records += len(new)
            epoch += 1
        return Written(lines, records, file.tell())


def _seconds(number: int) -> float:
    """A step's seconds in record ``number``: 0.19 s, within 1%."""
    return 0.19 * (1 + 0.01 * math.sin(number))


def _at(number: int) -> datetime:
    """When record ``number`` is printed."""
    return START + timedelta(seconds=0.19 * _RECORD_STEPS * (number + 1))


def _numbered(epoch: int) -> range:
    return range(epoch * _EPOCH_RECORDS, (epoch + 1) * _EPOCH_RECORDS)


def _paddleclas_records(epoch: int) -> list[str]:
    first = epoch * _EPOCH_RECORDS
    return [
        f"[{_at(number):%Y/%m/%d %H:%M:%S}] ppcls INFO: epoch:{epoch:<3d} "
        f"train step:{(number - first) * _RECORD_STEPS:<4d} lr: 0.100000, loss:  6.9078 top1:  0.0010 top5:  0.0050 "
        f"batch_cost: {_seconds(number):.5f} s, reader_cost: 0.00055 s, "
        f"ips: {256 / _seconds(number):.5f} samples/sec.\n"
        for number in _numbered(epoch)
    ]


def _paddleclas_after(epoch: int) -> str:
    last = _numbered(epoch)[-1]
    return (
        f"[{_at(last):%Y/%m/%d %H:%M:%S}] ppcls INFO: END epoch:{epoch:<3d} train loss:  6.9078 top1:  0.0010 "
        f"batch_cost: 0.19000 s, reader_cost: 0.00055 s, batch_cost_sum: 950.00000 s, ips: 1347.36842 samples/sec.\n"
    )


def _tensorflow_records(epoch: int) -> list[str]:
    return [
        f"DLL {_at(number):%Y-%m-%d %H:%M:%S.%f} - ({epoch}, {number * _RECORD_STEPS}) "
        f"total_ips : {256 / _seconds(number)} \n"
        for number in _numbered(epoch)
    ]


def _mxnet_records(epoch: int) -> list[str]:
    first = epoch * _EPOCH_RECORDS
    return [
        f"[1,0]<stdout>:DLL {_at(number):%Y-%m-%d %H:%M:%S.%f} - Epoch: {epoch} "
        f"Iteration: {(number - first + 1) * _RECORD_STEPS - 1}  train.loss : {6.9 + _seconds(number)}  "
        f"train.ips : {_MXNET_CARDS * 256 / _seconds(number)} images/s train.lr : 0.4864 \n"
        for number in _numbered(epoch)
    ]


def _mxnet_after(epoch: int) -> str:
    others = "".join(f"[1,{rank}]<stderr>:rank {rank}: epoch {epoch} done\n" for rank in range(1, _MXNET_CARDS))
    return (
        f"[1,0]<stdout>:DLL {_at(_numbered(epoch)[-1]):%Y-%m-%d %H:%M:%S.%f} - Epoch: {epoch}  train.loss : 6.9  "
        f"train.ips : {_MXNET_CARDS * 256 / 0.19} images/s\n{others}"
    )


SAMPLES = (
    Sample("paddleclas", "paddle", 1, "our own sample\n", _paddleclas_records, _paddleclas_after),
    Sample("nvidia-tensorflow", "tensorflow", 1, "our own sample\n", _tensorflow_records, lambda epoch: ""),
    Sample("nvidia-mxnet", "mxnet", _MXNET_CARDS, "our own sample\n", _mxnet_records, _mxnet_after),
)
