"""The networks of the models (contract/models.py) for TensorFlow, with Paddle's weight names and initial values.

They consist of variables and functions, without Keras. Images must arrive in the layout and type of the network.
Convolutions and products are computed in that type; weights are float32 and cast when they are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Set, Type

import tensorflow as tf

from helpers.trainers.contract.errors import entry_of
from helpers.trainers.contract.models import (
    BottleneckLayers,
    Connected,
    Convolution,
    ModelSpec,
    Residual,
    ResidualLayers,
)


@dataclass(frozen=True)
class NetworkForm:
    """The variable parts of a network."""

    # NHWC or NCHW.
    layout: str = "NHWC"
    channels: int = 3
    seed: int = 1234
    # For batch norm: the share of the moving mean and variance that a step keeps, and the number added to the variance.
    norm_momentum: float = 0.9
    norm_epsilon: float = 1e-5
    # The type of the weights.
    dtype: Any = tf.float32


class Weights:
    """Makes and keeps a network's variables."""

    def __init__(self, form: NetworkForm) -> None:
        self.form = form
        # The trained variables by Paddle's names, in the order of the layers.
        self.trained: Dict[str, Any] = {}
        # The names of those that belong to batch norm.
        self.norms: Set[str] = set()
        self.moving: List[Any] = []

    def normal(self, name: str, shape: List[int], deviation: float) -> Any:
        return self._train(name, tf.random.stateless_normal(shape, self._seed(), 0.0, deviation, self.form.dtype))

    def uniform(self, name: str, shape: List[int], most: float) -> Any:
        return self._train(name, tf.random.stateless_uniform(shape, self._seed(), -most, most, self.form.dtype))

    def constant(self, name: str, size: int, value: float) -> Any:
        return self._train(name, tf.fill([size], tf.cast(value, self.form.dtype)))

    def statistic(self, size: int, value: float) -> Any:
        """A moving statistic. Each card has its own, over its own batches."""
        variable = tf.Variable(
            tf.fill([size], tf.cast(value, self.form.dtype)),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )
        self.moving.append(variable)
        return variable

    def _seed(self) -> List[int]:
        return [self.form.seed, len(self.trained)]

    def _train(self, name: str, first: Any) -> Any:
        self.trained[name] = tf.Variable(first)
        return self.trained[name]


class ConvolutionLayer:
    """A convolution without bias."""

    def __init__(self, weights: Weights, name: str, layer: Convolution) -> None:
        self._layer = layer
        self._layout = weights.form.layout
        shape = [layer.kernel, layer.kernel, layer.inputs, layer.outputs]
        # He's normal distribution over the inputs.
        self._kernel = weights.normal(f"{name}.weight", shape, math.sqrt(2.0 / (layer.kernel**2 * layer.inputs)))

    def __call__(self, images: Any) -> Any:
        layer, padding = self._layer, "SAME"
        if layer.stride > 1:
            # SAME would pad more below than above. So images are padded separately, as in the publishers' scripts; with
            # explicit padding in the convolution, its gradient in bfloat16 takes forty times as long on a CPU.
            images, padding = padded(images, layer.kernel // 2, self._layout), "VALID"
        kernel = tf.cast(self._kernel, images.dtype)
        return tf.nn.conv2d(images, kernel, layer.stride, padding, data_format=self._layout)


def padded(images: Any, border: int, layout: str) -> Any:
    """Images with ``border`` zeros around them."""
    if border == 0:
        return images
    space, none = [border, border], [0, 0]
    return tf.pad(images, [none, space, space, none] if layout == "NHWC" else [none, none, space, space])


class BatchNorm:
    """Batch norm. It normalises by the batch, and keeps moving statistics, which training does not use."""

    def __init__(self, weights: Weights, name: str, size: int) -> None:
        self._form = weights.form
        self._scale = weights.constant(f"{name}.weight", size, 1.0)
        self._offset = weights.constant(f"{name}.bias", size, 0.0)
        weights.norms.update((f"{name}.weight", f"{name}.bias"))
        self._mean, self._variance = weights.statistic(size, 0.0), weights.statistic(size, 1.0)

    def __call__(self, images: Any) -> Any:
        normed, mean, variance = normalised(images, self._scale, self._offset, self._mean, self._variance, self._form)
        self._mean.assign(mean)
        self._variance.assign(variance)
        return normed


def normalised(images: Any, scale: Any, offset: Any, mean: Any, variance: Any, form: NetworkForm) -> Any:
    """Images with mean ``offset`` and deviation ``scale`` over the batch, and the updated moving mean and variance.

    In half precision the statistics are float32.
    """
    fused = tf.raw_ops.FusedBatchNormV3(
        x=images, scale=scale, offset=offset, mean=mean, variance=variance, epsilon=form.norm_epsilon,
        exponential_avg_factor=1.0 - form.norm_momentum, data_format=form.layout, is_training=True,
    )  # fmt: skip
    return fused.y, fused.batch_mean, fused.batch_variance


class ConvolutionNorm:
    """Convolution without bias, and batch norm."""

    def __init__(self, weights: Weights, name: str, layer: Convolution) -> None:
        self._convolution = ConvolutionLayer(weights, f"{name}.convolution", layer)
        self._norm = BatchNorm(weights, f"{name}.norm", layer.outputs)

    def __call__(self, images: Any) -> Any:
        return self._norm(self._convolution(images))


class Bottleneck:
    """1 x 1, 3 x 3 (with the stride), 1 x 1, around a shortcut."""

    def __init__(self, weights: Weights, name: str, layers: BottleneckLayers) -> None:
        self._reduce = ConvolutionNorm(weights, f"{name}.reduce", layers.reduce)
        self._spatial = ConvolutionNorm(weights, f"{name}.spatial", layers.spatial)
        self._expand = ConvolutionNorm(weights, f"{name}.expand", layers.expand)
        self._shortcut = None
        if layers.shortcut is not None:
            self._shortcut = ConvolutionNorm(weights, f"{name}.shortcut", layers.shortcut)

    def __call__(self, images: Any) -> Any:
        shortcut = images if self._shortcut is None else self._shortcut(images)
        inner = tf.nn.relu(self._spatial(tf.nn.relu(self._reduce(images))))
        return tf.nn.relu(self._expand(inner) + shortcut)


class ConnectedLayer:
    def __init__(self, weights: Weights, name: str, layer: Connected) -> None:
        # Glorot's uniform distribution.
        most = math.sqrt(6.0 / (layer.inputs + layer.outputs))
        self._matrix = weights.uniform(f"{name}.weight", [layer.inputs, layer.outputs], most)
        self._bias = weights.constant(f"{name}.bias", layer.outputs, 0.0)

    def __call__(self, values: Any) -> Any:
        return tf.nn.bias_add(
            tf.linalg.matmul(values, tf.cast(self._matrix, values.dtype)), tf.cast(self._bias, values.dtype)
        )


class ResidualNetwork:
    def __init__(self, layers: ResidualLayers, form: NetworkForm) -> None:
        self.weights = weights = Weights(form)
        self.convolutions = convolutions_of(layers)
        self._layout = form.layout
        self._stem = ConvolutionNorm(weights, "stem", layers.stem)
        self._blocks = [Bottleneck(weights, f"blocks.{at}", each) for at, each in enumerate(layers.blocks)]
        self._classifier = ConnectedLayer(weights, "classifier", layers.classifier)

    def __call__(self, images: Any) -> Any:
        """Logits, in the images' type, of a batch."""
        stem = tf.nn.relu(self._stem(images))
        # Padding with zeros is right: after a ReLU a zero is never larger than a pixel.
        values = tf.nn.max_pool2d(padded(stem, 1, self._layout), 3, 2, "VALID", data_format=self._layout)
        for block in self._blocks:
            values = block(values)
        return self._classifier(tf.reduce_mean(values, [1, 2] if self._layout == "NHWC" else [2, 3]))


def convolutions_of(layers: Any) -> int:
    return sum(isinstance(layer, Convolution) for layer in layers.in_order())


# The class that builds a network from its layers, by its kind.
_NETWORKS: Dict[type, Type[Any]] = {Residual: ResidualNetwork}


def network_of(spec: ModelSpec, form: NetworkForm) -> Any:
    """A model with fresh weights; called with images it returns their logits."""
    kind = type(spec.network)
    about = f"network {kind.__name__} of {spec.title}"
    network = entry_of(_NETWORKS, kind, about, "_NETWORKS of helpers/trainers/tensorflow/models.py")
    return network(spec.layers(form.channels), form)
