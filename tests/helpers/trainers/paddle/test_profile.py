"""What paddle.profiler says of a small network's step, with the layers by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

paddle: Any = pytest.importorskip("paddle")
nn = paddle.nn

from helpers.trainers.common.step_profiler import (  # noqa: E402
    Recording,
)
from helpers.trainers.contract.step_profile import Phase  # noqa: E402
from helpers.trainers.paddle.profile import PaddleProfiler  # noqa: E402
from helpers.trainers.paddle.tree import NO_LAYERS  # noqa: E402


class Block(nn.Layer):
    """Two convolutions of one size, whose gradients cannot be told apart by their operators."""

    def __init__(self) -> None:
        super().__init__()
        self.straight = nn.Conv2D(4, 4, 3, padding=1)
        self.shortcut = nn.Conv2D(4, 4, 1, bias_attr=False)
        self.activation = nn.ReLU()

    def forward(self, images: Any) -> Any:
        return self.activation(self.straight(images) + self.shortcut(images))


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Path]:
    """Two steps of two blocks under the profiler, and its trace."""
    trace = tmp_path_factory.mktemp("profile") / "trace.json"
    model = nn.Sequential(nn.Conv2D(3, 4, 3), Block(), Block())
    optimizer = paddle.optimizer.Momentum(0.1, parameters=model.parameters())
    images = paddle.randn([1, 3, 8, 8])
    profiler = PaddleProfiler("cpu", model)
    profiler.start()
    for _ in range(2):
        with profiler.part(Phase.FORWARD):
            loss = model(images).mean()
        with profiler.part(Phase.BACKWARD):
            loss.backward()
        with profiler.part(Phase.OPTIMIZER):
            optimizer.step()
            optimizer.clear_grad()
    found = profiler.stop(2, trace)
    # The hooks are gone with the profiler.
    model(images)
    return found, trace


def _layers_of(recording: Recording, phase: Phase, operator: str) -> dict[str, float]:
    rows = [row for row in recording.operators if (row.phase, row.operator) == (phase, operator)]
    return {row.layer: row.calls_per_step for row in rows}


def test_forward_and_backward_of_a_convolution_have_the_name_of_its_layer(profiled: tuple[Recording, Path]) -> None:
    recording, _ = profiled
    layers = dict.fromkeys(["0", "1.shortcut", "1.straight", "2.shortcut", "2.straight"], 1.0)
    assert _layers_of(recording, Phase.FORWARD, "conv2d") == layers
    assert _layers_of(recording, Phase.BACKWARD, "conv2d_grad") == layers


def test_layers_can_be_left_out(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2D(3, 4, 3), nn.ReLU())
    profiler = PaddleProfiler("cpu", model, without=("layers",))
    profiler.start()
    with profiler.part(Phase.FORWARD):
        loss = model(paddle.randn([1, 3, 8, 8])).mean()
    with profiler.part(Phase.BACKWARD):
        loss.backward()
    found = profiler.stop(1, tmp_path / "trace.json")
    assert {row.layer for row in found.operators} == {""}
    assert NO_LAYERS not in found.notes
