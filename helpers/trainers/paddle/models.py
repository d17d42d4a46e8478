"""The networks of the models (contract/models.py) for Paddle, and how a CPU casts them to bfloat16."""

from __future__ import annotations

from typing import Any, Dict, Type

import paddle
from paddle import nn

from helpers.trainers.contract.errors import entry_of
from helpers.trainers.contract.models import (
    BottleneckLayers,
    Connected,
    Convolution,
    ModelSpec,
    Plain,
    PlainLayers,
    Residual,
    ResidualLayers,
)


def as_layout(images: Any, feed_layout: str, layout: str) -> Any:
    """Images in the model's layout, transposed if they arrive in another one."""
    if feed_layout == layout:
        return images
    return paddle.transpose(images, [0, 2, 3, 1] if layout == "NHWC" else [0, 3, 1, 2])


def _convolution(layer: Convolution, layout: str, **options: Any) -> Any:
    return nn.Conv2D(
        layer.inputs, layer.outputs, layer.kernel, stride=layer.stride, padding=layer.kernel // 2, data_format=layout,
        **options,
    )  # fmt: skip


class ConvolutionNorm(nn.Layer):
    """Convolution without bias, batch norm, and, with ``activate``, a ReLU."""

    def __init__(self, norm: Type[nn.Layer], layer: Convolution, layout: str, activate: bool = True) -> None:
        super().__init__()
        self.convolution = _convolution(layer, layout, bias_attr=False)
        self.norm = norm(layer.outputs, data_format=layout)
        self.activation = nn.ReLU() if activate else None

    def forward(self, images: Any) -> Any:
        normed = self.norm(self.convolution(images))
        return normed if self.activation is None else self.activation(normed)


class Bottleneck(nn.Layer):
    """1 x 1, 3 x 3 (with the stride), 1 x 1, around a shortcut."""

    def __init__(self, norm: Type[nn.Layer], layers: BottleneckLayers, layout: str) -> None:
        super().__init__()
        self.reduce = ConvolutionNorm(norm, layers.reduce, layout)
        self.spatial = ConvolutionNorm(norm, layers.spatial, layout)
        self.expand = ConvolutionNorm(norm, layers.expand, layout, activate=False)
        self.shortcut = None
        if layers.shortcut is not None:
            self.shortcut = ConvolutionNorm(norm, layers.shortcut, layout, activate=False)
        self.activation = nn.ReLU()

    def forward(self, images: Any) -> Any:
        shortcut = images if self.shortcut is None else self.shortcut(images)
        return self.activation(self.expand(self.spatial(self.reduce(images))) + shortcut)


class ResidualNetwork(nn.Layer):
    """``layout`` is NCHW or NHWC; ``feed_layout`` is given if images arrive in another layout."""

    def __init__(self, layers: ResidualLayers, norm: Type[nn.Layer], layout: str, feed_layout: str) -> None:
        super().__init__()
        self.layouts = (feed_layout or layout, layout)
        self.stem = ConvolutionNorm(norm, layers.stem, layout)
        self.pool = nn.MaxPool2D(3, stride=2, padding=1, data_format=layout)
        self.blocks = nn.Sequential(*(Bottleneck(norm, each, layout) for each in layers.blocks))
        self.average = nn.AdaptiveAvgPool2D(1, data_format=layout)
        self.classifier = nn.Linear(layers.classifier.inputs, layers.classifier.outputs)

    def forward(self, images: Any) -> Any:
        pooled = self.average(self.blocks(self.pool(self.stem(as_layout(images, *self.layouts)))))
        return self.classifier(paddle.flatten(pooled, 1))


class PlainNetwork(nn.Layer):
    """Arguments as for ResidualNetwork."""

    def __init__(self, layers: PlainLayers, norm: Type[nn.Layer], layout: str, feed_layout: str) -> None:
        super().__init__()
        self.layouts = (feed_layout or layout, layout)
        features = []
        for stage in layers.stages:
            for convolution in stage:
                features += [_convolution(convolution, layout), nn.ReLU()]
            features.append(nn.MaxPool2D(2, stride=2, data_format=layout))
        self.features = nn.Sequential(*features)
        # The deviation used by VGG's authors. With Paddle's default the first loss is three times that of a guess.
        small = paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, 0.01))

        def connected(layer: Connected) -> Any:
            return nn.Linear(layer.inputs, layer.outputs, weight_attr=small)

        *hidden, last = layers.classifier
        dense = [part for layer in hidden for part in (connected(layer), nn.ReLU(), nn.Dropout(0.5))]
        self.classifier = nn.Sequential(*dense, connected(last))

    def forward(self, images: Any) -> Any:
        return self.classifier(paddle.flatten(self.features(as_layout(images, *self.layouts)), 1))


# The class that builds a network from its layers, by its kind.
_NETWORKS: Dict[type, Type[Any]] = {Residual: ResidualNetwork, Plain: PlainNetwork}


def network_of(
    spec: ModelSpec, norm: Type[nn.Layer], layout: str = "NCHW", channels: int = 3, feed_layout: str = ""
) -> Any:
    """A model with fresh weights for ``layout`` NCHW or NHWC and 3 or 4 channels; ``norm`` is its batch norm."""
    kind = type(spec.network)
    about = f"network {kind.__name__} of {spec.title}"
    network = entry_of(_NETWORKS, kind, about, "_NETWORKS of helpers/trainers/paddle/models.py")
    return network(spec.layers(channels), norm, layout, feed_layout)


# AMP O1 and O2 in bfloat16 on a CPU: by Paddle's ``auto_cast``, where it works.
#
# In dynamic execution on a CPU ``auto_cast`` has no effect (it warns and computes in float32), and Paddle's CPU kernels
# do not support bfloat16. In a compiled program it casts, and oneDNN's bfloat16 kernels are used. An operator without
# such a kernel is an error; it is not computed in float32. So all such operators besides convolution and matrix product
# are listed here to stay in float32. There is no optimizer kernel for bfloat16 weights either: at O2 weights stay in
# float32 and are cast when they are used, so they are their own master copies.
FLOAT32_OPERATORS = frozenset({"add", "add_", "dropout", "pool2d", "relu", "relu_"})


class Float32BatchNorm(nn.BatchNorm2D):
    """Batch norm in float32. It is in neither of O1's lists, and would otherwise take the type of its input."""

    def forward(self, images: Any) -> Any:
        # Not super(): Paddle 2.6's to_static cannot compile it.
        return nn.BatchNorm2D.forward(self, images.astype("float32"))


class AutoCast(nn.Layer):
    """A model under ``auto_cast``, which is called in ``forward`` so that it is compiled too."""

    def __init__(self, model: nn.Layer, level: str) -> None:
        super().__init__()
        self.model = model
        self.level = level

    def forward(self, images: Any) -> Any:
        with paddle.amp.auto_cast(level=self.level, dtype="bfloat16", custom_black_list=FLOAT32_OPERATORS):
            logits = self.model(images)
        return logits.astype("float32")
