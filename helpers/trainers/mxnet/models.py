"""The networks of the models (contract/models.py) for MXNet's Gluon, with Paddle's module names and initial values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Type

import mxnet as mx
from mxnet.gluon import nn

from helpers.trainers.contract.errors import entry_of
from helpers.trainers.contract.models import (
    BottleneckLayers,
    Convolution,
    ModelSpec,
    Residual,
    ResidualLayers,
)

# The axes that transpose images from the first layout to the second.
_AXES = {("NCHW", "NHWC"): (0, 2, 3, 1), ("NHWC", "NCHW"): (0, 3, 1, 2)}


@dataclass(frozen=True)
class NetworkForm:
    """The variable parts of a model's network. Layouts are NCHW or NHWC."""

    layout: str = "NCHW"
    # The layout in which images arrive.
    feed_layout: str = "NCHW"
    channels: int = 3
    norm_momentum: float = 0.9
    norm_epsilon: float = 1e-5


def _convolution(layer: Convolution, layout: str) -> Any:
    return nn.Conv2D(
        layer.outputs,
        layer.kernel,
        strides=layer.stride,
        padding=layer.kernel // 2,
        in_channels=layer.inputs,
        use_bias=False,
        layout=layout,
        # He's normal distribution over the inputs, as Paddle's default.
        weight_initializer=mx.init.Normal(math.sqrt(2.0 / (layer.inputs * layer.kernel**2))),
    )


class Arriving(nn.HybridBlock):
    """Transposes images from the layout in which they arrive to the model's layout."""

    def __init__(self, form: NetworkForm) -> None:
        super().__init__()
        self._axes = _AXES.get((form.feed_layout, form.layout))

    def hybrid_forward(self, F: Any, images: Any) -> Any:
        return images if self._axes is None else F.transpose(images, axes=self._axes)


class ConvolutionNorm(nn.HybridBlock):
    """Convolution without bias, batch norm, and, with ``activate``, a ReLU."""

    def __init__(self, layer: Convolution, form: NetworkForm, activate: bool = True) -> None:
        super().__init__()
        self._activate = activate
        self.convolution = _convolution(layer, form.layout)
        self.norm = nn.BatchNorm(
            axis=form.layout.index("C"),
            momentum=form.norm_momentum,
            epsilon=form.norm_epsilon,
            in_channels=layer.outputs,
        )

    def hybrid_forward(self, F: Any, images: Any) -> Any:
        normed = self.norm(self.convolution(images))
        return F.relu(normed) if self._activate else normed


class Bottleneck(nn.HybridBlock):
    """1 x 1, 3 x 3 (with the stride), 1 x 1, around a shortcut."""

    def __init__(self, layers: BottleneckLayers, form: NetworkForm) -> None:
        super().__init__()
        self.reduce = ConvolutionNorm(layers.reduce, form)
        self.spatial = ConvolutionNorm(layers.spatial, form)
        self.expand = ConvolutionNorm(layers.expand, form, activate=False)
        self.shortcut = None
        if layers.shortcut is not None:
            self.shortcut = ConvolutionNorm(layers.shortcut, form, activate=False)

    def hybrid_forward(self, F: Any, images: Any) -> Any:
        shortcut = images if self.shortcut is None else self.shortcut(images)
        return F.relu(self.expand(self.spatial(self.reduce(images))) + shortcut)


class ResidualNetwork(nn.HybridBlock):
    """From images to logits."""

    def __init__(self, layers: ResidualLayers, form: NetworkForm) -> None:
        super().__init__()
        self.arriving = Arriving(form)
        self.stem = ConvolutionNorm(layers.stem, form)
        self.pool = nn.MaxPool2D(3, strides=2, padding=1, layout=form.layout)
        self.blocks = nn.HybridSequential()
        self.blocks.add(*(Bottleneck(each, form) for each in layers.blocks))
        self.average = nn.GlobalAvgPool2D(layout=form.layout)
        # Glorot's uniform distribution, as Paddle's default.
        glorot = mx.init.Xavier(rnd_type="uniform", factor_type="avg", magnitude=3)
        inputs, outputs = layers.classifier.inputs, layers.classifier.outputs
        self.classifier = nn.Dense(outputs, in_units=inputs, weight_initializer=glorot)

    def hybrid_forward(self, F: Any, images: Any) -> Any:
        return self.classifier(self.average(self.blocks(self.pool(self.stem(self.arriving(images))))))


# The class that builds a network from its layers, by its kind.
_NETWORKS: Dict[type, Type[Any]] = {Residual: ResidualNetwork}


def network_of(spec: ModelSpec, form: NetworkForm) -> Any:
    """A model without weights; ``initialize()`` makes them."""
    kind = type(spec.network)
    about = f"network {kind.__name__} of {spec.title}"
    network = entry_of(_NETWORKS, kind, about, "_NETWORKS of helpers/trainers/mxnet/models.py")
    return network(spec.layers(form.channels), form)


def trained(network: Any) -> Dict[str, Any]:
    """The parameters that are trained, by Paddle's names, except that batch norm's are called gamma and beta."""
    return {name: each for name, each in network._collect_params_with_prefix().items() if each.grad_req != "null"}
