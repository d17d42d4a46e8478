"""The models: one entry each. Whoever needs to know something of a model asks its entry, never its name.

Trainers import this module in the frameworks' own interpreters: standard library, Python 3.8 syntax.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Mapping, Tuple, Union

from helpers.trainers.contract.errors import ConfigError


class Model(enum.Enum):
    RESNET50 = "resnet50v1.5"
    VGG16 = "vgg16"


class Publisher(enum.Enum):
    """Whose configuration a model's published figures were trained with (docs/measuring-rules.md)."""

    PADDLECLAS = "PaddleClas"
    FLEETX = "FleetX"


@dataclass(frozen=True)
class Residual:
    """Bottleneck blocks as of v1.5, which has the stride in the 3 x 3 convolution, with batch norm.

    ``stages`` are (width, blocks) from the image to the classifier.
    """

    stages: Tuple[Tuple[int, int], ...]


@dataclass(frozen=True)
class Plain:
    """3 x 3 convolutions with bias, without batch norm, a pooling after each stage, three fully connected layers.

    ``stages`` are (outputs, convolutions) from the image to the classifier.
    """

    stages: Tuple[Tuple[int, int], ...]


Network = Union[Residual, Plain]


@dataclass(frozen=True)
class ModelSpec:
    """What the suite knows of a model.

    - ``title`` in tables, ``marker`` for ``pytest -m``; ``sample``: what one sample is, so that samples/s are images/s.
    - ``image_size``: height and width of an input in pixels, ``classes`` the number of logits.
    - ``follows``: the publisher whose strategies and loss scaling it is trained with.
    - ``learning_rate``: from 256 samples a step on; a CPU's smaller batches lower it in proportion.
    """

    title: str
    marker: str
    network: Network
    follows: Publisher
    learning_rate: float
    image_size: int = 224
    classes: int = 1000
    sample: str = "image"


MODELS: Mapping[Model, ModelSpec] = {
    Model.RESNET50: ModelSpec(
        "ResNet50 v1.5", "resnet50", Residual(((64, 3), (128, 4), (256, 6), (512, 3))), Publisher.PADDLECLAS, 0.1
    ),
    # Its published rate of 0.1 makes a network without batch norm diverge; this is its authors'.
    Model.VGG16: ModelSpec(
        "VGG16", "vgg16", Plain(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))), Publisher.FLEETX, 0.01
    ),
}


def spec_of(model: Model) -> ModelSpec:
    """The entry of ``model``; ConfigError names a model that has none."""
    if model not in MODELS:
        raise ConfigError(
            f"model {model.value}",
            got="no entry",
            expected="an entry in MODELS of helpers/trainers/contract/models.py",
            remedy="Add it: network, publisher, learning rate (docs/extending.md)",
        )
    return MODELS[model]
