"""What the trees of paddle.profiler mean: phases, layers, waits for the loader, and what a card did."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.trainers.common.card_times import NOT_TRIED, UNKNOWN_OPERATOR
from helpers.trainers.common.step_profiler import ProfileError, Span
from helpers.trainers.contract.step_profile import Phase
from helpers.trainers.paddle.tree import NO_LAYERS, NO_TYPES, recording_of, spans_of


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


# A date in nanoseconds, of which a float holds only every 256th.
DATE = 1_700_000_000_000_000_000


def _node(
    name: str, start: int, end: int, *children: Any, kind: str = "PythonUserDefined", card: Sequence[Any] = ()
) -> Any:
    """A node of the host's tree, in nanoseconds after the date. ``card`` is what it launched: name, start and end."""
    works = [SimpleNamespace(name=work, start_ns=DATE + begins, end_ns=DATE + ends) for work, begins, ends in card]
    return SimpleNamespace(
        name=name, start_ns=DATE + start, end_ns=DATE + end, type=f"TracerEventType.{kind}",
        children_node=list(children), runtime_node=[SimpleNamespace(device_node=[work]) for work in works],
    )  # fmt: skip


# Written by hand after paddle/fluid/platform/profiler/event_node.cc: this was not recorded on a GPU.
def _on_a_card() -> dict[int, Any]:
    """A step of one linear layer on two ranks. The host has gone on before the card begins."""
    forward = _node(
        "linear dygraph",
        120,
        180,
        _node("matmul kernel launch", 130, 170, card=[("gemm_nn", 150, 301)]),
        kind="Operator",
    )
    gradients = [("gemm_nt", 301, 400), ("gemm_tn", 400, 500)]
    marked = _node("perfgate gradient of classifier", 205, 206)
    launch = _node("linear_grad kernel launch", 210, 250, card=gradients)
    reduction = [("concat", 500, 510), ("ncclKernel_AllReduce_RING_LL_Sum_float", 450, 600)]
    buffer = _node("empty kernel launch", 262, 263, kind="DygraphKernelLaunch")
    accumulation = _node("GradNodeAccumulation", 261, 280, buffer, card=reduction, kind="Operator")
    momentum = _node("momentum", 291, 299, card=[("sgd", 600, 640)], kind="Operator")
    main = _node(
        "root", -DATE, 10**12,
        _node("perfgate part data_wait", 0, 100, card=[("cast", 40, 60), ("MEMCPY_HtoD", 90, 160)]),
        _node("perfgate part forward", 100, 200, _node("perfgate layer classifier", 110, 190, forward)),
        _node(
            "perfgate part backward", 200, 290, _node("LinearGradNode", 200, 260, marked, launch, kind="Operator"),
            accumulation,
        ),
        _node("perfgate part optimizer", 290, 300, momentum),
    )  # fmt: skip
    # DALI's thread has no span of Paddle's.
    return {1: main, 2: _node("root", -DATE, 10**12, card=[("normalize", 0, 40)])}


def test_on_a_card_its_own_times_count() -> None:
    spans, launched = spans_of(_on_a_card())
    recording = recording_of(spans, 1, launched)
    rows = {row.kernel: row for row in recording.operators}
    assert rows["gemm_nn"].key == ("forward", "classifier", "linear", "gemm_nn", "", "cuda")
    assert rows["gemm_nt"].key == ("backward", "classifier", "linear_grad", "gemm_nt", "", "cuda")
    assert rows["gemm_nn"].seconds_per_step == pytest.approx(151e-9)
    assert rows["sgd"].key == ("optimizer", "", "momentum", "sgd", "", "cuda")
    assert rows["MEMCPY_HtoD"].key == ("transfer", "", UNKNOWN_OPERATOR, "MEMCPY_HtoD", "", "cuda")
    assert rows["normalize"].key == ("other", "", UNKNOWN_OPERATOR, "normalize", "", "cuda")
    assert rows["concat"].key == ("backward", "", "all_reduce", "concat", "", "cuda")
    assert rows["ncclKernel_AllReduce_RING_LL_Sum_float"].phase is Phase.ALL_REDUCE
    assert recording.phases == pytest.approx(
        {
            # While the card casts the batch, it waits for nothing.
            Phase.OTHER: 60e-9,
            Phase.DATA_WAIT: 30e-9,
            Phase.TRANSFER: 60e-9,
            Phase.FORWARD: 151e-9,
            Phase.BACKWARD: 209e-9,
            Phase.ALL_REDUCE: 90e-9,
            Phase.OPTIMIZER: 40e-9,
        }
    )
    assert recording.all_reduce_overlapped_seconds == pytest.approx(60e-9)
    assert recording.notes == (NO_TYPES, NOT_TRIED)


def test_the_kernels_of_a_program_have_the_phases_of_their_operators_on_whatever_thread() -> None:
    threads = {
        1: _node("root", -DATE, 10**12, _node("perfgate part other", 0, 100)),
        2: _node(
            "root", -DATE, 10**12,
            _node("pd_op.conv2d", 10, 20, card=[("implicit_gemm", 30, 60)], kind="Operator"),
            _node("pd_op.conv2d_grad", 20, 30, card=[("wgrad", 60, 100)], kind="Operator"),
            _node("pd_op.check_finite_and_unscale_", 30, 40, card=[("check", 100, 110)], kind="Operator"),
            _node("pd_op.merged_momentum_", 40, 50, card=[("momentum", 110, 120)], kind="Operator"),
        ),
    }  # fmt: skip
    spans, launched = spans_of(threads)
    recording = recording_of(spans, 2, launched=launched)
    assert recording.phases == pytest.approx({Phase.FORWARD: 15e-9, Phase.BACKWARD: 20e-9, Phase.OPTIMIZER: 10e-9})
    assert recording.notes == (NO_TYPES, NO_LAYERS, NOT_TRIED)


def test_a_program_that_the_training_s_thread_computes_has_the_phases_of_its_operators() -> None:
    whole = Span("main", "perfgate part other", 0.0, 10.0, "PythonUserDefined")
    spans = [whole, *_operator("main", "conv2d", 1.0, 2.0), *_operator("main", "conv2d_grad", 4.0, 3.0)]
    recording = recording_of(spans, 1)
    assert {row.operator: row.phase for row in recording.operators} == {
        "conv2d": Phase.FORWARD, "conv2d_grad": Phase.BACKWARD,
    }  # fmt: skip
    assert (recording.phases or {})[Phase.BACKWARD] == 3.0


def test_what_a_program_computes_after_a_step_s_first_gradient_belongs_to_its_backward_pass() -> None:
    spans: list[Span] = []
    for start in (0.0, 20.0):
        spans.append(Span("main", "perfgate part data_wait", start, start + 1.0, "PythonUserDefined"))
        spans.append(Span("main", "perfgate part other", start + 1.0, start + 19.0, "PythonUserDefined"))
        names = ["cast", "conv2d", "conv2d_grad", "mean", "cast", "momentum_", "add_n"]
        names += ["conv2d_grad", "fetch", "fetch_v2"]
        for at, name in enumerate(names):
            spans += _operator("main" if at % 2 else "other", name, start + 2.0 + at, 1.0)
    calls = {(row.phase, row.operator): row.calls_per_step for row in recording_of(spans, 2).operators}
    assert calls == {
        (Phase.FORWARD, "cast"): 1.0,
        (Phase.FORWARD, "conv2d"): 1.0,
        (Phase.FORWARD, "mean"): 1.0,
        (Phase.BACKWARD, "conv2d_grad"): 2.0,
        (Phase.BACKWARD, "cast"): 1.0,
        (Phase.BACKWARD, "add_n"): 1.0,
        (Phase.OPTIMIZER, "momentum"): 1.0,
        (Phase.OTHER, "fetch"): 1.0,
        (Phase.OTHER, "fetch_v2"): 1.0,
    }


def test_on_a_card_without_a_kernel_the_host_s_times_are_not_taken_for_it() -> None:
    with pytest.raises(ProfileError, match="no kernel"):
        recording_of(_operator("main", "conv2d", 0.0, 1.0), 1, launched=[])
