"""Profiles a small network with torch.profiler, in .venv-pytorch: ``profile_units.py FOLDER``; prints JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from helpers.trainers.common.step_profiler import Recording
from helpers.trainers.contract.frameworks import FRAMEWORKS, Framework
from helpers.trainers.contract.step_profile import Phase
from helpers.trainers.pytorch.profile import PytorchStepProfiler


class ThereAndBack(nn.Module):  # type: ignore[misc]
    def forward(self, images: Any) -> Any:
        return images.to(torch.bfloat16).float()


CONVOLUTION = nn.Conv2d(3, 3, 3)
# The convolution twice: its name is that of its first place.
MODEL = nn.Sequential(CONVOLUTION, ThereAndBack(), CONVOLUTION, nn.BatchNorm2d(3), nn.ReLU(inplace=True))


def profiled(trace: Path, without: Sequence[str] = ()) -> Recording:
    profiler = PytorchStepProfiler(MODEL, torch.device("cpu"), without)
    profiler.start()
    for _ in range(2):
        with profiler.part(Phase.FORWARD):
            loss = MODEL(torch.ones(1, 3, 16, 16)).sum()
        with profiler.part(Phase.BACKWARD):
            loss.backward()
    return profiler.stop(2, trace)


def main(folder: Path) -> None:
    recording = profiled(folder / "trace.json")
    answer = {
        "rows": [[*row.key, row.calls_per_step] for row in recording.operators],
        "phases": sorted(phase.value for phase in recording.phases or ()),
        "hooks": sum(len(layer._forward_hooks) + len(layer._forward_pre_hooks) for layer in MODEL.modules()),
    }
    levels = [FRAMEWORKS[Framework.PYTORCH].explained_without[:number] for number in range(3)]
    torch.set_num_threads(1)
    answer["levels"] = [
        {
            "layers": sorted({row.layer for row in each.operators}),
            "types": sorted({row.dtypes for row in each.operators}),
            "operators": sorted({row.operator for row in each.operators}),
            "threads": each.threads,
            "notes": each.notes,
        }
        for each in (profiled(folder / f"level{len(without)}.json", without=without) for without in levels)
    ]
    answer["bytes"] = [(folder / f"level{number}.json").stat().st_size for number in range(3)]
    torch.set_num_threads(2)
    answer["threads"] = profiled(folder / "threads.json").threads
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
