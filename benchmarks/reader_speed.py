"""Does the trainers' image reader keep up with OpenCV's? ``python -m benchmarks.reader_speed``.

Both take the same crops of the same files in turn, batch by batch, in this process and on one core: the reader as the
native loaders' workers call it, and a loop of OpenCV as PaddleClas composes it (decode, to RGB, crop, bilinear resize,
flip, normalise in float32, channels first). The ratio is of images/s, the reader's over OpenCV's; a pass over the
images is one observation. Exit status 1 when the whole 95% interval lies below 1.

The last line is the time to draw an image of the grown dataset (helpers/plan/grown_dataset.py) on one core.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

from helpers.plan.grown_dataset import MOST_IMAGES
from helpers.plan.photo_images import JPEG_QUALITY, Drawing
from helpers.plan.recipes.recipe import settings_for
from helpers.plan.small_dataset import make_small_dataset, photographs_folder
from helpers.report.unforeseen import ended
from helpers.session.lockstep import pair_ratio, ratio_of
from helpers.session.suite import SMALL_DATASET
from helpers.trainers.common.images import (
    IMAGE_SIZE,
    MEAN,
    STD,
    Form,
    ImageList,
    crop_box,
    decode,
    opencv,
    read_train_list,
)
from helpers.trainers.common.settings import Augmentation
from helpers.trainers.contract.case import Case

CASE = "paddle-resnet50v1.5-fp32-bs8-1x1-native-static"
FORM = Form("NCHW", 3, "float32")
Read = Callable[[Path, random.Random], Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="ROOT", help="Read this folder with train_list.txt, not the small dataset")
    parser.add_argument("--passes", type=int, default=6, help="Read the images N times")
    parser.add_argument("--images", type=int, default=128, help="Read N images a pass")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    # As a CPU case has the heap: without it, both give every image's pages back to the kernel.
    environment = settings_for(Case.parse(CASE), "cpu")["environment"]
    if os.environ.get("GLIBC_TUNABLES") != environment["GLIBC_TUNABLES"]:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "benchmarks.reader_speed", *sys.argv[1:]],
            {**os.environ, **environment},
        )
    images = read_train_list(arguments.data or str(make_small_dataset(SMALL_DATASET).root))
    augmentation = Augmentation(**settings_for(Case.parse(CASE), "cpu")["augmentation"])
    reads: tuple[Read, Read] = (
        lambda path, rng: decode(path, rng, augmentation, FORM),
        lambda path, rng: by_opencv(path, rng, augmentation),
    )
    passes = [measure(images, arguments.images, seed, reads) for seed in range(arguments.passes)]
    ratio = ratio_of(pair_ratio(theirs, ours) for ours, theirs in passes)
    print(f"images/s of the reader over OpenCV's, time on the core: {ratio}")
    for name, place in (("the reader", 0), ("OpenCV", 1)):
        seconds = [each for one in passes for each in one[place]]
        print(f"  {name}: {statistics.median(seconds) * 1e3 / BATCH:.2f} ms an image ({len(seconds)} batches)")
    print(drawing_line(arguments.images))
    return 1 if ratio.lies_below(1.0) else 0


BATCH = 8


def drawing_line(number: int) -> str:
    """How long drawing takes on one core, and from it, by mere division, on eight."""
    drawing, started = Drawing(photographs_folder(), 1234), time.process_time()
    for index in range(number):
        drawing.draw(index).save(io.BytesIO(), "JPEG", quality=JPEG_QUALITY, subsampling=0)
    seconds = (time.process_time() - started) / number
    return (
        f"drawing images: {seconds * 1e3:.2f} ms an image, {1 / seconds:.0f}/s on one core; {MOST_IMAGES:,} would take "
        f"{MOST_IMAGES * seconds / 8 / 60:.1f} min on 8 such cores (extrapolated from one)"
    )


def measure(images: ImageList, number: int, seed: int, reads: Sequence[Read]) -> tuple[list[float], list[float]]:
    """Seconds on the core of each batch of ``number`` images, by the first and by the second of ``reads``."""
    seconds: tuple[list[float], list[float]] = ([], [])
    names = random.Random(seed).sample(images.paths, min(number, len(images.paths)))
    for at in range(0, len(names) - BATCH + 1, BATCH):
        turns = (0, 1) if (at // BATCH + seed) % 2 == 0 else (1, 0)
        for turn in turns:
            started = time.process_time()
            batch = [
                reads[turn](images.root / name, random.Random(f"{seed} {name}")) for name in names[at : at + BATCH]
            ]
            numpy.stack(batch)
            seconds[turn].append(time.process_time() - started)
    return seconds


def by_opencv(path: Path, rng: random.Random, augmentation: Augmentation) -> Any:
    """As PaddleClas reads a JPEG: its operators DecodeImage, RandCropImage, RandFlipImage and NormalizeImage."""
    cv2 = opencv()
    image = cv2.imdecode(numpy.frombuffer(path.read_bytes(), dtype="uint8"), 1)[:, :, ::-1]
    left, top, right, bottom = crop_box(image.shape[1], image.shape[0], rng, augmentation)
    image = cv2.resize(image[top:bottom, left:right, :], (IMAGE_SIZE, IMAGE_SIZE), interpolation=cv2.INTER_LINEAR)
    if rng.random() < augmentation.flip_probability:
        image = cv2.flip(image, 1)
    image = (image.astype("float32") * numpy.float32(1 / 255) - _MEAN) / _STD
    return image.astype("float32").transpose((2, 0, 1))


_MEAN = (numpy.array(MEAN) / 255).astype("float32")
_STD = (numpy.array(STD) / 255).astype("float32")

if __name__ == "__main__":
    sys.exit(ended(main, "reader_speed"))
