"""What paddle.profiler says of a small network's step, with the layers by name, and what its spans mean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

paddle: Any = pytest.importorskip("paddle")
nn = paddle.nn

from helpers.trainers.common.device_time import ProfileError  # noqa: E402
from helpers.trainers.common.step_profile import Recording, Span, computing_threads  # noqa: E402
from helpers.trainers.contract import ROOT  # noqa: E402
from helpers.trainers.contract.step_profile import Phase  # noqa: E402
from helpers.trainers.paddle.data import LOADING  # noqa: E402
from helpers.trainers.paddle.profile import NO_LAYERS, PaddleProfiler, recording_of  # noqa: E402


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


def test_what_a_container_computes_itself_is_its_own(profiled: tuple[Recording, Path]) -> None:
    recording, _ = profiled
    biases = {"0": 1.0, "1.straight": 1.0, "2.straight": 1.0}
    assert _layers_of(recording, Phase.BACKWARD, "add_grad") == {**biases, "1": 1.0, "2": 1.0}
    # The mean is of no layer.
    assert _layers_of(recording, Phase.BACKWARD, "mean_grad") == {"": 1.0}
    assert _layers_of(recording, Phase.OPTIMIZER, "momentum") == {"": 8.0}


def test_the_trace_is_kept_for_a_viewer(profiled: tuple[Recording, Path]) -> None:
    _, trace = profiled
    assert json.loads(trace.read_text())["traceEvents"]
    assert [path.name for path in trace.parent.iterdir()] == [trace.name]


def test_layers_can_be_left_out_and_the_threads_are_those_that_compute(tmp_path: Path) -> None:
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
    assert found.threads == computing_threads() and (found.threads or 0) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("openmp", "mkl", "told"), [("1", "1", "1"), ("2", "2", "2"), ("2", "1", "1"), ("1", "2", "1")]
)
def test_the_fewest_threads_that_openmp_and_mkl_were_given_are_told(openmp: str, mkl: str, told: str) -> None:
    # In a process of its own: both read the number when they are loaded.
    program = (
        "import paddle\n"
        "from helpers.trainers.common.step_profile import computing_threads\n"
        "paddle.ones([2, 2]) @ paddle.ones([2, 2])\n"
        "print(computing_threads())\n"
    )
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "OMP_NUM_THREADS": openmp, "MKL_NUM_THREADS": mkl, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == told


def test_a_gpu_is_refused() -> None:
    with pytest.raises(ProfileError, match="CPUs only"):
        PaddleProfiler("gpu", None)


def _operator(thread: str, name: str, start: float, seconds: float) -> Sequence[Span]:
    return [
        Span(thread, f"pd_op.{name}", start, start + seconds, "Operator"),
        Span(thread, f"{name} kernel launch", start, start + seconds / 2, "StaticKernelLaunch"),
    ]


def test_the_operators_of_a_program_tell_its_phases_on_whatever_thread() -> None:
    whole = Span("main", "perfgate part other", 10.0, 20.0, "PythonUserDefined")
    spans = [
        Span("main", "perfgate part data_wait", 9.5, 10.0, "PythonUserDefined"),
        whole,
        *_operator("a", "conv2d", 11.0, 2.0),
        # While the forward pass computes, and a second beyond it.
        *_operator("b", "conv2d_grad", 12.0, 2.0),
        *_operator("a", "momentum_", 15.0, 1.0),
    ]
    recording = recording_of(spans, 1)
    rows = [(row.phase, row.operator, row.seconds_per_step) for row in recording.operators]
    assert rows == [
        (Phase.BACKWARD, "conv2d_grad", 2.0),
        (Phase.FORWARD, "conv2d", 2.0),
        (Phase.OPTIMIZER, "momentum", 1.0),
    ]
    assert recording.phases == {
        Phase.DATA_WAIT: 0.5,
        Phase.FORWARD: 2.0,
        Phase.BACKWARD: 1.0,
        Phase.OPTIMIZER: 1.0,
        Phase.OTHER: 0.0,
    }
    assert NO_LAYERS in recording.notes


@pytest.mark.parametrize(
    ("off_core", "host", "convolution", "waits"), [(2.5, 5.0, 2.5, 2.5), (0.25, 5.75, 4.0, 0.25), (9.0, 5.0, 1.0, 4.0)]
)
def test_a_step_beside_the_reading_of_an_image_waits_for_data(
    off_core: float, host: float, convolution: float, waits: float
) -> None:
    spans = [
        Span("main", "perfgate part data_wait", 0.0, 0.5, "PythonUserDefined"),
        Span("main", "perfgate part forward", 1.0, 11.0, "PythonUserDefined"),
        *_operator("main", "conv2d", 3.0, 4.0),
        # A second beside the host's code, and three beside the convolution.
        Span("loader", LOADING, 2.0, 4.5, "PythonUserDefined"),
        Span("loader", LOADING, 4.5, 6.0, "PythonUserDefined"),
        # The step does not do what the loader does.
        *_operator("loader", "assign", 2.0, 3.0),
    ]
    recording = recording_of(spans, 1, {Phase.FORWARD: off_core})
    rows = {(row.phase, row.operator): row.seconds_per_step for row in recording.operators}
    assert rows == {
        (Phase.FORWARD, "host code"): pytest.approx(host),
        (Phase.FORWARD, "conv2d"): pytest.approx(convolution),
        (Phase.DATA_WAIT, "host code"): pytest.approx(0.5 + waits),
    }
    assert recording.phases == {
        Phase.FORWARD: pytest.approx(10.0 - waits), Phase.DATA_WAIT: pytest.approx(0.5 + waits)
    }  # fmt: skip


def test_gradients_are_reduced_where_their_accumulation_makes_a_buffer() -> None:
    node = "Global_GradNodeAccumulation"
    spans = [
        Span("main", "perfgate part backward", 0.0, 10.0, "PythonUserDefined"),
        Span("main", node, 1.0, 2.0, "Operator"),
        Span("main", node, 3.0, 7.0, "Operator"),
        Span("main", "empty kernel launch", 3.0, 3.5, "DygraphKernelLaunch"),
    ]
    recording = recording_of(spans, 1)
    assert recording.phases == {Phase.BACKWARD: 6.0, Phase.ALL_REDUCE: 4.0}
    rows = {row.operator: (row.phase, row.seconds_per_step) for row in recording.operators}
    assert rows["all_reduce"] == (Phase.ALL_REDUCE, 4.0)
    assert rows["GradNodeAccumulation"] == (Phase.BACKWARD, 1.0)


@pytest.mark.parametrize("call", ["kernel launch", "compute"])
def test_a_gradient_has_the_name_of_its_kernel_in_every_version_of_paddle(call: str) -> None:
    spans = [
        Span("main", "perfgate part backward", 0.0, 3.0, "PythonUserDefined"),
        Span("main", "Conv2dGradNodeFinal", 0.0, 2.0, "Operator"),
        Span("main", f"conv2d_grad {call}", 0.5, 2.0, "OperatorInner"),
    ]
    assert [row.operator for row in recording_of(spans, 1).operators] == ["conv2d_grad", "host code"]


def test_spans_without_an_operator_are_refused() -> None:
    with pytest.raises(ProfileError, match="no operator"):
        recording_of([Span("main", "perfgate part other", 0.0, 1.0)], 1)
