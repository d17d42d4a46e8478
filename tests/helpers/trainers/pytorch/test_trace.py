"""What a trace of torch.profiler says: traces written by hand in its format, and one that was recorded on a GPU."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.trainers.common.card_times import UNKNOWN_OPERATOR
from helpers.trainers.common.step_profiler import ProfileError, Recording
from helpers.trainers.contract.step_profile import HOST, OperatorRow, Phase
from helpers.trainers.pytorch.trace import LAYER, PART, recording_of

NODE = "autograd::engine::evaluate_function: "
# One step of ResNet50, tf32, batch 128, on an NVIDIA H200: PyTorch 2.11.0, CUDA 13.0, 2026-11-27. Only the events and
# details that are read.
STEP_ON_H200 = Path(__file__).with_name("step_on_h200.json.gz")


@dataclass
class Trace:
    """Events in microseconds after a date."""

    events: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, name: str, start: float, end: float, category: str = "cpu_op", lane: int = 1, **details: Any
    ) -> Trace:
        named = {key.replace("_", " "): value for key, value in details.items()}
        record = {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": lane, "args": named}
        self.events.append({**record, "ts": 4589008699111.5 + start, "dur": end - start})
        return self

    def scope(self, name: str, start: float, end: float) -> Trace:
        return self.add(name, start, end, "user_annotation")

    def read(self, steps: int = 1, layers: bool = True, on_a_card: bool = False) -> Recording:
        record = {"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "x"}, *self.events]}
        return recording_of(record, steps, layers, on_a_card)


def operators(recording: Recording) -> list[OperatorRow]:
    return [row for row in recording.operators if row.operator != HOST]


def row_of(recording: Recording, operator: str) -> OperatorRow:
    (row,) = (each for each in recording.operators if each.operator == operator)
    return row


def forward() -> Trace:
    """The forward part of one convolution."""
    trace = Trace().scope(PART + "forward", 0, 1000).scope(LAYER + "blocks.0.convolution", 100, 900)
    details: dict[str, Any] = {"Input_type": ["float", "float", "", "ScalarList"], "Sequence_number": 9}
    return (
        trace.add("aten::conv2d", 200, 700, **details)
        .add("aten::convolution", 210, 690, **details)
        .add("aten::mkldnn_convolution", 300, 680, Input_type=["float", "c10::BFloat16"])
        .add("aten::empty", 310, 320)
    )


def test_an_operator_is_one_row_with_its_layer_types_and_innermost_name() -> None:
    recording = forward().read(steps=2)
    (row,) = operators(recording)
    assert row.key == (
        "forward", "blocks.0.convolution", "aten::conv2d", "aten::mkldnn_convolution", "float32,bfloat16", "cpu",
    )  # fmt: skip
    # All of it, in one call in two steps.
    assert (row.calls_per_step, row.seconds_per_step) == pytest.approx((0.5, 250e-6))


def test_a_backward_operator_has_the_layer_of_its_forward_operator() -> None:
    trace = forward().scope(PART + "backward", 1000, 3000)
    # The one before has the same number, since it makes no node of autograd.
    trace.add("aten::add_", 50, 60, Sequence_number=9)
    trace.add(NODE + "ConvolutionBackward0", 1100, 2000, Sequence_number=9, Fwd_thread_id=1)
    trace.add("ConvolutionBackward0", 1110, 1990, Sequence_number=9, Fwd_thread_id=1)
    trace.add("aten::convolution_backward", 1120, 1980, Input_type=["float", "float", "float"])
    row = row_of(trace.read(), "aten::convolution_backward")
    assert (row.phase, row.layer, row.kernel) == (Phase.BACKWARD, "blocks.0.convolution", "")
    # What autograd itself takes around it belongs to it.
    assert row.seconds_per_step == pytest.approx(900e-6)


def test_what_computes_several_things_has_a_row_for_each_and_one_for_itself() -> None:
    trace = Trace().scope(PART + "forward", 0, 1000)
    trace.add("aten::instance_norm", 0, 100).add("aten::repeat", 10, 30).add("aten::batch_norm", 30, 90)
    seconds = {row.operator: row.seconds_per_step for row in operators(trace.read())}
    assert seconds == pytest.approx(
        {
            "aten::instance_norm": 20e-6,
            "aten::repeat": 20e-6,
            "aten::batch_norm": 60e-6,
        }
    )


def test_a_copy_within_an_operator_has_a_row_of_its_own() -> None:
    trace = Trace().scope(PART + "backward", 0, 1000)
    trace.add("aten::convolution_backward", 0, 100, Input_type=["float"]).add("aten::copy_", 20, 50)
    recording = trace.read()
    assert row_of(recording, "aten::convolution_backward").seconds_per_step == pytest.approx(70e-6)
    assert row_of(recording, "aten::convolution_backward").kernel == ""
    assert row_of(recording, "aten::copy_").seconds_per_step == pytest.approx(30e-6)


def test_a_cast_shows_both_types() -> None:
    trace = Trace().scope(PART + "forward", 0, 1000).add("aten::to", 0, 100, Input_type=["float"])
    trace.add("aten::_to_copy", 10, 90, Input_type=["float"]).add("aten::empty_strided", 11, 15)
    trace.add("aten::copy_", 20, 80, Input_type=["c10::BFloat16", "float"])
    (row,) = operators(trace.read())
    assert (row.operator, row.kernel, row.dtypes) == ("aten::to", "aten::copy_", "bfloat16,float32")
    assert row.seconds_per_step == pytest.approx(100e-6)


def test_what_is_left_of_a_part_and_of_a_layer_is_the_host_s_code() -> None:
    trace = forward().scope(LAYER + "pool", 900, 950).scope(PART + "backward", 1000, 1500).add("aten::mm", 1000, 1100)
    # Waiting for other ranks is not the host's code.
    trace.add("gloo:all_reduce", 1050, 1300, "user_annotation", lane=2)
    rows = [row for row in trace.read(steps=2).operators if row.operator == HOST]
    assert {(row.phase, row.layer): row.seconds_per_step for row in rows} == pytest.approx(
        {
            (Phase.FORWARD, ""): 75e-6,
            (Phase.FORWARD, "blocks.0.convolution"): 150e-6,
            (Phase.FORWARD, "pool"): 25e-6,
            (Phase.BACKWARD, ""): 100e-6,
        }
    )
    assert {row.calls_per_step for row in rows} == {1.0}


def test_gradients_are_reduced_beside_the_backward_and_after_it() -> None:
    trace = Trace().scope(PART + "backward", 0, 1000).add(NODE + "MmBackward0", 0, 400).add("aten::mm", 10, 390)
    trace.add("gloo:all_reduce", 300, 900, "user_annotation", lane=2, Input_type=["float"])
    recording = trace.read()
    assert recording.phases == pytest.approx({Phase.BACKWARD: 500e-6, Phase.ALL_REDUCE: 500e-6})
    assert recording.all_reduce_overlapped_seconds == pytest.approx(100e-6)
    row = row_of(recording, "gloo:all_reduce")
    assert row.phase is Phase.ALL_REDUCE
    assert row.seconds_per_step == pytest.approx(600e-6)


def test_a_copy_of_a_batch_is_a_transfer_and_waiting_for_it_is_not() -> None:
    trace = Trace().scope(PART + "data_wait", 0, 1000).add("aten::copy_", 700, 900)
    recording = trace.read()
    assert recording.phases == pytest.approx({Phase.DATA_WAIT: 800e-6, Phase.TRANSFER: 200e-6})
    assert row_of(recording, "aten::copy_").phase is Phase.TRANSFER


# Written by hand after the format of Kineto's traces of a GPU: this was not recorded on one.
def on_a_card(number: int = 0) -> Trace:
    trace = Trace().scope(PART + "data_wait", 0, 100).scope(PART + "forward", 100, 200)
    trace.scope(LAYER + "classifier", 110, 190).add(
        "aten::linear", 120, 180, External_id=5, Sequence_number=3, Input_type=["float"]
    )
    trace.add("aten::addmm", 130, 170, External_id=6, Sequence_number=3, Input_type=["float"])
    # The host's own calls of CUDA are not read; the card is busy after the host has gone on.
    trace.add("cudaLaunchKernel", 140, 150, "cuda_runtime", External_id=6)
    # Autograd's thread has no scopes.
    trace.add(NODE + "AddmmBackward0", 200, 260, lane=2, External_id=7, Sequence_number=3, Fwd_thread_id=1)
    trace.add("AddmmBackward0", 201, 259, lane=2, External_id=8, Sequence_number=3, Fwd_thread_id=1)
    trace.add("aten::mm", 210, 230, lane=2, External_id=9, Input_type=["float"])
    trace.add("aten::mm", 230, 250, lane=2, External_id=10, Input_type=["float"])
    card: dict[str, Any] = {"category": "kernel", "device": number}
    trace.add("Memcpy HtoD (Pinned -> Device)", 90, 160, "gpu_memcpy", lane=70, device=number, External_id=2)
    trace.add("gemm_nn", 150, 300, lane=70, External_id=6, **card)
    trace.add("gemm_nt", 300, 400, lane=70, External_id=9, **card)
    trace.add("gemm_tn", 400, 500, lane=70, External_id=10, **card)
    trace.add("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 450, 600, lane=71, External_id=11, **card)
    return trace


def test_on_a_card_its_own_times_count() -> None:
    recording = on_a_card().read(on_a_card=True)
    rows = {row.kernel: row for row in recording.operators}
    assert rows["gemm_nn"].key == ("forward", "classifier", "aten::linear", "gemm_nn", "", "cuda")
    assert rows["gemm_nt"].key == ("backward", "classifier", "aten::mm", "gemm_nt", "", "cuda")
    assert rows["gemm_nn"].seconds_per_step == pytest.approx(150e-6)
    assert rows["ncclDevKernel_AllReduce_Sum_f32_RING_LL"].operator == UNKNOWN_OPERATOR
    assert recording.phases == pytest.approx(
        {
            Phase.DATA_WAIT: 90e-6,
            Phase.TRANSFER: 60e-6,
            Phase.FORWARD: 150e-6,
            Phase.BACKWARD: 200e-6,
            Phase.ALL_REDUCE: 100e-6,
        }
    )
    assert recording.all_reduce_overlapped_seconds == pytest.approx(50e-6)
    assert recording.notes == ()


def test_a_real_step_on_a_gpu_is_told_by_phase_layer_and_kernel() -> None:
    recording = recording_of(json.loads(gzip.decompress(STEP_ON_H200.read_bytes())), 1, on_a_card=True)
    rows, phases = recording.operators, recording.phases
    assert phases is not None
    assert phases[Phase.FORWARD] == pytest.approx(19.59e-3, rel=0.01)
    assert phases[Phase.BACKWARD] == pytest.approx(39.14e-3, rel=0.01)
    assert phases[Phase.OPTIMIZER] == pytest.approx(0.157e-3, rel=0.02)
    assert math.fsum(row.seconds_per_step for row in rows) == pytest.approx(math.fsum(phases.values()), rel=0.01)
    assert all(row.operator != UNKNOWN_OPERATOR and row.phase is not Phase.OTHER for row in rows)
    for phase, operator in ((Phase.FORWARD, "aten::conv2d"), (Phase.BACKWARD, "aten::convolution_backward")):
        layers = {row.layer for row in rows if (row.phase, row.operator) == (phase, operator)}
        assert len(layers) == 53 and "" not in layers
    longest = max(rows, key=lambda row: row.seconds_per_step)
    assert (longest.layer, longest.operator) == ("stem.norm", "aten::cudnn_batch_norm_backward")
    assert longest.seconds_per_step == pytest.approx(2.324e-3, rel=0.01)


def test_on_a_card_without_a_kernel_the_host_s_times_are_not_taken_for_it() -> None:
    with pytest.raises(ProfileError, match="no kernel"):
        forward().read(on_a_card=True)


def test_the_ranks_of_a_job_have_the_same_rows_whichever_card_each_has() -> None:
    assert on_a_card(3).read(on_a_card=True) == on_a_card(0).read(on_a_card=True)


def test_without_scopes_of_layers_it_says_so() -> None:
    assert "layers are not known" in forward().read(layers=False).notes[0]


def test_a_trace_without_operators_is_an_error() -> None:
    with pytest.raises(ProfileError, match="recorded no operator"):
        Trace().scope(PART + "forward", 0, 10).read()


@pytest.mark.parametrize(
    "trace", [{}, {"traceEvents": 3}, {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "x"}]}]
)
def test_another_format_is_an_error(trace: dict[str, Any]) -> None:
    with pytest.raises(ProfileError, match="not in its format"):
        recording_of(trace, 1)
