"""What the plants of benchmarks.explain share in every framework: how a layer is changed, and how long an act takes."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_TRIES = 5


def change_once(layer: Any, changed: Callable[..., Callable[[Any], Any]]) -> None:
    """At its first call the layer's forward becomes what ``changed`` makes of it and of the first images."""
    forward = layer.forward

    def first(images: Any) -> Any:
        layer.forward = changed(forward, images)
        return layer.forward(images)

    layer.forward = first


def shortest_seconds(act: Callable[[], Any]) -> float:
    """The shortest of some tries, in seconds of the calling thread."""
    return min(_tries(act))


def _tries(act: Callable[[], Any]) -> Iterator[float]:
    for _ in range(_TRIES):
        began = time.thread_time()
        act()
        yield time.thread_time() - began


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
