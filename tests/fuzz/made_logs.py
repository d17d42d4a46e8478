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
    # A record of an epoch, by its place there, and what is printed after the epoch's last one.
    record: Callable[[int, int], str]
    after: Callable[[int], str]
    # The log begins with it.
    head: str = "our own sample\n"

    def records(self, epoch: int) -> list[str]:
        return [self.record(epoch, place) for place in range(_EPOCH_RECORDS)]


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


def _number(epoch: int, place: int = _EPOCH_RECORDS - 1) -> int:
    """The number of an epoch's record among all of the log; of its last one without a place."""
    return epoch * _EPOCH_RECORDS + place


def _paddleclas(epoch: int, place: int) -> str:
    number = _number(epoch, place)
    return (
        f"[{_at(number):%Y/%m/%d %H:%M:%S}] ppcls INFO: epoch:{epoch:<3d} train step:{place * _RECORD_STEPS:<4d} "
        f"lr: 0.100000, loss:  6.9078 top1:  0.0010 top5:  0.0050 batch_cost: {_seconds(number):.5f} s, "
        f"reader_cost: 0.00055 s, ips: {256 / _seconds(number):.5f} samples/sec.\n"
    )


def _paddleclas_after(epoch: int) -> str:
    return (
        f"[{_at(_number(epoch)):%Y/%m/%d %H:%M:%S}] ppcls INFO: END epoch:{epoch:<3d} train loss:  6.9078 "
        "top1:  0.0010 batch_cost: 0.19000 s, reader_cost: 0.00055 s, batch_cost_sum: 950.00000 s, "
        "ips: 1347.36842 samples/sec.\n"
    )


def _tensorflow(epoch: int, place: int) -> str:
    number = _number(epoch, place)
    return (
        f"DLL {_at(number):%Y-%m-%d %H:%M:%S.%f} - ({epoch}, {number * _RECORD_STEPS}) "
        f"total_ips : {256 / _seconds(number)} \n"
    )


def _mxnet(epoch: int, place: int) -> str:
    number = _number(epoch, place)
    return (
        f"[1,0]<stdout>:DLL {_at(number):%Y-%m-%d %H:%M:%S.%f} - Epoch: {epoch} "
        f"Iteration: {(place + 1) * _RECORD_STEPS - 1}  train.loss : {6.9 + _seconds(number)}  "
        f"train.ips : {_MXNET_CARDS * 256 / _seconds(number)} images/s train.lr : 0.4864 \n"
    )


def _mxnet_after(epoch: int) -> str:
    others = "".join(f"[1,{rank}]<stderr>:rank {rank}: epoch {epoch} done\n" for rank in range(1, _MXNET_CARDS))
    return (
        f"[1,0]<stdout>:DLL {_at(_number(epoch)):%Y-%m-%d %H:%M:%S.%f} - Epoch: {epoch}  train.loss : 6.9  "
        f"train.ips : {_MXNET_CARDS * 256 / 0.19} images/s\n{others}"
    )


SAMPLES = (
    Sample("paddleclas", "paddle", 1, _paddleclas, _paddleclas_after),
    Sample("nvidia-tensorflow", "tensorflow", 1, _tensorflow, lambda epoch: ""),
    Sample("nvidia-mxnet", "mxnet", _MXNET_CARDS, _mxnet, _mxnet_after),
)
