"""The networks of the models (contract/models.py) for Paddle.

ResNet50: the bottleneck's stride stands in its 3 x 3 convolution (v1 has it in the first 1 x 1).
25,557,032 parameters with 3 input channels, 25,560,168 with 4. VGG16: convolutions with bias, no batch
norm; 138,357,544 parameters. Both take 224 x 224 images and give 1000 logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Type

import paddle
from paddle import nn

from helpers.trainers.contract.models import ModelSpec, Plain, Residual


@dataclass(frozen=True)
class Layers:
    """The layer types that a precision may change."""

    norm: Type[nn.Layer] = nn.BatchNorm2D


def as_layout(images: Any, feed_layout: str, layout: str) -> Any:
    """Images as the model works on them: transposed where they arrive in another layout."""
    if feed_layout == layout:
        return images
    return paddle.transpose(images, [0, 2, 3, 1] if layout == "NHWC" else [0, 3, 1, 2])


class ConvolutionNorm(nn.Layer):
    """Convolution without bias, batch norm, and a ReLU where ``activate``."""

    def __init__(
        self, layers: Layers, inputs: int, outputs: int, size: int, layout: str, stride: int = 1, activate: bool = True
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2D(
            inputs, outputs, size, stride=stride, padding=size // 2, bias_attr=False, data_format=layout
        )
        self.norm = layers.norm(outputs, data_format=layout)
        self.activation = nn.ReLU() if activate else None

    def forward(self, images: Any) -> Any:
        normed = self.norm(self.convolution(images))
        return normed if self.activation is None else self.activation(normed)


class Bottleneck(nn.Layer):
    """1 x 1, 3 x 3 (with the stride), 1 x 1, around a shortcut."""

    EXPANSION = 4

    def __init__(self, layers: Layers, inputs: int, width: int, stride: int, layout: str) -> None:
        super().__init__()
        outputs = width * self.EXPANSION
        self.reduce = ConvolutionNorm(layers, inputs, width, 1, layout)
        self.spatial = ConvolutionNorm(layers, width, width, 3, layout, stride=stride)
        self.expand = ConvolutionNorm(layers, width, outputs, 1, layout, activate=False)
        self.shortcut = None
        if inputs != outputs or stride != 1:
            self.shortcut = ConvolutionNorm(layers, inputs, outputs, 1, layout, stride=stride, activate=False)
        self.activation = nn.ReLU()

    def forward(self, images: Any) -> Any:
        shortcut = images if self.shortcut is None else self.shortcut(images)
        return self.activation(self.expand(self.spatial(self.reduce(images))) + shortcut)


class ResidualNetwork(nn.Layer):
    """``layout`` NCHW or NHWC, ``channels`` 3 or 4; ``feed_layout`` if images arrive in another."""

    def __init__(
        self, spec: ModelSpec, layers: Layers, layout: str = "NCHW", channels: int = 3, feed_layout: str = ""
    ) -> None:
        super().__init__()
        self.layouts = (feed_layout or layout, layout)
        self.stem = ConvolutionNorm(layers, channels, 64, 7, layout, stride=2)
        self.pool = nn.MaxPool2D(3, stride=2, padding=1, data_format=layout)
        blocks = []
        inputs = 64
        for stage, (width, depth) in enumerate(spec.network.stages):
            for block in range(depth):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(Bottleneck(layers, inputs, width, stride, layout))
                inputs = width * Bottleneck.EXPANSION
        self.blocks = nn.Sequential(*blocks)
        self.average = nn.AdaptiveAvgPool2D(1, data_format=layout)
        self.classifier = nn.Linear(inputs, spec.classes)

    def forward(self, images: Any) -> Any:
        pooled = self.average(self.blocks(self.pool(self.stem(as_layout(images, *self.layouts)))))
        return self.classifier(paddle.flatten(pooled, 1))


class PlainNetwork(nn.Layer):
    """Arguments as ResidualNetwork's."""

    def __init__(
        self, spec: ModelSpec, layers: Layers, layout: str = "NCHW", channels: int = 3, feed_layout: str = ""
    ) -> None:
        super().__init__()
        self.layouts = (feed_layout or layout, layout)
        features = []
        inputs = channels
        for outputs, depth in spec.network.stages:
            for _ in range(depth):
                features += [nn.Conv2D(inputs, outputs, 3, padding=1, data_format=layout), nn.ReLU()]
                inputs = outputs
            features.append(nn.MaxPool2D(2, stride=2, data_format=layout))
        self.features = nn.Sequential(*features)
        side = spec.image_size // 2 ** len(spec.network.stages)
        # As its authors drew them. Paddle's default makes the first loss three times that of a guess.
        small = paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, 0.01))
        self.classifier = nn.Sequential(
            nn.Linear(inputs * side**2, 4096, weight_attr=small), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(4096, 4096, weight_attr=small), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(4096, spec.classes, weight_attr=small),
        )  # fmt: skip

    def forward(self, images: Any) -> Any:
        return self.classifier(paddle.flatten(self.features(as_layout(images, *self.layouts)), 1))


# The class that builds a network, by its kind.
NETWORKS: Dict[type, Type[Any]] = {Residual: ResidualNetwork, Plain: PlainNetwork}
