"""Small logs made by hand in the forms that scripts print, with invented numbers, for tests that read files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.helpers.importing.nvidia_lines import TENSORFLOW_PARAMETERS

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


def fleetx_lines(seconds: float, batch: int, steps: int = 130) -> list[str]:
    """A run of FleetX's script: every tenth batch the mean since the one before."""
    return [
        f"Pass 0, trainbatch {step}, loss 6.5000, acc1 0.01000, acc5 0.05000, lr 0.10000, time {seconds:.4f} sec, "
        f"speed {batch / seconds:.2f}"
        for step in range(0, steps + 1, 10)
    ]
