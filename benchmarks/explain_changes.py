"""What the plants of benchmarks.explain share in every framework: the changes of a layer, the weights that all runs
have, how long an act takes, and how a thread computes for so long."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from helpers.trainers.contract.models import Model

LAYER, CAST_LAYER = "blocks.7.spatial.convolution", "blocks.0.expand.norm"
# The weights and the stride of LAYER, which no other layer has.
LAYER_SHAPE, LAYER_STRIDE = [256, 256, 3, 3], [2, 2]
_TRIES = 5
Forward = Callable[[Any], Any]
# How long an act takes, in seconds of what computes it.
Timed = Callable[[Callable[[], Any]], float]


def thread_seconds(act: Callable[[], Any]) -> float:
    """How long an act takes by the calling thread's own clock."""
    began = time.thread_time()
    act()
    return time.thread_time() - began


def draw_once(framework: str, *norm: Any) -> None:
    """The weights are drawn once, for all runs. Not where threads compute: none survives a fork."""
    if os.environ["OMP_NUM_THREADS"] != "1":
        return
    models, steps = (importlib.import_module(f"helpers.trainers.{framework}.{name}") for name in ("models", "steps"))
    model = models.network_of(Model.RESNET50.spec, *norm)
    steps.network_of = lambda *_: model


def call_again(layer: Any, seconds: float, no_gradient: Any, timed: Timed = thread_seconds) -> None:
    """The layer computes the same again before it, without gradients, as often as takes so many seconds."""

    def changed(forward: Forward, images: Any) -> Forward:
        def alone(given: Any) -> None:
            with no_gradient():
                forward(given)

        more = max(1, round(seconds / shortest_seconds(lambda: alone(images), timed)))

        def again(given: Any) -> Any:
            for _ in range(more):
                alone(given)
            return forward(given)

        return again

    _change_once(layer, changed)


def cast_and_back(layer: Any, seconds: float, alike: Forward, cast: Forward, timed: Timed = thread_seconds) -> None:
    """The layer's input goes through ``cast`` as often as takes so many seconds with the way back.

    ``alike`` makes a tensor of the same values that has a gradient of its own.
    """

    def changed(forward: Forward, images: Any) -> Forward:
        like = alike(images)
        times = max(1, round(seconds / shortest_seconds(lambda: cast(like).sum().backward(), timed)))

        def there_and_back(given: Any) -> Any:
            for _ in range(times):
                given = cast(given)
            return forward(given)

        return there_and_back

    _change_once(layer, changed)


def norms_in_parts(
    norms: Iterable[Any],
    seconds: float,
    alike: Forward,
    epsilon: str,
    forget: Callable[[Any], None],
    timed: Timed = thread_seconds,
) -> None:
    """Batch norms, from the first one, in their parts, until they take so much longer.

    ``epsilon`` is the attribute's name; ``forget`` clears a layer's gradients.
    """
    left = [seconds]

    def changed(layer: Any, forward: Forward, images: Any) -> Forward:
        if left[0] <= 0:
            return forward
        parts = _parts_of(layer, getattr(layer, epsilon))
        like = alike(images)
        both = [shortest_seconds(lambda norm=norm: norm(like).sum().backward(), timed) for norm in (parts, forward)]
        # The gradients of the tries are not the step's.
        forget(layer)
        left[0] -= both[0] - both[1]
        return parts

    for layer in norms:
        _change_once(layer, partial(changed, layer))


def _parts_of(layer: Any, epsilon: float) -> Forward:
    def parts(given: Any) -> Any:
        mean = given.mean(axis=[0, 2, 3], keepdim=True)
        centred = given - mean
        variance = (centred * centred).mean(axis=[0, 2, 3], keepdim=True)
        scale = layer.weight.reshape([1, -1, 1, 1]) * (variance + epsilon).rsqrt()
        return centred * scale + layer.bias.reshape([1, -1, 1, 1])

    return parts


def _change_once(layer: Any, changed: Callable[[Forward, Any], Forward]) -> None:
    """At its first call the layer's forward becomes what ``changed`` makes of it and of the first images."""
    forward = layer.forward

    def first(images: Any) -> Any:
        layer.forward = changed(forward, images)
        return layer.forward(images)

    layer.forward = first


def spin(seconds: float) -> None:
    """Compute for so long, by the thread's own clock: what others do on the core does not count."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def shortest_seconds(act: Callable[[], Any], timed: Timed) -> float:
    """The shortest of some tries."""
    return min(timed(act) for _ in range(_TRIES))


def in_model(
    framework: str, change: Callable[[Any, float], None]
) -> Callable[[Mapping[str, Any], int, Mapping[str, Any]], None]:
    """A plant that changes the model that the framework's trainer builds, by so many seconds a step."""

    def arm(plant: Mapping[str, Any], rank: int, spec: Mapping[str, Any]) -> None:
        steps = importlib.import_module(f"helpers.trainers.{framework}.steps")
        build = steps.build_model

        def built(*arguments: Any) -> Any:
            model = build(*arguments)
            change(model, plant["seconds"])
            return model

        steps.build_model = built

    return arm
