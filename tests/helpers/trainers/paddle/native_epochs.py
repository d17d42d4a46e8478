"""Reads epochs through Paddle's own loader in a process of its own, as a rank does, and prints what came, as JSON.

In the process of the tests its workers would be forked beside the threads of everything tested before, and a fork
beside threads may wait for ever.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from helpers.trainers.common.images import Form, ImageList, Share
from helpers.trainers.common.settings import Augmentation
from helpers.trainers.contract.errors import DatasetError
from helpers.trainers.paddle.data import NativeReader

AUGMENTATION = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)


def native_reader(images: ImageList, share: Share, workers: int = 0) -> NativeReader:
    native = SimpleNamespace(workers=workers, prefetch_factor=2, shared_memory=False)
    settings: Any = SimpleNamespace(native=native, augmentation=AUGMENTATION)
    spec: Any = SimpleNamespace(seed=share.seed)
    return NativeReader(images, share, Form("NCHW", 3, "float32"), settings, spec)


def main(root: str, images: int, share: Share, workers: int) -> dict[str, Any]:
    """Two epochs over ``root``/0.jpeg, 1.jpeg, ..., each its own label: labels and a digest of the pixels, or the
    error that ended them."""
    listed = ImageList(Path(root), tuple(f"{number}.jpeg" for number in range(images)), tuple(range(images)))
    reader, labels, pixels = native_reader(listed, share, workers), [], hashlib.sha256()
    try:
        for number in range(2):
            for batch in reader.epoch(number):
                labels += batch.labels.numpy().tolist()
                pixels.update(batch.images.numpy().tobytes())
    except DatasetError as error:
        return {"error": str(error)}
    return {"labels": labels, "pixels": pixels.hexdigest()}


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    count, rank, ranks, batch_size, worker_processes = map(int, numbers)
    print(json.dumps(main(folder, count, Share(rank, ranks, batch_size, 7), worker_processes)))
