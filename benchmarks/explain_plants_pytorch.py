"""The plants of benchmarks.explain in PyTorch: what is made slower in a training, for real."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from benchmarks import explain_changes as changes


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
        of = list(arguments[2].shape), list(arguments[4])
        if _Backward.seconds and of == (changes.LAYER_SHAPE, changes.LAYER_STRIDE):
            changes.spin(_Backward.seconds)
        return gradients

    _Backward.library = torch.library.Library("aten", "IMPL")
    _Backward.library.impl("convolution_backward", slower, "CPU")
    # The first optimizer imports it, for two seconds: here once for all forks.
    importlib.import_module("torch._dynamo")
    changes.draw_once("pytorch")


def _slow_backward(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
    _Backward.seconds = plant["seconds"]


def _twice(model: Any, seconds: float) -> None:
    changes.call_again(model.get_submodule(changes.LAYER), seconds, torch.no_grad)


def _cast(model: Any, seconds: float) -> None:
    layer = model.get_submodule(changes.CAST_LAYER)
    changes.cast_and_back(layer, seconds, _alike, lambda each: each.double().float())


def _alike(images: Any) -> Any:
    """A tensor of these values that has a gradient of its own."""
    return images.detach().clone().requires_grad_()


def _norm_parts(model: Any, seconds: float) -> None:
    norms = [each for each in model.modules() if isinstance(each, nn.BatchNorm2d)]
    changes.norms_in_parts(norms, seconds, _alike, "eps", lambda layer: layer.zero_grad(set_to_none=True))


def _fewer_threads(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
    from helpers.trainers.pytorch import device

    switches = device.apply_switches
    device.apply_switches = lambda job, settings, threads: switches(job, settings, max(1, threads // 2))


PLANTS = {
    "slow-backward": _slow_backward,
    "called-twice": changes.in_model("pytorch", _twice),
    "cast": changes.in_model("pytorch", _cast),
    "norm-parts": changes.in_model("pytorch", _norm_parts),
    "half-threads": _fewer_threads,
}
