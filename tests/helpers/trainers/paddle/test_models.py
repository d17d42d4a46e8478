"""The models' shapes: parameter counts, and where ResNet50's stride stands, which no count shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

paddle: Any = pytest.importorskip("paddle")

from helpers.trainers.common.process import Refused  # noqa: E402
from helpers.trainers.common.settings import Settings  # noqa: E402
from helpers.trainers.contract.models import Model  # noqa: E402
from helpers.trainers.paddle.models import Bottleneck, as_layout, network_of  # noqa: E402
from helpers.trainers.paddle.steps import check_casts  # noqa: E402
from tests.helpers.trainers.specs import spec_of  # noqa: E402


def network(model: Model, *arguments: Any, **named: Any) -> Any:
    return network_of(model.spec, paddle.nn.BatchNorm2D, *arguments, **named)


def _parameters(model: Any) -> int:
    return sum(parameter.size for parameter in model.parameters() if not parameter.stop_gradient)


def _resnet50(channels: int = 3, layout: str = "NCHW") -> Any:
    with paddle.LazyGuard():
        return network(Model.RESNET50, layout=layout, channels=channels)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("channels", "parameters"), [(3, 25_557_032), (4, 25_560_168)])
def test_resnet50_has_its_parameters(channels: int, parameters: int, layout: str) -> None:
    assert _parameters(_resnet50(channels, layout)) == parameters


def test_resnet50_strides_in_the_3x3_convolutions_as_v1_5_does() -> None:
    blocks = [block for block in _resnet50().sublayers() if isinstance(block, Bottleneck)]
    strides = [
        tuple(part.convolution._stride[0] for part in (block.reduce, block.spatial, block.expand)) for block in blocks
    ]
    assert [number for number, stride in enumerate(strides) if stride == (1, 2, 1)] == [3, 7, 13]
    assert set(strides) == {(1, 1, 1), (1, 2, 1)}
    kernels = {tuple(block.spatial.convolution.weight.shape[2:]) for block in blocks}
    assert kernels == {(3, 3)}


def test_images_that_arrive_in_another_layout_are_transposed_by_the_model() -> None:
    images = paddle.rand([2, 3, 5, 7])
    assert as_layout(images, "NCHW", "NCHW") is images
    as_nhwc = as_layout(images, "NCHW", "NHWC")
    assert list(as_nhwc.shape) == [2, 5, 7, 3]
    assert bool((as_layout(as_nhwc, "NHWC", "NCHW") == images).all())


def test_a_program_with_a_convolution_left_in_float32_is_refused() -> None:
    settings = Settings.of(spec_of("paddle-vgg16-amp_o1-bs1-1x1-dali-to_static"))
    cast, left = (_convolution(dtype) for dtype in ("paddle.bfloat16", "paddle.float32"))
    check_casts(_program(cast, cast), settings)
    with pytest.raises(Refused, match=r"did not cast .* 1 of 2 are"):
        check_casts(_program(cast, left), settings)
    with pytest.raises(Refused, match=r"did not cast .* 0 of 0 are"):
        check_casts(_program(), settings)


def _convolution(dtype: str) -> Any:
    return SimpleNamespace(name=lambda: "pd_op.conv2d", operand_source=lambda _: SimpleNamespace(dtype=dtype))


def _program(*operators: Any) -> Any:
    return SimpleNamespace(global_block=lambda: SimpleNamespace(ops=operators))
