"""The images of a job, for any framework: the list, each rank's share, decoding, and the search for the file on which a
loader failed.

Every epoch has the same number of full batches on every rank; the remaining images are dropped.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Optional, Tuple

import numpy

from helpers.trainers.common.settings import Augmentation
from helpers.trainers.contract.errors import DatasetError
from helpers.trainers.contract.models import CLASSES, IMAGE_SIZE

TRAIN_LIST = "train_list.txt"
# Mean and deviation of ImageNet's pixels, on the scale 0..255, for each channel.
MEAN = [123.675, 116.28, 103.53]
STD = [58.395, 57.12, 57.375]
# Factor and offset that normalise a pixel, for each channel.
_SCALES = [(numpy.float32(1 / std), numpy.float32(-mean / std)) for mean, std in zip(MEAN, STD)]
# As in torchvision: after so many failed attempts the centre is taken.
_CROP_ATTEMPTS = 10
_COPY_AGAIN = "Copy it again, or take it out of the list"
# The longest search for the image on which a loader failed; far shorter than the time after which a job counts as hung.
SEARCH_SECONDS = 30.0


@dataclass(frozen=True)
class ImageList:
    """The images of a data folder."""

    root: Path
    # Relative to ``root``.
    paths: Tuple[str, ...]
    # From 0 to 999.
    labels: Tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """The share of the images that one reader reads, for a rank or for one of its cards: its number ``rank`` among
    ``world_size`` readers, and batches of ``batch_size`` images."""

    rank: int
    world_size: int
    batch_size: int
    seed: int

    def steps_per_epoch(self, images: int) -> int:
        """How many full batches every rank gets in an epoch. Raises DatasetError if it is none."""
        steps = images // self.world_size // self.batch_size
        if steps == 0:
            needed = self.world_size * self.batch_size
            raise DatasetError(
                "dataset",
                field="images",
                got=images,
                expected=f"at least {needed}: one batch of {self.batch_size} for each of {self.world_size} ranks",
                remedy="Use a larger dataset or a smaller batch",
            )
        return steps

    def batches(self, images: int, epoch: int) -> Iterator[List[int]]:
        """The numbers of this rank's images, batch by batch. Each epoch has a new order, and no image is on two
        ranks."""
        order = list(range(images))
        random.Random(f"{self.seed} {epoch}").shuffle(order)
        own = order[self.rank :: self.world_size]
        for step in range(self.steps_per_epoch(images)):
            yield own[step * self.batch_size : (step + 1) * self.batch_size]


@dataclass(frozen=True)
class Form:
    """The form of a batch of images."""

    # NCHW or NHWC.
    layout: str
    # 3; or 4, of which the last is zero.
    channels: int
    # float32 or float16.
    dtype: str

    def shape(self, batch_size: int) -> Tuple[int, int, int, int]:
        if self.layout == "NHWC":
            return batch_size, IMAGE_SIZE, IMAGE_SIZE, self.channels
        return batch_size, self.channels, IMAGE_SIZE, IMAGE_SIZE


def read_train_list(root: Optional[str]) -> ImageList:
    """Reads the list of images of ``root``. In each line the label is behind the last space. Raises DatasetError."""
    if root is None:
        raise DatasetError("job", field="data_root", got="nothing", expected="a folder for this data source")
    path = Path(root) / TRAIN_LIST
    paths, labels = [], []
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(str(path), got=str(error), expected="a list with lines PATH LABEL") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        image, _, label = line.strip().rpartition(" ")
        image = image.strip()
        if not image or not (label.isascii() and label.isdigit()) or len(label) > 9 or int(label) >= CLASSES:
            raise DatasetError(f"{path}:{number}", got=line, expected=f"PATH LABEL with a label below {CLASSES}")
        if image.startswith("/") or ".." in image.split("/") or "\0" in image:
            raise DatasetError(f"{path}:{number}", field="path", got=image, expected="a path inside the data folder")
        paths.append(image)
        labels.append(int(label))
    return ImageList(Path(root), tuple(paths), tuple(labels))


def decode(path: Path, rng: random.Random, augmentation: Augmentation, form: Form) -> Any:
    """One image as input of the model: decoded, randomly cropped, resized, flipped and normalised; an array without
    batch dimension. Raises DatasetError with the name of the file."""
    pixels = _cropped(path, rng, augmentation)
    if rng.random() < augmentation.flip_probability:
        pixels = pixels[:, ::-1]
    image = numpy.zeros(form.shape(1)[1:], form.dtype)
    planes = image if form.layout == "NCHW" else image.transpose(2, 0, 1)
    for channel, (scale, shift) in enumerate(_SCALES):
        # From bytes, in two passes over each channel. Converting the image to float32 first would take six passes over
        # all three channels.
        plane = numpy.multiply(pixels[:, :, channel], scale, dtype=numpy.float32)
        numpy.add(plane, shift, out=planes[channel], casting="same_kind")
    return image


def _cropped(path: Path, rng: random.Random, augmentation: Augmentation) -> Any:
    """A random crop of a file's image, resized to the model's input: 8 bits, in the order red, green, blue."""
    cv2, bgr = opencv(), read_image(path)
    left, top, right, bottom = crop_box(bgr.shape[1], bgr.shape[0], rng, augmentation)
    # Averages when it shrinks, as DALI does, and interpolates when it enlarges.
    size, smooth = (IMAGE_SIZE, IMAGE_SIZE), cv2.INTER_AREA
    return cv2.resize(bgr[top:bottom, left:right], size, interpolation=smooth)[:, :, ::-1]


def opencv() -> Any:
    """Imports OpenCV and limits it to the calling thread, since the workers use the other cores. Raises ImportError."""
    import cv2

    if cv2.getNumThreads() != 1:
        cv2.setNumThreads(1)
    return cv2


def read_image(path: Path) -> Any:
    """The pixels of an image by OpenCV, whatever its name says: height x width x (blue, green, red), rotated as the
    file's orientation says. Raises DatasetError with the name of the file."""
    cv2 = opencv()
    got = "no image that OpenCV decodes to its end"
    try:
        pixels = cv2.imdecode(numpy.frombuffer(path.read_bytes(), numpy.uint8), cv2.IMREAD_COLOR)
    # cv2.error: the file is empty, or states more pixels than OpenCV accepts.
    except (OSError, ValueError, cv2.error) as error:
        pixels, got = None, str(error)
    if pixels is None:
        raise DatasetError(str(path), got=got, expected="a readable image", remedy=_COPY_AGAIN)
    return pixels


def crop_box(width: int, height: int, rng: random.Random, augmentation: Augmentation) -> Tuple[int, int, int, int]:
    """A random crop: left, top, right and bottom in pixels."""
    low, high = augmentation.crop_aspect_ratio
    for _ in range(_CROP_ATTEMPTS):
        area = width * height * rng.uniform(*augmentation.crop_area)
        ratio = math.exp(rng.uniform(math.log(low), math.log(high)))
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left, top = rng.randint(0, width - crop_width), rng.randint(0, height - crop_height)
            return left, top, left + crop_width, top + crop_height
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def synthetic_batch(share: Share, form: Form) -> Tuple[Any, Any]:
    """One batch of noise with valid labels, which depends only on seed and rank: images, labels (int64)."""
    rng = numpy.random.RandomState(share.seed + share.rank)
    images = rng.standard_normal(form.shape(share.batch_size)).astype(form.dtype)
    if form.channels == 4:
        images[(Ellipsis, 3) if form.layout == "NHWC" else (slice(None), 3)] = 0
    labels = rng.randint(0, CLASSES, size=(share.batch_size,)).astype("int64")
    return images, labels


def reading_error(images: ImageList, words: str, suspects: Iterable[str]) -> DatasetError:
    """The error of a loader that failed with the message ``words``; it names the broken file even if ``words`` does
    not.

    ``suspects`` are the paths of the batches that the loader was reading; they are read again. If none of them is
    broken (the loader's memory or processes failed), the error names the loader.
    """
    broken = _first_unreadable(images, suspects) or _named(images, words)
    return DatasetError(
        str(broken) if broken is not None else f"the loader over {images.root}",
        got=" ".join(words.split())[:150],
        expected="a readable image",
        remedy=_COPY_AGAIN if broken is not None else "See the rank's own output",
    )


def _first_unreadable(images: ImageList, names: Iterable[str]) -> Optional[Path]:
    give_up = time.monotonic() + SEARCH_SECONDS
    for name in names:
        try:
            read_image(images.root / name)
        except DatasetError:
            return images.root / name
        if time.monotonic() > give_up:
            return None
    return None


def _named(images: ImageList, words: str) -> Optional[Path]:
    """The listed image that the message names; ``11.jpeg`` in a message does not count as ``1.jpeg``."""
    found = [name for name in images.paths if name in words]
    return images.root / max(found, key=len) if found else None
