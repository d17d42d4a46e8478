"""What the spans of TensorFlow's profiler say, on spans named as it names them."""

from __future__ import annotations

import pytest

from helpers.trainers.common.card_times import NOT_TRIED, UNKNOWN_OPERATOR
from helpers.trainers.common.device_time import ProfileError
from helpers.trainers.common.step_profile import Span
from helpers.trainers.contract.step_profile import HOST, Phase
from helpers.trainers.tensorflow.operations import NOT_TOLD, PART, Kernel, recording_of, recording_of_kernels

LAYERS = {"blocks.0", "blocks.0.reduce.convolution", "classifier"}


def spans(*operations: str) -> list[Span]:
    """One operation after the other, each of a second, in a step of ten after a wait of two."""
    named = [Span("compute", name, 2.0 + at, 3.0 + at) for at, name in enumerate(operations)]
    parts = [Span("python", PART + "data_wait", 0.0, 2.0), Span("python", PART + "other", 2.0, 12.0)]
    # Not an operation.
    return [*parts, Span("compute", "ExecutorState::Process", 2.0, 11.0), *named]


@pytest.mark.parametrize(
    ("name", "phase", "layer", "operator"),
    [
        ("blocks.0/blocks.0.reduce.convolution/Conv2D:_FusedConv2D", "forward", "blocks.0.reduce.convolution",
         "_FusedConv2D"),
        ("blocks.0/Relu:Relu", "forward", "blocks.0", "Relu"),
        ("Mean/reduction_indices:Mean", "forward", "", "Mean"),
        ("gradient_tape/classifier/MatMul/MatMul_1:MatMul", "backward", "classifier", "MatMul"),
        ("AddN_3:AddN", "backward", "", "AddN"),
        ("optimizer/mul_7:Mul", "optimizer", "", "Mul"),
        ("optimizer/ResourceApplyMomentum_9:ResourceApplyMomentum", "optimizer", "", "ResourceApplyMomentum"),
        ("replica_1/CollectiveReduceV2:CollectiveReduceV2", "all_reduce", "", "CollectiveReduceV2"),
    ],
)  # fmt: skip
def test_an_operation_s_name_tells_its_phase_and_layer(name: str, phase: str, layer: str, operator: str) -> None:
    rows = [row for row in recording_of(spans(name), LAYERS, 1).operators if row.operator != HOST]
    assert [(row.phase.value, row.layer, row.operator) for row in rows] == [(phase, layer, operator)]
    assert rows[0].seconds_per_step == pytest.approx(1.0)


def test_the_name_of_onednn_s_operation_is_the_kernel() -> None:
    (row,) = (row for row in recording_of(spans("x/Conv2D:_MklNativeConv2D"), LAYERS, 1).operators if row.kernel)
    assert (row.operator, row.kernel) == ("Conv2D", "_MklNativeConv2D")


def test_what_the_operations_leave_of_a_step_is_the_host_s() -> None:
    recording = recording_of(spans("Relu:Relu", "gradient_tape/Relu/ReluGrad:ReluGrad"), LAYERS, 2)
    assert recording.phases == pytest.approx({Phase.FORWARD: 0.5, Phase.BACKWARD: 0.5, Phase.DATA_WAIT: 1.0})
    host = {row.phase: row.seconds_per_step for row in recording.operators if row.operator == HOST}
    assert host == pytest.approx({Phase.HOST_GAP: 4.0, Phase.DATA_WAIT: 1.0})


def test_a_profile_without_operations_is_an_error() -> None:
    with pytest.raises(ProfileError, match="no operation"):
        recording_of(spans(), LAYERS, 1)


# Written by hand after xla/backends/profiler/gpu/cupti_collector.cc: this was not recorded on a GPU.
def kernels() -> list[Kernel]:
    layer = "blocks.0/blocks.0.reduce.convolution"
    gradient = f"gradient_tape/{layer}/Conv2DBackpropFilter:Conv2DBackpropFilter"
    return [
        Kernel("stream 7", "MemcpyH2D", 1.5, 3.0, operation="IteratorGetNext:IteratorGetNext"),
        Kernel("stream 8", "implicit_gemm", 3.0, 5.0, operation=f"{layer}/Conv2D:Conv2D"),
        Kernel("stream 8", "wgrad", 5.0, 8.0, operation=gradient),
        Kernel("stream 9", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 7.0, 9.0, operation=""),
        Kernel("stream 8", "momentum", 9.0, 9.5, operation="optimizer/ResourceApplyMomentum:ResourceApplyMomentum"),
    ]


def test_on_a_card_its_own_times_count() -> None:
    recording = recording_of_kernels(kernels(), spans("Relu:Relu"), LAYERS, 1)
    rows = {row.kernel: row for row in recording.operators}
    convolution = "blocks.0.reduce.convolution"
    assert rows["implicit_gemm"].key == ("forward", convolution, "Conv2D", "implicit_gemm", "", "cuda")
    assert rows["wgrad"].key == ("backward", convolution, "Conv2DBackpropFilter", "wgrad", "", "cuda")
    assert rows["ncclDevKernel_AllReduce_Sum_f32_RING_LL"].operator == UNKNOWN_OPERATOR
    assert recording.phases == pytest.approx(
        {
            Phase.DATA_WAIT: 1.5,
            Phase.TRANSFER: 1.5,
            Phase.FORWARD: 2.0,
            Phase.BACKWARD: 3.0,
            Phase.ALL_REDUCE: 1.0,
            Phase.OPTIMIZER: 0.5,
        }
    )
    assert recording.all_reduce_overlapped_seconds == pytest.approx(1.0)
    assert recording.notes == (NOT_TOLD, NOT_TRIED)


def test_on_a_card_without_a_kernel_the_host_s_times_are_not_taken_for_it() -> None:
    with pytest.raises(ProfileError, match="no kernel"):
        recording_of_kernels([], spans("Relu:Relu"), LAYERS, 1)


@pytest.mark.parametrize("operation", ["", "cluster_3_1/xla_run:_XlaRun"])
def test_kernels_of_a_step_that_xla_compiles_are_of_no_operation(operation: str) -> None:
    # The batch is copied by an operation of its own.
    copied, *_ = kernels()
    fusion = Kernel("stream 7", "fusion_3", 3.0, 4.0, operation=operation)
    with pytest.raises(ProfileError, match="XLA compiles it"):
        recording_of_kernels([copied, fusion], spans(), LAYERS, 1)


def test_what_a_collective_copies_is_reduction_and_takes_no_computation_s_time() -> None:
    collective = Kernel("stream 9", "MemcpyD2D", 3.0, 4.0, operation="CollectiveReduceV2:CollectiveReduceV2")
    convolution = Kernel("stream 8", "implicit_gemm", 3.0, 5.0, operation="blocks.0/Conv2D:Conv2D")
    recording = recording_of_kernels([collective, convolution], spans(), LAYERS, 1)
    assert (recording.phases or {})[Phase.FORWARD] == pytest.approx(2.0)
    assert recording.all_reduce_overlapped_seconds == pytest.approx(1.0)
