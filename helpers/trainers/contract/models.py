"""The models: one entry each. Whoever needs to know something of a model asks its entry, never its name.

A network is defined once, as a table of layers: the trainers build it from that table, and its operations are counted
over the same one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Iterator, Mapping, Optional, Tuple, Union

from helpers.trainers.contract.errors import entry_of

# Of ImageNet as every reader gives it: height and width in pixels, and the number of labels.
IMAGE_SIZE = 224
CLASSES = 1000


class Model(enum.Enum):
    RESNET50 = "resnet50v1.5"
    VGG16 = "vgg16"

    @property
    def spec(self) -> ModelSpec:
        """Its entry; ConfigError names a model that has none."""
        table = "MODELS of helpers/trainers/contract/models.py"
        return entry_of(MODELS, self, f"model {self.value}", table, "network, publisher, learning rate")


class Publisher(enum.Enum):
    """Whose configuration a model's published figures were trained with (docs/measuring-rules.md)."""

    PADDLECLAS = "PaddleClas"
    FLEETX = "FleetX"


@dataclass(frozen=True)
class Convolution:
    """A square convolution, padded by half its kernel."""

    # Unique within its network.
    name: str
    # Height and width in pixels.
    kernel: int
    # Channels.
    inputs: int
    outputs: int
    # Height and width of its output in pixels.
    size: int
    stride: int = 1

    @property
    def multiply_adds(self) -> int:
        """Of its forward pass over one sample."""
        return self.kernel**2 * self.inputs * self.outputs * self.size**2


@dataclass(frozen=True)
class Connected:
    """A fully connected layer."""

    # Unique within its network.
    name: str
    inputs: int
    outputs: int

    @property
    def multiply_adds(self) -> int:
        """Of its forward pass over one sample."""
        return self.inputs * self.outputs


@dataclass(frozen=True)
class BottleneckLayers:
    """Three convolutions around a shortcut, which is a convolution where the block changes the shape."""

    reduce: Convolution
    spatial: Convolution
    expand: Convolution
    shortcut: Optional[Convolution]

    def in_order(self) -> Iterator[Convolution]:
        yield from (self.reduce, self.spatial, self.expand)
        if self.shortcut is not None:
            yield self.shortcut


def bottleneck(name: str, inputs: int, width: int, size: int, stride: int) -> BottleneckLayers:
    """The block over ``inputs`` channels of ``size`` x ``size`` pixels, as of v1.5: the stride is the 3 x 3
    convolution's."""
    outputs, after = 4 * width, size // stride
    shortcut = None
    if inputs != outputs or stride != 1:
        shortcut = Convolution(f"{name} shortcut", 1, inputs, outputs, after, stride)
    return BottleneckLayers(
        Convolution(f"{name} reduce", 1, inputs, width, size),
        Convolution(f"{name} spatial", 3, width, width, after, stride),
        Convolution(f"{name} expand", 1, width, outputs, after),
        shortcut,
    )


@dataclass(frozen=True)
class ResidualLayers:
    """A 3 x 3 pooling with stride 2 follows the stem, an average over all pixels the last block."""

    stem: Convolution
    blocks: Tuple[BottleneckLayers, ...]
    classifier: Connected

    def in_order(self) -> Iterator[Union[Convolution, Connected]]:
        yield self.stem
        for block in self.blocks:
            yield from block.in_order()
        yield self.classifier


@dataclass(frozen=True)
class PlainLayers:
    """A 2 x 2 pooling with stride 2 follows each stage."""

    stages: Tuple[Tuple[Convolution, ...], ...]
    classifier: Tuple[Connected, ...]

    def in_order(self) -> Iterator[Union[Convolution, Connected]]:
        for stage in self.stages:
            yield from stage
        yield from self.classifier


@dataclass(frozen=True)
class Residual:
    """Bottleneck blocks with batch norm behind each convolution."""

    # (width, blocks) from the image to the classifier.
    stages: Tuple[Tuple[int, int], ...]

    def layers(self, channels: int) -> ResidualLayers:
        stem = Convolution("stem", 7, channels, 64, IMAGE_SIZE // 2, stride=2)
        size, inputs = stem.size // 2, stem.outputs
        blocks = []
        for stage, (width, depth) in enumerate(self.stages, start=1):
            for number in range(1, depth + 1):
                stride = 2 if stage > 1 and number == 1 else 1
                blocks.append(bottleneck(f"stage {stage} block {number}", inputs, width, size, stride))
                size, inputs = size // stride, blocks[-1].expand.outputs
        return ResidualLayers(stem, tuple(blocks), Connected("classifier", inputs, CLASSES))


@dataclass(frozen=True)
class Plain:
    """3 x 3 convolutions with bias, without batch norm, and fully connected layers."""

    # (outputs, convolutions) from the image to the classifier.
    stages: Tuple[Tuple[int, int], ...]
    # Outputs of the fully connected layers but the last.
    hidden: Tuple[int, ...] = (4096, 4096)

    def layers(self, channels: int) -> PlainLayers:
        size, inputs = IMAGE_SIZE, channels
        stages = []
        for stage, (outputs, depth) in enumerate(self.stages, start=1):
            widths = (inputs, *([outputs] * depth))
            stages.append(
                tuple(
                    Convolution(f"stage {stage} convolution {number}", 3, before, after, size)
                    for number, (before, after) in enumerate(zip(widths, widths[1:]), start=1)
                )
            )
            size, inputs = size // 2, outputs
        widths = (inputs * size**2, *self.hidden, CLASSES)
        return PlainLayers(
            tuple(stages),
            tuple(
                Connected(f"classifier {number}", before, after)
                for number, (before, after) in enumerate(zip(widths, widths[1:]), start=1)
            ),
        )


Network = Union[Residual, Plain]
Layers = Union[ResidualLayers, PlainLayers]


@dataclass(frozen=True)
class ModelSpec:
    """What the suite knows of a model."""

    # In tables.
    title: str
    # For ``pytest -m``.
    marker: str
    network: Network
    # Whose strategies and loss scaling it is trained with.
    follows: Publisher
    # From 256 samples a step on; a CPU's smaller batches lower it in proportion.
    learning_rate: float
    # What one sample is.
    sample: str = "image"

    @property
    def rate_unit(self) -> str:
        """What samples/s are called: images/s."""
        return f"{self.sample}s/s"

    def layers(self, channels: int = 3) -> Layers:
        """Its convolutions and fully connected layers, for samples of so many channels."""
        return self.network.layers(channels)


MODELS: Mapping[Model, ModelSpec] = {
    # 25,557,032 parameters with 3 input channels, 25,560,168 with 4.
    Model.RESNET50: ModelSpec(
        "ResNet50 v1.5", "resnet50", Residual(((64, 3), (128, 4), (256, 6), (512, 3))), Publisher.PADDLECLAS, 0.1
    ),
    # 138,357,544 parameters. Its published rate of 0.1 makes a network without batch norm diverge; this is its
    # authors'.
    Model.VGG16: ModelSpec(
        "VGG16", "vgg16", Plain(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))), Publisher.FLEETX, 0.01
    ),
}
