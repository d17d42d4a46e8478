"""The plants of benchmarks.explain in TensorFlow: what is made slower in a training, for real.

A step is traced once as a graph, so the layers are changed while it is traced. How long something takes is tried
outside the graph, with as many threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from benchmarks import explain_changes as changes
from helpers.trainers.tensorflow import device, models, steps

Plant = Mapping[str, Any]
# So many of an operation are timed together.
_TIMED = 8


def prepare() -> None:
    """Nothing: before a fork no operation may run, since TensorFlow's threads do not survive it."""


def _seconds_in_a_graph(act: Callable[[], Any]) -> float:
    """What an act takes of the process's time as a graph of its own; it gives what it computes, else TensorFlow would
    leave it out."""
    with tf.init_scope():
        run = tf.function(act, autograph=False)
        run()
        return changes.shortest_seconds(run, _process_seconds)


def _process_seconds(act: Callable[[], Any]) -> float:
    """Operations run on threads of TensorFlow's own, too."""
    began = time.process_time()
    act()
    return time.process_time() - began


def _alike(images: Any, number: int = 0) -> Any:
    """A tensor of that shape and type outside the graph."""
    with tf.init_scope():
        return tf.random.stateless_normal(images.shape, [1, number], dtype=images.dtype)


def _twice(plant: Plant, rank: int, spec: Mapping[str, Any]) -> None:
    """One convolution is computed again before it. What it gives is stored, else TensorFlow would leave it out."""
    forward, convolve = models.ConvolutionLayer.__call__.__wrapped__, tf.nn.conv2d
    kept: list[Any] = []

    def again(images: Any, kernel: Any, *others: Any, **named: Any) -> Any:
        inputs = [_alike(images, number) for number in range(_TIMED)]
        weights = _alike(kernel)
        took = _seconds_in_a_graph(lambda: [convolve(each, weights, *others, **named) for each in inputs])
        more = max(1, round(plant["seconds"] * _TIMED / took))
        for _ in range(more):
            one = convolve(images, kernel, *others, **named)
            # What comes after it cannot be taken for the same computation.
            with tf.control_dependencies([kept[0].assign(one[0, 0, 0, 0])]):
                images = tf.identity(images)
        _count_convolutions(more)
        return convolve(images, kernel, *others, **named)

    def called(layer: Any, images: Any) -> Any:
        tf.nn.conv2d = again if layer.name == changes.LAYER else convolve
        try:
            return forward(layer, images)
        finally:
            tf.nn.conv2d = convolve

    models.ConvolutionLayer.__call__ = models.in_scope(called)
    network_of = steps.network_of

    def built(*arguments: Any) -> Any:
        # No variable may be made while a graph is traced.
        kept[:] = [tf.Variable(0.0, trainable=False)]
        return network_of(*arguments)

    steps.network_of = built


def _count_convolutions(more: int) -> None:
    """The trainer refuses a graph with another number of convolutions than the model has."""
    check = steps.check_convolutions

    def checked(graph: Any, dtype: Any, layout: str, expected: int) -> dict[str, str]:
        found = check(graph, dtype, layout, expected + more)
        return dict.fromkeys(found, str(expected))

    steps.check_convolutions = checked


def _cast(plant: Plant, rank: int, spec: Mapping[str, Any]) -> None:
    """The input of one batch norm goes to float64 and back; its gradient does, too."""
    forward = models.BatchNorm.__call__.__wrapped__

    def there_and_back(given: Any, times: int) -> Any:
        for _ in range(times):
            given = tf.cast(tf.cast(given, tf.float64), tf.float32)
        return given

    def called(layer: Any, images: Any) -> Any:
        if layer.name == changes.CAST_LAYER:
            like = _alike(images)
            # The gradient goes the same way.
            took = 2 * _seconds_in_a_graph(lambda: there_and_back(like, _TIMED))
            images = there_and_back(images, max(1, round(plant["seconds"] * _TIMED / took)))
        return forward(layer, images)

    models.BatchNorm.__call__ = models.in_scope(called)


def _fewer_threads(plant: Plant, rank: int, spec: Mapping[str, Any]) -> None:
    """The trainer sets the threads before the first operation."""
    cards = device.cards_of

    def halved(*arguments: Any) -> Any:
        set_threads = tf.config.threading.set_intra_op_parallelism_threads
        tf.config.threading.set_intra_op_parallelism_threads = lambda number: set_threads(max(1, number // 2))
        try:
            return cards(*arguments)
        finally:
            tf.config.threading.set_intra_op_parallelism_threads = set_threads

    device.cards_of = halved


PLANTS = {
    "called-twice": _twice,
    "cast": _cast,
    "half-threads": _fewer_threads,
}
