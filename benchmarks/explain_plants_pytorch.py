"""The plants of benchmarks.explain in PyTorch: what is made slower in a training, for real."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from benchmarks.explain_changes import change_once, in_model, shortest_seconds

LAYER = "blocks.7.spatial.convolution"
CAST_LAYER = "blocks.0.expand.norm"
# The weights and the stride of LAYER, which no other layer has.
_SHAPE, _STRIDE = [256, 256, 3, 3], [2, 2]


class _Backward:
    """PyTorch's own gradient of a convolution on a CPU, which takes longer in one layer."""

    seconds = 0.0
    library: Any = None


def prepare() -> None:
    """In every process that trains, with and without a plant: the operator is called through Python."""
    operator = torch.ops.aten.convolution_backward.default
    own = torch._C.DispatchKey.CompositeExplicitAutograd

    def slower(*arguments: Any) -> Any:
        gradients = operator._op_dk(own, *arguments)
        if _Backward.seconds and list(arguments[2].shape) == _SHAPE and list(arguments[4]) == _STRIDE:
            _spin(_Backward.seconds)
        return gradients

    _Backward.library = torch.library.Library("aten", "IMPL")
    _Backward.library.impl("convolution_backward", slower, "CPU")
    # The first optimizer imports it, for two seconds: here once for all forks.
    importlib.import_module("torch._dynamo")
    if torch.get_num_threads() == 1:
        _draw_once()


def _draw_once() -> None:
    """The weights are drawn once, for all runs. Not where threads compute: none survives a fork."""
    from helpers.trainers.contract.models import Model
    from helpers.trainers.pytorch import models, steps

    known = Model.RESNET50.spec
    model = models.network_of(known)
    steps.network_of = lambda *_: model


def _spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _slow_backward(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
    _Backward.seconds = plant["seconds"]


def _twice(model: Any, seconds: float) -> None:
    layer = model.get_submodule(LAYER)
    change_once(layer, lambda forward, images: _called_again(forward, images, seconds))


def _called_again(forward: Callable[[Any], Any], images: Any, seconds: float) -> Callable[[Any], Any]:
    with torch.no_grad():
        more = max(1, round(seconds / shortest_seconds(lambda: forward(images))))

    def again(given: Any) -> Any:
        for _ in range(more):
            with torch.no_grad():
                forward(given)
        return forward(given)

    return again


def _cast(model: Any, seconds: float) -> None:
    layer = model.get_submodule(CAST_LAYER)
    change_once(layer, lambda forward, images: _cast_and_back(forward, images, seconds))


def _cast_and_back(forward: Callable[[Any], Any], images: Any, seconds: float) -> Callable[[Any], Any]:
    like = images.detach().clone().requires_grad_()
    times = max(1, round(seconds / shortest_seconds(lambda: like.double().float().sum().backward())))

    def there_and_back(given: Any) -> Any:
        for _ in range(times):
            given = given.double().float()
        return forward(given)

    return there_and_back


def _norm_parts(model: Any, seconds: float) -> None:
    """Batch norms, the largest first, until they take so much longer."""
    left = [seconds]
    for layer in [each for each in model.modules() if isinstance(each, nn.BatchNorm2d)]:
        change_once(layer, lambda forward, images, layer=layer: _in_parts(layer, forward, images, left))


def _in_parts(layer: Any, forward: Callable[[Any], Any], images: Any, left: list[float]) -> Callable[[Any], Any]:
    if left[0] <= 0:
        return forward

    def parts(given: Any) -> Any:
        mean = given.mean((0, 2, 3), keepdim=True)
        centred = given - mean
        variance = (centred * centred).mean((0, 2, 3), keepdim=True)
        scale = layer.weight.view(1, -1, 1, 1) * torch.rsqrt(variance + layer.eps)
        return centred * scale + layer.bias.view(1, -1, 1, 1)

    like = images.detach().clone().requires_grad_()
    both = [shortest_seconds(lambda norm=norm: norm(like).sum().backward()) for norm in (parts, forward)]
    # The gradients of the tries are not the step's.
    layer.zero_grad(set_to_none=True)
    left[0] -= both[0] - both[1]
    return parts


def _fewer_threads(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
    from helpers.trainers.pytorch import device

    switches = device.apply_switches
    device.apply_switches = lambda job, settings, threads: switches(job, settings, max(1, threads // 2))


PLANTS = {
    "slow-backward": _slow_backward,
    "called-twice": in_model("pytorch", _twice),
    "cast": in_model("pytorch", _cast),
    "norm-parts": in_model("pytorch", _norm_parts),
    "half-threads": _fewer_threads,
}
