"""The networks of the models (contract/models.py) for PyTorch, with Paddle's module names, counts and initial values.

ResNet50: the bottleneck's stride stands in its 3 x 3 convolution (v1 has it in the first 1 x 1).
25,557,032 parameters with 3 input channels, 25,560,168 with 4. VGG16: convolutions with bias, no batch
norm; 138,357,544 parameters. Both take 224 x 224 images and give 1000 logits.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Type

import torch
from torch import nn

from helpers.trainers.contract.models import ModelSpec, Plain, Residual

FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def as_layout(images: Any, feed_layout: str, layout: str) -> Any:
    """Images as the model works on them: always NCHW by their dimensions, and by their memory as ``layout`` says."""
    if feed_layout == "NHWC":
        images = images.permute(0, 3, 1, 2)
    return images.contiguous(memory_format=FORMATS[layout])


class ConvolutionNorm(nn.Module):
    """Convolution without bias, batch norm, and a ReLU where ``activate``."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, activate: bool = True) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.activation = nn.ReLU(inplace=True) if activate else None

    def forward(self, images: Any) -> Any:
        normed = self.norm(self.convolution(images))
        return normed if self.activation is None else self.activation(normed)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 (with the stride), 1 x 1, around a shortcut."""

    EXPANSION = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.EXPANSION
        self.reduce = ConvolutionNorm(inputs, width, 1)
        self.spatial = ConvolutionNorm(width, width, 3, stride=stride)
        self.expand = ConvolutionNorm(width, outputs, 1, activate=False)
        self.shortcut = None
        if inputs != outputs or stride != 1:
            self.shortcut = ConvolutionNorm(inputs, outputs, 1, stride=stride, activate=False)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, images: Any) -> Any:
        shortcut = images if self.shortcut is None else self.shortcut(images)
        return self.activation(self.expand(self.spatial(self.reduce(images))) + shortcut)


class ResidualNetwork(nn.Module):
    """``layout`` NCHW or NHWC, ``channels`` 3 or 4; ``feed_layout`` if images arrive in another."""

    def __init__(self, spec: ModelSpec, layout: str = "NCHW", channels: int = 3, feed_layout: str = "") -> None:
        super().__init__()
        self.layouts = (feed_layout or layout, layout)
        self.stem = ConvolutionNorm(channels, 64, 7, stride=2)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        blocks: List[Any] = []
        inputs = 64
        for stage, (width, depth) in enumerate(spec.network.stages):
            for block in range(depth):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(Bottleneck(inputs, width, stride))
                inputs = width * Bottleneck.EXPANSION
        self.blocks = nn.Sequential(*blocks)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, spec.classes)
        self.apply(_as_paddle_draws)
        self.to(memory_format=FORMATS[layout])

    def forward(self, images: Any) -> Any:
        pooled = self.average(self.blocks(self.pool(self.stem(as_layout(images, *self.layouts)))))
        return self.classifier(torch.flatten(pooled, 1))


class PlainNetwork(nn.Module):
    """Arguments as ResidualNetwork's."""

    def __init__(self, spec: ModelSpec, layout: str = "NCHW", channels: int = 3, feed_layout: str = "") -> None:
        super().__init__()
        self.layouts = (feed_layout or layout, layout)
        features: List[Any] = []
        inputs = channels
        for outputs, depth in spec.network.stages:
            for _ in range(depth):
                features += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = outputs
            features.append(nn.MaxPool2d(2, stride=2))
        self.features = nn.Sequential(*features)
        side = spec.image_size // 2 ** len(spec.network.stages)
        self.classifier = nn.Sequential(
            nn.Linear(inputs * side**2, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5),
            nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5),
            nn.Linear(4096, spec.classes),
        )  # fmt: skip
        self.apply(_as_paddle_draws)
        for layer in self.classifier:
            if isinstance(layer, nn.Linear):
                # As its authors drew them. A wider draw makes the first loss three times that of a guess.
                nn.init.normal_(layer.weight, 0.0, 0.01)
        self.to(memory_format=FORMATS[layout])

    def forward(self, images: Any) -> Any:
        return self.classifier(torch.flatten(self.features(as_layout(images, *self.layouts)), 1))


# The class that builds a network, by its kind.
NETWORKS: Dict[type, Type[Any]] = {Residual: ResidualNetwork, Plain: PlainNetwork}


def _as_paddle_draws(layer: nn.Module) -> None:
    """Paddle's default initial values: He's normal over the inputs, Glorot's uniform, biases 0."""
    if isinstance(layer, nn.Conv2d):
        fan_in = layer.in_channels * math.prod(layer.kernel_size)
        nn.init.normal_(layer.weight, 0.0, math.sqrt(2.0 / fan_in))
    elif isinstance(layer, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
    if isinstance(layer, (nn.Conv2d, nn.Linear)) and layer.bias is not None:
        nn.init.zeros_(layer.bias)
