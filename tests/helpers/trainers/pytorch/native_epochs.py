"""Reads two epochs through PyTorch's own loader, or its DALI plugin, and prints what came, as JSON; in .venv-pytorch.
Kinds: shared, piped, dali, plugin (tests/helpers/trainers/readings.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from helpers.trainers.common.images import Form, ImageList, Share
from helpers.trainers.common.loop import Batch
from helpers.trainers.pytorch import data as pytorch_data
from tests.helpers.trainers.readings import AUGMENTATION, answer, dali_reader

FORM, CPU = Form("NCHW", 3, "float32"), torch.device("cpu")


def reader(images: ImageList, share: Share, workers: int, kind: str) -> Any:
    feed = pytorch_data.feed_to(CPU)
    if kind in ("dali", "plugin"):
        card = SimpleNamespace(record=lambda: "event", reached=lambda event: True, release=lambda event: None)
        pytorch_data.card_events = lambda device: card
        return dali_reader(images, share, FORM, feed, pytorch_data.plugin(CPU) if kind == "plugin" else None)
    native = SimpleNamespace(workers=workers, prefetch_factor=2, shared_memory=kind == "shared")
    settings: Any = SimpleNamespace(native=native, augmentation=AUGMENTATION)
    spec: Any = SimpleNamespace(seed=share.seed, device="cpu")
    return pytorch_data.NativeReader(images, share, FORM, settings, spec, feed)


def arrays(batch: Batch) -> tuple[Any, Any]:
    assert batch.labels.dtype is torch.int64
    return batch.images.numpy(), batch.labels.numpy()


if __name__ == "__main__":
    answer(reader, arrays)
