"""Reads two epochs through DALI, and prints what came, as JSON; in .venv-mxnet. Kinds: dali, and plugin, which is DALI
as on a card, over a pipeline on the CPU (tests/helpers/trainers/readings.py).
"""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy

from helpers.trainers.common.images import Form, ImageList, Share
from helpers.trainers.common.loop import Batch
from helpers.trainers.mxnet import data as mxnet_data
from tests.helpers.trainers.readings import answer, dali_reader

CONTEXT = mx.cpu(1)


def reader(images: ImageList, share: Share, workers: int, kind: str) -> Any:
    plugin = mxnet_data.plugin(CONTEXT) if kind == "plugin" else None
    return dali_reader(images, share, Form("NCHW", 3, "float32"), mxnet_data.feed_to(CONTEXT), plugin)


def arrays(batch: Batch) -> tuple[Any, Any]:
    assert (batch.labels.dtype, batch.images.context) == (numpy.float32, CONTEXT)
    return batch.images.asnumpy(), batch.labels.asnumpy()


if __name__ == "__main__":
    answer(reader, arrays)
