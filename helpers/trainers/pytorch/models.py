"""The networks of the models (contract/models.py) for PyTorch, with Paddle's module names and initial values."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Type

import torch
from torch import nn

from helpers.trainers.contract.errors import entry_of
from helpers.trainers.contract.models import (
    BottleneckLayers,
    Convolution,
    ModelSpec,
    Plain,
    PlainLayers,
    Residual,
    ResidualLayers,
)

FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def as_layout(images: Any, feed_layout: str, layout: str) -> Any:
    """Images in the model's layout: their dimensions are always NCHW, their order in memory is ``layout``."""
    if feed_layout == "NHWC":
        images = images.permute(0, 3, 1, 2)
    return images.contiguous(memory_format=FORMATS[layout])


def _convolution(layer: Convolution, bias: bool) -> Any:
    return nn.Conv2d(
        layer.inputs, layer.outputs, layer.kernel, stride=layer.stride, padding=layer.kernel // 2, bias=bias
    )


class ConvolutionNorm(nn.Module):
    """Convolution without bias, batch norm, and, with ``activate``, a ReLU."""

    def __init__(self, layer: Convolution, activate: bool = True) -> None:
        super().__init__()
        self.convolution = _convolution(layer, bias=False)
        self.norm = nn.BatchNorm2d(layer.outputs)
        self.activation = nn.ReLU(inplace=True) if activate else None

    def forward(self, images: Any) -> Any:
        normed = self.norm(self.convolution(images))
        return normed if self.activation is None else self.activation(normed)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 (with the stride), 1 x 1, around a shortcut."""

    def __init__(self, layers: BottleneckLayers) -> None:
        super().__init__()
        self.reduce = ConvolutionNorm(layers.reduce)
        self.spatial = ConvolutionNorm(layers.spatial)
        self.expand = ConvolutionNorm(layers.expand, activate=False)
        self.shortcut = None
        if layers.shortcut is not None:
            self.shortcut = ConvolutionNorm(layers.shortcut, activate=False)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, images: Any) -> Any:
        shortcut = images if self.shortcut is None else self.shortcut(images)
        return self.activation(self.expand(self.spatial(self.reduce(images))) + shortcut)


class ResidualNetwork(nn.Module):
    """``layout`` is NCHW or NHWC; ``feed_layout`` is given if images arrive in another layout."""

    def __init__(self, layers: ResidualLayers, layout: str, feed_layout: str) -> None:
        super().__init__()
        self.layouts = (feed_layout or layout, layout)
        self.stem = ConvolutionNorm(layers.stem)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.blocks = nn.Sequential(*map(Bottleneck, layers.blocks))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(layers.classifier.inputs, layers.classifier.outputs)
        self.apply(_as_paddle_draws)
        self.to(memory_format=FORMATS[layout])

    def forward(self, images: Any) -> Any:
        pooled = self.average(self.blocks(self.pool(self.stem(as_layout(images, *self.layouts)))))
        return self.classifier(torch.flatten(pooled, 1))


class PlainNetwork(nn.Module):
    """Arguments as for ResidualNetwork."""

    def __init__(self, layers: PlainLayers, layout: str, feed_layout: str) -> None:
        super().__init__()
        self.layouts = (feed_layout or layout, layout)
        features: List[Any] = []
        for stage in layers.stages:
            for convolution in stage:
                features += [_convolution(convolution, bias=True), nn.ReLU(inplace=True)]
            features.append(nn.MaxPool2d(2, stride=2))
        self.features = nn.Sequential(*features)
        dense: List[Any] = []
        for layer in layers.classifier:
            dense += [nn.Linear(layer.inputs, layer.outputs), nn.ReLU(inplace=True), nn.Dropout(0.5)]
        # Without the ReLU and dropout that follow hidden layers: the last layer has neither.
        self.classifier = nn.Sequential(*dense[:-2])
        self.apply(_as_paddle_draws)
        for layer in self.classifier:
            if isinstance(layer, nn.Linear):
                # The deviation used by VGG's authors. With a larger one, the first loss is three times that of a guess.
                nn.init.normal_(layer.weight, 0.0, 0.01)
        self.to(memory_format=FORMATS[layout])

    def forward(self, images: Any) -> Any:
        return self.classifier(torch.flatten(self.features(as_layout(images, *self.layouts)), 1))


# The class that builds a network from its layers, by its kind.
_NETWORKS: Dict[type, Type[Any]] = {Residual: ResidualNetwork, Plain: PlainNetwork}


def network_of(spec: ModelSpec, layout: str = "NCHW", channels: int = 3, feed_layout: str = "") -> Any:
    """A model with fresh weights for ``layout`` NCHW or NHWC and 3 or 4 channels."""
    kind = type(spec.network)
    about = f"network {kind.__name__} of {spec.title}"
    network = entry_of(_NETWORKS, kind, about, "_NETWORKS of helpers/trainers/pytorch/models.py")
    return network(spec.layers(channels), layout, feed_layout)


def _as_paddle_draws(layer: nn.Module) -> None:
    """Paddle's default initial values: He's normal distribution for convolutions, Glorot's uniform for connected
    layers, biases 0."""
    if isinstance(layer, nn.Conv2d):
        fan_in = layer.in_channels * math.prod(layer.kernel_size)
        nn.init.normal_(layer.weight, 0.0, math.sqrt(2.0 / fan_in))
    elif isinstance(layer, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
    if isinstance(layer, (nn.Conv2d, nn.Linear)) and layer.bias is not None:
        nn.init.zeros_(layer.bias)
