"""The plants of benchmarks.explain in PyTorch: what is made slower in a training, for real."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from benchmarks import explain_changes as changes

# The card is kept busy for so many of its clock's cycles (some milliseconds) before something is timed, so that it does
# not wait for the host meanwhile.
_BUSY_CYCLES = 20_000_000


class _Backward:
    """PyTorch's own gradient of a convolution, which takes longer in one layer."""

    seconds = 0.0
    # On a card: how often it is computed again, known from its first call.
    times: int | None = None
    library: Any = None


def prepare() -> None:
    """In every process that trains, with and without a plant: the operator is called through Python."""
    operator = torch.ops.aten.convolution_backward.default
    own = torch._C.DispatchKey.CompositeExplicitAutograd

    def slower(*arguments: Any) -> Any:
        gradients = operator._op_dk(own, *arguments)
        of = list(arguments[2].shape), list(arguments[4])
        if _Backward.seconds and of == (changes.LAYER_SHAPE, changes.LAYER_STRIDE):
            if arguments[0].device.type == "cuda":
                again(lambda: operator._op_dk(own, *arguments))
            else:
                changes.spin(_Backward.seconds)
        return gradients

    def again(act: Callable[[], Any]) -> None:
        if _Backward.times is None:
            _Backward.times = max(1, round(_Backward.seconds / changes.shortest_seconds(act, _seconds)))
        for _ in range(_Backward.times):
            act()

    _Backward.library = torch.library.Library("aten", "IMPL")
    for key in ("CPU", "CUDA"):
        _Backward.library.impl("convolution_backward", slower, key)
    # The first optimizer imports it, for two seconds: here once for all forks.
    importlib.import_module("torch._dynamo")
    changes.draw_once("pytorch")


def _seconds(act: Callable[[], Any]) -> float:
    """By the card's clock in a process that computes on one, else by the thread's."""
    if not torch.cuda.is_initialized():
        return changes.thread_seconds(act)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_BUSY_CYCLES)
    start.record()
    act()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _slow_backward(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
    _Backward.seconds = plant["seconds"]


def _twice(model: Any, seconds: float) -> None:
    changes.call_again(model.get_submodule(changes.LAYER), seconds, torch.no_grad, _seconds)


def _cast(model: Any, seconds: float) -> None:
    layer = model.get_submodule(changes.CAST_LAYER)
    changes.cast_and_back(layer, seconds, _alike, lambda each: each.double().float(), _seconds)


def _alike(images: Any) -> Any:
    """A tensor of these values that has a gradient of its own."""
    return images.detach().clone().requires_grad_()


def _norm_parts(model: Any, seconds: float) -> None:
    norms = [each for each in model.modules() if isinstance(each, nn.BatchNorm2d)]
    changes.norms_in_parts(norms, seconds, _alike, "eps", lambda layer: layer.zero_grad(set_to_none=True), _seconds)


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
