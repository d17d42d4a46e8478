"""The batch that both frameworks take their steps of parity on, and the size of images that makes them affordable."""

from __future__ import annotations

from typing import Any

from helpers.trainers.common.images import Form, Share, synthetic_batch
from helpers.trainers.common.settings import Settings
from helpers.trainers.contract import models
from helpers.trainers.contract.job import JobSpec

# In pixels. Two by two of them are left for the last layers, so that strides, paddings and the order in which VGG16's
# classifier takes them still show in the loss. At 224 the same steps compute twelve times as much.
SIZE = 64


def shrink_images() -> None:
    """Networks are built for images of SIZE from now on."""
    models.IMAGE_SIZE = SIZE


def parity_batch(spec: JobSpec, settings: Settings) -> tuple[Any, Any, int]:
    """Images in float64, cut to SIZE; labels; how many."""
    share = Share(0, 1, spec.case.batch_size_per_card, spec.seed)
    form = Form("NCHW", settings.input_channels, settings.input_dtype)
    images, labels = synthetic_batch(share, form)
    images = images[:, :, :SIZE, :SIZE].astype("float64")
    # The same pixels in either layout.
    return images.transpose(0, 2, 3, 1) if settings.feed_layout == "NHWC" else images, labels, share.batch_size
