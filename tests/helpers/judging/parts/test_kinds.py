"""In what an operator differs that is still in its layer: its kernel, its data types, its device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from helpers.judging.parts.differences import Difference, Kind, kind_of
from helpers.judging.parts.explanation import explain
from helpers.judging.parts.step_parts import (
    Amount,
    ComparedPart,
    Exchange,
    Grain,
    Part,
    ProfiledPair,
    ProfiledRun,
    Variant,
)
from helpers.report.explanation import difference_text
from helpers.trainers.contract.step_profile import OperatorRow, Phase, StepProfile

# Operator, kernel, data types and device.
Row = tuple[str, str, str, str]
USUAL: Row = ("conv2d", "gemm", "float16", "gpu")


def _run(changed: Sequence[Row], layers: Sequence[int], random: np.random.Generator) -> ProfiledRun:
    """Eight layers with a convolution; those of ``layers`` have other rows, which take 3 ms more."""
    rows = tuple(
        OperatorRow(Phase.FORWARD, f"blocks.{at}", *row, 1.0, seconds * random.normal(1.0, 0.01))
        for at in range(8)
        for row, seconds in ([(each, 0.013 / len(changed)) for each in changed] if at in layers else [(USUAL, 0.01)])
    )
    step = sum(row.seconds_per_step for row in rows)
    return ProfiledRun(step, (StepProfile("pytorch", 0, 5, step, step, {Phase.FORWARD: step}, 0.0, rows, 1, "p"),))


def _first(changed: Sequence[Row], layers: Sequence[int] = (3,)) -> Difference:
    random = np.random.default_rng(1)
    pairs = [ProfiledPair(_run((), (), random), _run(changed, layers, random)) for _ in range(8)]
    return explain(pairs).named[0]


@pytest.mark.parametrize(
    ("changed", "kind", "text"),
    [
        ([("conv2d", "naive", "float16", "gpu")], Kind.REPLACED, "conv2d [gemm → naive]"),
        ([("conv2d", "gemm", "float32", "gpu")], Kind.OTHER_TYPES, "conv2d [float16 → float32]"),
        ([("conv2d", "naive", "float16", "cpu")], Kind.OTHER_DEVICE, "conv2d [gemm → naive; gpu → cpu]"),
        ([("conv2d", "gemm", "", "gpu")], Kind.OTHER_TYPES, "conv2d [float16 → not told]"),
        ([("cast", "", "float16", "gpu"), ("conv2d", "gemm", "float16", "gpu")], Kind.MOVED, "cast"),
        ([("conv2d_naive", "", "float16", "gpu")], Kind.NEW, "conv2d_naive"),
    ],
)
def test_what_is_other_of_an_operator_is_said(changed: list[Row], kind: Kind, text: str) -> None:
    first = _first(changed)
    assert (first.kind, difference_text(first)) == (kind, f"{text} of blocks.3 (forward)")


@pytest.mark.parametrize(
    ("operator", "kernel", "kind"),
    [
        ("cast", "", Kind.MOVED),
        ("transpose", "", Kind.MOVED),
        # As the readers of PyTorch's and TensorFlow's profiles name them.
        ("aten::to", "aten::copy_", Kind.MOVED),
        ("aten::contiguous", "aten::copy_", Kind.MOVED),
        ("aten::conv2d", "void cudnn::ops::nchwToNhwcKernel<float>", Kind.MOVED),
        ("Cast", "", Kind.MOVED),
        ("convert_element_type", "", Kind.MOVED),
        ("broadcast_add", "", Kind.NEW),
        ("conv2d_transpose", "", Kind.NEW),
        ("aten::conv_transpose2d", "", Kind.NEW),
        ("aten::copysign", "", Kind.NEW),
        ("aten::mm", "cutlass::layout::gemm", Kind.NEW),
    ],
)
def test_what_came_new_and_only_moves_values_is_called_so(operator: str, kernel: str, kind: Kind) -> None:
    part, came = Part(Grain.ROW, Phase.FORWARD, "blocks.3", operator), Exchange(None, Variant(kernel))
    none, some = Amount(), Amount(0.001, 1.0)
    assert kind_of(ComparedPart(part, (none, none), (some, some), came), none, some, 0.001) is kind
