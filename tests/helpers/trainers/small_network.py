"""A small network in the place of ResNet50's, for tests of the parts of a step: the same kinds of layers, so few and
small that a step takes milliseconds."""

from __future__ import annotations

from dataclasses import replace

from helpers.trainers.contract import models
from helpers.trainers.contract.models import MODELS, Model, Residual

# A block without and one with a convolution as its shortcut, behind the stem.
NETWORK = Residual(((16, 1), (32, 1)))
CONVOLUTIONS = 8


def use_small_network() -> None:
    """From here on this process has the small network, for images of 64 x 64 pixels, wherever it has ResNet50's."""
    models.IMAGE_SIZE = 64
    MODELS[Model.RESNET50] = replace(MODELS[Model.RESNET50], network=NETWORK)  # type: ignore[index]
