"""The registry of models, with one entry for each. Code that depends on a model uses its entry, never its name.

A network is defined once, as a table of layers. The trainers build it from the table, and its operations are counted
over the same table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, Iterator, Mapping, Optional, Tuple, Union

from helpers.trainers.contract.errors import entry_of

# ImageNet as every reader gives it: height and width of an image in pixels, and the number of labels.
IMAGE_SIZE = 224
CLASSES = 1000


class Model(enum.Enum):
    RESNET50 = "resnet50v1.5"
    VGG16 = "vgg16"

    @property
    def spec(self) -> ModelSpec:
        """The model's entry. Raises ConfigError if it has none."""
        table = "MODELS of helpers/trainers/contract/models.py"
        return entry_of(MODELS, self, f"model {self.value}", table, "network, publisher, learning rate")


class Publisher(enum.Enum):
    """The publisher whose configuration the published figures of a model were trained with
    (docs/published.md)."""

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
        """Multiply-adds of its forward pass over one sample."""
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
        """Multiply-adds of its forward pass over one sample."""
        return self.inputs * self.outputs


@dataclass(frozen=True)
class BottleneckLayers:
    """Three convolutions and a shortcut around them. The shortcut is a convolution if the block changes the shape."""

    reduce: Convolution
    spatial: Convolution
    expand: Convolution
    shortcut: Optional[Convolution]

    def in_order(self) -> Iterator[Convolution]:
        yield from (self.reduce, self.spatial, self.expand)
        if self.shortcut is not None:
            yield self.shortcut


def bottleneck(name: str, inputs: int, width: int, size: int, stride: int) -> BottleneckLayers:
    """The block for ``inputs`` channels of ``size`` x ``size`` pixels, as in v1.5: the 3 x 3 convolution has the
    stride."""
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
    """The layers of a residual network. After the stem there is a 3 x 3 pooling with stride 2, and after the last block
    an average over all pixels."""

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
    """The layers of a plain network. After each stage there is a 2 x 2 pooling with stride 2."""

    stages: Tuple[Tuple[Convolution, ...], ...]
    classifier: Tuple[Connected, ...]

    def in_order(self) -> Iterator[Union[Convolution, Connected]]:
        for stage in self.stages:
            yield from stage
        yield from self.classifier


@dataclass(frozen=True)
class Residual:
    """A network of bottleneck blocks (ResNet50, 101, 152), with batch norm after each convolution."""

    batch_norm: ClassVar[bool] = True
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
    """A network of 3 x 3 convolutions (with bias, without batch norm) and fully connected layers."""

    batch_norm: ClassVar[bool] = False
    # (outputs, convolutions) from the image to the classifier.
    stages: Tuple[Tuple[int, int], ...]
    # The outputs of all fully connected layers except the last.
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
    """The facts about a model."""

    # In tables.
    title: str
    # The marker for ``pytest -m``.
    marker: str
    network: Network
    # The publisher whose strategies and loss scaling it is trained with.
    follows: Publisher
    # The rate for 256 or more samples per step; smaller batches, as on a CPU, lower it in proportion.
    learning_rate: float
    # The name of a sample.
    sample: str = "image"

    @property
    def rate_unit(self) -> str:
        """The unit of samples/s for this model: images/s."""
        return f"{self.sample}s/s"

    def layers(self, channels: int = 3) -> Layers:
        """Its convolutions and fully connected layers, for samples with ``channels`` channels."""
        return self.network.layers(channels)


MODELS: Mapping[Model, ModelSpec] = {
    # 25,557,032 parameters with 3 input channels, 25,560,168 with 4.
    Model.RESNET50: ModelSpec(
        "ResNet50 v1.5", "resnet50", Residual(((64, 3), (128, 4), (256, 6), (512, 3))), Publisher.PADDLECLAS, 0.1
    ),
    # 138,357,544 parameters. With the published rate of 0.1 a network without batch norm diverges; this is the rate of
    # VGG's authors.
    Model.VGG16: ModelSpec(
        "VGG16", "vgg16", Plain(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))), Publisher.FLEETX, 0.01
    ),
}
