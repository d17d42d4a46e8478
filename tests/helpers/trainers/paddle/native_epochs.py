"""Reads two epochs through Paddle's own loader, and prints what came, as JSON (tests/helpers/trainers/readings.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from helpers.trainers.common.images import Form, ImageList, Share
from helpers.trainers.paddle.data import NativeReader
from tests.helpers.trainers.readings import AUGMENTATION, answer


def reader(images: ImageList, share: Share, workers: int, kind: str) -> NativeReader:
    native = SimpleNamespace(workers=workers, prefetch_factor=2, shared_memory=False)
    settings: Any = SimpleNamespace(native=native, augmentation=AUGMENTATION)
    spec: Any = SimpleNamespace(seed=share.seed)
    return NativeReader(images, share, Form("NCHW", 3, "float32"), settings, spec)


if __name__ == "__main__":
    answer(reader, lambda batch: (batch.images.numpy(), batch.labels.numpy()))
