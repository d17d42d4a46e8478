"""The plants of benchmarks.explain in MXNet: what is made slower in a training, for real.

A network is traced once as a graph, so a layer is changed while it is traced. How long something takes is tried outside
the graph, with the images that the layer is given.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

# MXNet reads them once. The first the trainer sets for profiled steps, here too late. With the second it would compute
# only once what is computed again.
os.environ.update(MXNET_EXEC_BULK_EXEC_TRAIN="0", MXNET_ELIMINATE_COMMON_EXPR="0")

import mxnet as mx
from mxnet.gluon import nn

from benchmarks import explain_changes as changes
from helpers.trainers.contract import models
from helpers.trainers.mxnet import steps

# So many of an operation are timed together.
_TIMED = 8
# A layer's operators on its images: ``F`` makes the graph, or computes at once.
Forward = Callable[..., Any]
# The layer, its operators, its images, and the seconds that are left of the plant; returns the changed operators, and
# how many of the seconds they take.
Change = Callable[[Any, Forward, Any, float], "tuple[Forward, float]"]


def prepare() -> None:
    """Nothing: before a fork no operation may run, since the threads of MXNet's engine do not survive it."""


def _seconds(act: Callable[[], Any]) -> float:
    """Operators run on threads of MXNet's own."""
    mx.nd.waitall()
    began = time.process_time()
    act()
    mx.nd.waitall()
    return time.process_time() - began


def _in_layers(layers_of: Callable[[Any], Sequence[Any]], change: Change) -> Callable[..., None]:
    """A plant that changes these layers of the network, in their order, until its seconds are used up."""

    def arm(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
        build = steps.build_network

        def built(job: Any, settings: Any, contexts: Sequence[Any]) -> Any:
            network = build(job, settings, contexts)
            given = _given(network, layers_of(network), job.case.batch_size_per_card, contexts[0])
            left = plant["seconds"]
            for layer, images in given:
                if left <= 0:
                    break
                layer.hybrid_forward, used = change(layer, layer.hybrid_forward, images, left)
                left -= used
            network.hybridize(static_alloc=settings.static_alloc, static_shape=settings.static_shape)
            return network

        steps.build_network = built

    return arm


def _given(network: Any, layers: Sequence[Any], batch: int, context: Any) -> list[tuple[Any, Any]]:
    """Each layer, and the images that it is given if the network computes without a graph."""
    network.hybridize(active=False)
    found: list[tuple[Any, Any]] = []
    hooks = [each.register_forward_pre_hook(lambda layer, inputs: found.append((layer, inputs[0]))) for each in layers]
    network(mx.nd.random.normal(shape=(batch, 3, models.IMAGE_SIZE, models.IMAGE_SIZE), ctx=context))
    mx.nd.waitall()
    for each in hooks:
        each.detach()
    return found


def _named(name: str) -> Callable[[Any], Sequence[Any]]:
    """The layer of that name."""

    def layers_of(network: Any) -> Sequence[Any]:
        layer = network
        for part in name.split("."):
            layer = layer[int(part)] if part.isdigit() else getattr(layer, part)
        return [layer]

    return layers_of


def _norms(network: Any) -> Sequence[Any]:
    return [each for each in steps.blocks_of(network) if isinstance(each, nn.BatchNorm)]


def _arguments_of(layer: Any, context: Any) -> dict[str, Any]:
    return {name: each.data(context) for name, each in layer._reg_params.items()}


def _twice(layer: Any, forward: Forward, images: Any, seconds: float) -> tuple[Forward, float]:
    """The convolution is computed again before it. What it gives is added, times 0, to the images, else MXNet would
    leave it out."""
    arguments = _arguments_of(layer, images.context)
    took = changes.shortest_seconds(lambda: [forward(mx.nd, images, **arguments) for _ in range(_TIMED)], _seconds)
    more = max(1, round(seconds * _TIMED / took))
    _count_convolutions(more)

    def again(F: Any, images: Any, **arguments: Any) -> Any:
        alone = F.BlockGrad(images)
        weights = {name: F.BlockGrad(each) for name, each in arguments.items()}
        kept = 0
        for _ in range(more):
            kept = F.slice_axis(forward(F, alone, **weights), axis=1, begin=0, end=1) + kept
        # MXNet crashes if a slice takes several axes at once.
        for axis in (2, 3):
            kept = F.slice_axis(kept, axis=axis, begin=0, end=1)
        return forward(F, F.broadcast_add(images, kept * 0), **arguments)

    return again, seconds


def _count_convolutions(more: int) -> None:
    """The trainer refuses a graph with another number of convolutions than the model has."""
    check = steps.check_convolutions

    def checked(found: Any, settings: Any, of: int) -> dict[str, str]:
        return dict.fromkeys(check(found, settings, of + more), str(of))

    steps.check_convolutions = checked


def _cast(layer: Any, forward: Forward, images: Any, seconds: float) -> tuple[Forward, float]:
    """The layer's input goes to float64 and back; its gradient does, too."""

    def there_and_back(F: Any, images: Any, times: int) -> Any:
        for _ in range(times):
            images = F.cast(F.cast(images, dtype="float64"), dtype="float32")
        return images

    # The gradient goes the same way.
    took = 2 * changes.shortest_seconds(lambda: there_and_back(mx.nd, images, _TIMED), _seconds)
    times = max(1, round(seconds * _TIMED / took))
    return lambda F, images, **arguments: forward(F, there_and_back(F, images, times), **arguments), seconds


def _norm_parts(layer: Any, forward: Forward, images: Any, seconds: float) -> tuple[Forward, float]:
    """The batch norm is computed by its parts, of which more are as long as batch norms have to be changed."""
    epsilon = layer._kwargs["eps"]
    arguments = _arguments_of(layer, images.context)

    def parts(F: Any, images: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        centred = F.broadcast_sub(images, F.mean(images, axis=(0, 2, 3), keepdims=True))
        variance = F.mean(F.square(centred), axis=(0, 2, 3), keepdims=True)
        wide = {"shape": (1, -1, 1, 1)}
        scale = F.broadcast_mul(F.reshape(gamma, **wide), F.rsqrt(variance + epsilon))
        return F.broadcast_add(F.broadcast_mul(centred, scale), F.reshape(beta, **wide))

    def trained(norm: Forward) -> None:
        like = images.copy()
        like.attach_grad()
        with mx.autograd.record():
            normed = norm(mx.nd, like, **arguments)
        normed.backward()

    apart, whole = (changes.shortest_seconds(partial(trained, norm), _seconds) for norm in (parts, forward))
    return parts, apart - whole


PLANTS = {
    "called-twice": _in_layers(_named(changes.LAYER), _twice),
    "cast": _in_layers(_named(changes.CAST_LAYER), _cast),
    "norm-parts": _in_layers(_norms, _norm_parts),
}
