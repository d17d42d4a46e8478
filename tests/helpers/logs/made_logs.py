"""Small logs made by hand in the forms that scripts print, with invented numbers, for tests that read files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.helpers.logs.nvidia_lines import TENSORFLOW_PARAMETERS

# What the parameters say, and what the file's name has to.
TENSORFLOW = {"framework": "tensorflow", "model": "resnet50v1.5", "precision": "amp", "batch_size_per_card": "96"}


def write(path: Path, lines: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def tensorflow_lines(rates: Sequence[float], throughput: float | None = None) -> list[str]:
    """A run of NVIDIA's TensorFlow script: a record a second, and its own figure at the end."""
    lines = [TENSORFLOW_PARAMETERS]
    for index, rate in enumerate(rates):
        clock = f"{6 + index // 60:02}:{index % 60:02}.500000"
        lines.append(f"DLL 2022-03-04 05:{clock} - (0, {200 + index}) total_ips : {rate} ")
    if throughput is not None:
        lines.append(f"DLL 2022-03-04 05:59:59.000000 - () train_throughput : {throughput} ")
    return lines


def time_history_lines(rates: Sequence[float]) -> list[str]:
    """A run of tensorflow/models' script as DLPerf logs it: a record every 100 steps."""
    return [
        f"I0304 05:{6 + index:02}:07.250000 140000000000000 keras_utils.py:133] TimeHistory: 20.00 seconds, "
        f"{rate:.2f} examples/second between steps {100 * index} and {100 * index + 100}"
        for index, rate in enumerate(rates)
    ]


def paddleclas_lines(means: Sequence[float], batch: int = 32) -> list[str]:
    """An epoch of PaddleClas' static graph: every tenth step the mean seconds since step 5."""
    return [
        f"[2031/02/03 04:{5 + index // 60:02}:{index % 60:02}] ppcls INFO: epoch:0   train step:{10 * index + 10:<4} "
        f"lr: 0.100000, loss:  6.5000 batch_cost: {mean:.5f} s, reader_cost: 0.00100 s, "
        f"ips: {batch / mean:.5f} samples/sec."
        for index, mean in enumerate(means)
    ]


def fleetx_trainer_lines(steps_per_s: Sequence[float]) -> list[str]:
    """A run of FleetX's trainer: each step's own steps/s, from step 11 on."""
    return [
        f"epoch id: 0, step{11 + index}, train_loss: 6.5, total time cost = 9.5, step per second: 1.5, speed: {rate}"
        for index, rate in enumerate(steps_per_s)
    ]


def tipc_line(ips: float, batch: int = 32, cards: int = 2, precision: str = "fp32") -> str:
    return (
        f'{{"model_branch": "x", "model_name": "ResNet50_bs{batch}_{precision}_DP", "batch_size": {batch}, "fp_item": '
        f'"{precision}", "device_num": "N1C{cards}", "ips": {ips}, "speed_unit": "images/s", "convergence_value": 0}}'
    )
