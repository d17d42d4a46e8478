"""The models' shapes: parameter counts, and where ResNet50's stride stands, which no count shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

paddle: Any = pytest.importorskip("paddle")

from helpers.trainers.paddle_bf16 import bfloat16_convolutions  # noqa: E402
from helpers.trainers.paddle_models import VGG16, Bottleneck, Layers, ResNet50  # noqa: E402


def _parameters(model: Any) -> int:
    return sum(parameter.size for parameter in model.parameters() if not parameter.stop_gradient)


def _resnet50(channels: int = 3, layout: str = "NCHW") -> Any:
    with paddle.LazyGuard():
        return ResNet50(Layers(), layout=layout, channels=channels)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("channels", "parameters"), [(3, 25_557_032), (4, 25_560_168)])
def test_resnet50_has_its_parameters(channels: int, parameters: int, layout: str) -> None:
    assert _parameters(_resnet50(channels, layout)) == parameters


def test_vgg16_has_its_parameters() -> None:
    with paddle.LazyGuard():
        model = VGG16(Layers())
    assert _parameters(model) == 138_357_544


def test_resnet50_strides_in_the_3x3_convolutions_as_v1_5_does() -> None:
    blocks = [block for block in _resnet50().sublayers() if isinstance(block, Bottleneck)]
    strides = [
        tuple(part.convolution._stride[0] for part in (block.reduce, block.spatial, block.expand)) for block in blocks
    ]
    assert [number for number, stride in enumerate(strides) if stride == (1, 2, 1)] == [3, 7, 13]
    assert set(strides) == {(1, 1, 1), (1, 2, 1)}
    kernels = {tuple(block.spatial.convolution.weight.shape[2:]) for block in blocks}
    assert kernels == {(3, 3)}


def test_a_striding_bottleneck_halves_its_image_in_the_3x3_convolution() -> None:
    block = Bottleneck(Layers(), 8, 4, 2, "NCHW")
    block.eval()
    reduced = block.reduce(paddle.zeros([1, 8, 16, 16]))
    assert reduced.shape[2:] == [16, 16]
    assert block.spatial(reduced).shape[2:] == [8, 8]
    assert block(paddle.zeros([1, 8, 16, 16])).shape == [1, 16, 8, 8]


def _program(*operators: Any, types: dict[str, str] | None = None) -> Any:
    block = SimpleNamespace(ops=operators, var=lambda name: SimpleNamespace(dtype=(types or {})[name]))
    return SimpleNamespace(global_block=lambda: block)


def test_bfloat16_convolutions_are_counted_in_pir_programs() -> None:
    def operator(name: str, dtype: str) -> Any:
        return SimpleNamespace(name=lambda: name, operand_source=lambda _: SimpleNamespace(dtype=dtype))

    convolutions = [operator("pd_op.conv2d", "paddle.bfloat16"), operator("pd_op.conv2d", "paddle.float32")]
    assert bfloat16_convolutions(_program(*convolutions, operator("pd_op.relu", "paddle.bfloat16"))) == 1


def test_bfloat16_convolutions_are_counted_in_program_descs() -> None:
    def operator(kind: str, image: str) -> Any:
        return SimpleNamespace(type=kind, input={"Input": [image]}.__getitem__)

    types = {"cast": "paddle.bfloat16", "image": "paddle.float32"}
    operators = [operator("conv2d", "cast"), operator("conv2d", "image"), operator("relu", "cast")]
    assert bfloat16_convolutions(_program(*operators, types=types)) == 1
